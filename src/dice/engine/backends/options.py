"""What a user can choose about a backend.

`BackendSettings` is what a command line or a run's record holds: plain data, `None` where nothing was chosen.
It becomes the options of one kind of backend, and what that kind does not have is refused.
"""

import os
import re
from dataclasses import dataclass, fields
from typing import Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from dice.errors import UserError

OPENAI_URL = "https://api.openai.com/v1"
SENT = ("temperature", "top_p", "top_k", "seed")
"""Parameters that can be left out of what an endpoint is sent."""
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions:
    """Of a model on this machine.

    Raises:
        UserError: a value out of range.
    """

    device: str | None = None
    """By default a GPU where there is one."""
    dtype: str | None = None
    """Of the weights: "float32", "bfloat16", "float16"; by default float32 on a CPU, else bfloat16."""
    adapter: str | None = None
    """Folder or hub id of a LoRA adapter; diffusion models only."""
    rows: int | None = None
    """Sequences written at a time; by default 64, on a CPU 8, of causal models 16."""
    template: str | None = None
    """Prompt template; by default the checkpoint's."""

    def __post_init__(self) -> None:
        if self.rows is not None and self.rows < 1:
            raise UserError(f"rows must be at least 1, not {self.rows}")
        if self.dtype not in (None, "float32", "bfloat16", "float16"):
            raise UserError(f"dtype {self.dtype!r} is none of float32, bfloat16, float16")


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointOptions:
    """Of an OpenAI-compatible endpoint. The key itself is no option: it is read from the environment.

    Raises:
        UserError: a value out of range, or a URL that might hold a secret.
    """

    base_url: str = OPENAI_URL
    key_variable: str = "OPENAI_API_KEY"
    """Name of the environment variable that holds the key."""
    template: str = "kernelbench"
    concurrency: int = 16
    """Requests under way at a time."""
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    """Prompt and answer; an answer under way counts with its length limit."""
    timeout_s: float = 900.0
    """For one whole answer."""
    attempts: int = 10
    """Failures of one request, while others succeed or by its own fault, after which it is set aside."""
    retry_base_s: float = 1.0
    """First wait after a failure; doubles, with jitter, up to `retry_longest_s`."""
    retry_longest_s: float = 60.0
    pause_after: int = 5
    """Failures of the endpoint in a row that pause the run."""
    pause_limit_s: float = 6 * 3600.0
    """A pause that lasts longer ends the run."""
    input_price: float | None = None
    """In USD for a million input tokens."""
    output_price: float | None = None
    """In USD for a million output tokens."""
    omit: tuple[str, ...] = ()
    """Parameters that are never sent, for models that refuse them."""

    def __post_init__(self) -> None:
        url = urlsplit(self.base_url)
        numbers = {
            "concurrency": self.concurrency,
            "requests_per_minute": self.requests_per_minute,
            "tokens_per_minute": self.tokens_per_minute,
            "timeout_s": self.timeout_s,
            "attempts": self.attempts,
            "retry_base_s": self.retry_base_s,
            "retry_longest_s": self.retry_longest_s,
            "pause_after": self.pause_after,
            "pause_limit_s": self.pause_limit_s,
        }
        if url.username or url.password or url.query or url.fragment:
            # Not quoted: what it should not hold may be a key.
            raise UserError(
                "base_url has a user, a password, a query or a fragment; give scheme, host and path, and the "
                f"key in the environment ({self.key_variable})"
            )
        if url.scheme not in ("http", "https") or not url.hostname:
            raise UserError(f"base_url {self.base_url!r} is not an http(s) URL")
        if not _VARIABLE.fullmatch(self.key_variable):
            raise UserError(
                "key_variable is not the name of an environment variable (give its name, never the key)"
            )
        for name, number in numbers.items():
            if number is not None and number <= 0:
                raise UserError(f"{name} must be positive, not {number}")
        if any(price is not None and price < 0 for price in (self.input_price, self.output_price)):
            raise UserError("prices must not be negative")
        if unknown := set(self.omit) - set(SENT):
            raise UserError(f"cannot omit {sorted(unknown)}; one of {', '.join(SENT)}")

    def read_key(self) -> SecretStr | None:
        """The key; `None` where the default variable is not set, as a server of one's own wants none.

        Raises:
            UserError: a variable that was named, or that OpenAI needs, is not set, or cannot be a key.
        """
        key = os.environ.get(self.key_variable, "").strip()
        if not key:
            if self.key_variable == "OPENAI_API_KEY" and self.base_url != OPENAI_URL:
                return None
            raise UserError(
                f"the environment variable {self.key_variable} is not set; put the endpoint's API key in it"
            )
        if not key.isascii() or not key.isprintable() or " " in key:
            raise UserError(f"{self.key_variable} holds characters that no API key has")
        return SecretStr(key)


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendSettings:
    """A model's name and everything that may be chosen about either kind of backend."""

    model: str
    """"nano", a folder, a hub id, or "openai:MODEL" at an endpoint."""
    template: str | None = None
    device: str | None = None
    dtype: str | None = None
    adapter: str | None = None
    rows: int | None = None
    base_url: str | None = None
    key_variable: str | None = None
    concurrency: int | None = None
    requests_per_minute: int | None = None
    tokens_per_minute: int | None = None
    timeout_s: float | None = None
    attempts: int | None = None
    pause_limit_s: float | None = None
    input_price: float | None = None
    output_price: float | None = None
    omit: tuple[str, ...] | None = None

    @property
    def endpoint_model(self) -> str | None:
        """The model's name at an endpoint; `None` for a model on this machine."""
        prefix, colon, name = self.model.partition(":")
        return name if prefix == "openai" and colon and name else None

    def local(self) -> LocalOptions:
        """Raises UserError where something was chosen that only endpoints have."""
        return LocalOptions(**self._for(LocalOptions, "is for endpoints (model openai:NAME)"))

    def endpoint(self) -> EndpointOptions:
        """Raises UserError where something was chosen that only models on this machine have."""
        chosen = self._for(EndpointOptions, "is for models on this machine, not for endpoints")
        if "omit" in chosen:
            chosen["omit"] = tuple(chosen["omit"])
        return EndpointOptions(**chosen)

    def _for(
        self, kind: type[LocalOptions] | type[EndpointOptions], why_not: str
    ) -> dict[str, Any]:
        known = {one.name for one in fields(kind)}
        chosen = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "model"}
        chosen = {name: value for name, value in chosen.items() if value is not None}
        if foreign := [name for name in chosen if name not in known]:
            raise UserError(f"{self.model}: {foreign[0]} {why_not}")
        return chosen
