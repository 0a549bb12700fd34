"""What everything that can write kernels looks like to an evaluation: requests in, answers out.

A request ends in exactly one answer: a completion, or the reason why it can never have one. Whatever
concerns all requests (a wrong key, an unknown model, too little memory) is an exception instead, and
requests without an answer may simply be asked again.
"""

from collections.abc import Callable, Generator, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol

from dice.engine.sampling import SamplingParams
from dice.errors import ModelError
from dice.models.generation import GenerationDefaults
from dice.types import Completion, Prompt

CONTEXT_OVERFLOW = "context_overflow"
"""Failure: prompt and answer together do not fit the model."""
REFUSED = "refused"
"""Failure: the endpoint's content filter refused to answer."""
REJECTED = "rejected"
"""Failure: the endpoint or the tokenizer will never accept this one request."""

OnPause = Callable[[str], None]
"""Told, for people, that a backend waits for an endpoint, that it still waits, and that it goes on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One completion wanted. `id` is the caller's and comes back untouched."""

    id: str
    prompt: Prompt
    params: SamplingParams


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """What one answer took, failed attempts that were paid for included."""

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float | None = None
    """`None` where nobody gave a price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What became of a request: a completion, or a failure that counts against the model."""

    request: Request
    completion: Completion | None = None
    failure: str | None = None
    """A stable kind, `CONTEXT_OVERFLOW` for one; `None` exactly where there is a completion."""
    message: str | None = None
    """The failure, for people."""
    usage: Usage = Usage()
    seconds: float = 0.0
    """From when work on the request began to its answer; requests of one batch share the time."""

    def __post_init__(self) -> None:
        assert (self.completion is None) != (self.failure is None)


class Unanswered(ModelError):
    """Requests that got no answer, through no fault of the model; asking them again may help."""


class Backend(AbstractContextManager["Backend"], Protocol):
    """Something that writes kernels. Leaving its context closes it."""

    @property
    def name(self) -> str:
        """What the user named: "nano", a folder, a hub id, "openai:MODEL"."""
        ...

    @property
    def template(self) -> str:
        """Name of the prompt template that problems are rendered in."""
        ...

    @property
    def defaults(self) -> GenerationDefaults:
        """The model's own settings, template texts included; empty of an endpoint."""
        ...

    @property
    def block_size(self) -> int:
        """Positions to a diffusion block, which `Completion.steps` count within; 1 where there is none."""
        ...

    def pieces(self, completion: Completion) -> tuple[str, ...] | None:
        """The text of each generated position, for a replay; `None` where positions are not known."""
        ...

    def describe(self) -> dict[str, object]:
        """Plain data for the record of a run: which model, how it is run. Never a key."""
        ...

    def answers(self, requests: Iterable[Request]) -> Generator[Answer, None, None]:
        """One answer per request, in order of completion.

        Requests are taken a bounded number ahead of the work, so that the caller verifies one answer
        while the next is written. Closing the generator stops the work. One call at a time.

        Raises:
            Unanswered: at the end, after everything else was answered.
            ModelError: nothing can be answered (wrong key, unknown model, too little memory, ...).
        """
        ...

    def close(self) -> None:
        """Frees what is held; the backend cannot be used afterwards. Idempotent."""
        ...
