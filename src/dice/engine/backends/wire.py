"""What an OpenAI-compatible endpoint answered: the completion, or what kind of trouble it is.

Endpoints agree on the shape of a success and on little else; troubles are told apart by status, then by
codes and words that OpenAI, Azure, vLLM, llama.cpp, TGI, OpenRouter and others use.
"""

import email.utils
import json
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from pydantic import BaseModel, ValidationError

from dice.engine.backends.base import Usage
from dice.prompts.extract import without_reasoning

_OVERFLOW = re.compile(
    r"context[_ ](length|window|size)|maximum context|prompt is too long|input is too long"
    r"|inputs?`? tokens?.{0,40}(exceed|must be|too (long|many))|exceeds? the maximum (number of tokens|input)",
    re.IGNORECASE,
)
_REFUSAL = re.compile(
    r"content.?(filter|polic|management)|moderation|flagged|data_inspection|invalid_prompt",
    re.IGNORECASE,
)
_NOT_UNDERSTOOD = re.compile(
    r"unsupported|not supported|unrecognized|unrecognised|unknown|unexpected|not permitted|extra"
    r"|not allowed|does not support|invalid (argument|parameter)|deprecated",
    re.IGNORECASE,
)
_PARAMETERS = ("max_completion_tokens", "max_tokens", "seed", "temperature", "top_p", "top_k")
_NO_MONEY = re.compile(r"insufficient.?(quota|balance|credit|funds)|billing", re.IGNORECASE)
_FINISH = {"length": "length", "max_tokens": "length", "model_length": "length"}
_FILTERED = ("content_filter", "safety", "blocked", "refusal")


class Kind(StrEnum):
    """What to do about a trouble."""

    BUSY = "busy"
    """Ask everything again later: a rate limit."""
    DOWN = "down"
    """The endpoint cannot be reached or is broken; not this request's fault."""
    BROKEN = "broken"
    """No usable answer to this request; it may be its fault."""
    PARAMETER = "parameter"
    """A parameter is not understood."""
    OVERFLOW = "context_overflow"
    REFUSED = "refused"
    REJECTED = "rejected"
    """Will be answered the same every time."""
    FATAL = "fatal"
    """Nothing will be answered until somebody does something."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Why an attempt brought no completion."""

    kind: Kind
    message: str
    retry_after_s: float | None = None
    parameter: str | None = None
    usage: Usage = field(default_factory=Usage)
    """Tokens that were spent all the same."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A completion, reasoning left out."""

    text: str
    finish_reason: str
    usage: Usage
    model: str | None
    """Which model the endpoint says it was."""


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    message: _Message
    finish_reason: str | None = None


class _Counts(BaseModel):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None


class _Body(BaseModel):
    choices: list[_Choice] | None = None
    usage: _Counts | None = None
    model: str | None = None
    error: object = None


def read_reply(content: str) -> Reply | Trouble:
    """What a body with status 200 says."""
    try:
        body = _Body.model_validate_json(content)
    except ValidationError:
        return Trouble(kind=Kind.BROKEN, message=f"not a chat completion: {_short(content)}")
    counts = body.usage or _Counts()
    usage = Usage(
        prompt_tokens=counts.prompt_tokens or 0, completion_tokens=counts.completion_tokens or 0
    )
    if body.error is not None and not body.choices:
        code = body.error.get("code") if isinstance(body.error, dict) else None
        status = code if isinstance(code, int) and 400 <= code < 600 else 500
        return read_error(status, {}, content)
    if not body.choices:
        return Trouble(kind=Kind.BROKEN, message="an answer without choices", usage=usage)
    choice = body.choices[0]
    reason, text = choice.finish_reason or "stop", choice.message.content or ""
    if reason in _FILTERED or (choice.message.refusal and not text):
        message = choice.message.refusal or "the endpoint's content filter cut the answer off"
        return Trouble(kind=Kind.REFUSED, message=message, usage=usage)
    if reason == "error":
        return Trouble(kind=Kind.BROKEN, message="the answer broke off", usage=usage)
    return Reply(
        text=without_reasoning(text),
        finish_reason=_FINISH.get(reason, "stop"),
        usage=usage,
        model=body.model,
    )


def read_error(status: int, headers: Mapping[str, str], content: str) -> Trouble:
    """What a response with another status says."""
    code, parameter, message = _details(content)
    said = f"HTTP {status}: {_short(message)}"
    words = f"{code} {message}"
    if status == 401:
        # Not quoted: some endpoints repeat the key, or part of it.
        return Trouble(kind=Kind.FATAL, message="HTTP 401: the key was not accepted")
    if status in (400, 403, 413, 422) and _OVERFLOW.search(words):
        return Trouble(kind=Kind.OVERFLOW, message=said)
    if status in (400, 403, 422, 451) and _REFUSAL.search(words):
        return Trouble(kind=Kind.REFUSED, message=said)
    if status == 403:
        return Trouble(kind=Kind.FATAL, message="HTTP 403: the key may not use this model")
    if status in (402, 404, 405) or (status == 429 and _NO_MONEY.search(words)):
        return Trouble(kind=Kind.FATAL, message=said)
    if status in (400, 422):
        named = parameter or next((one for one in _PARAMETERS if one in message), None)
        if named in _PARAMETERS and _NOT_UNDERSTOOD.search(words):
            return Trouble(kind=Kind.PARAMETER, message=said, parameter=named)
    wait = _retry_after_s(headers)
    if status == 429:
        return Trouble(kind=Kind.BUSY, message=said, retry_after_s=wait)
    if status >= 500:
        return Trouble(kind=Kind.DOWN, message=said, retry_after_s=wait)
    if status in (408, 409, 425) or status < 400:
        return Trouble(kind=Kind.BROKEN, message=said, retry_after_s=wait)
    return Trouble(kind=Kind.REJECTED, message=said)


def _details(content: str) -> tuple[str, str | None, str]:
    """Code, parameter and message of an error, as far as it has them."""
    try:
        body = json.loads(content)
    except ValueError:
        return "", None, content
    if isinstance(body, list) and body:
        body = body[0]
    error = body.get("error", body) if isinstance(body, dict) else body
    if not isinstance(error, dict):
        return "", None, str(error)
    parameter = error.get("param")
    message = error.get("message") or error.get("detail") or content
    code = " ".join(str(error[key]) for key in ("code", "type") if error.get(key))
    return code, parameter if isinstance(parameter, str) else None, str(message)


def _retry_after_s(headers: Mapping[str, str]) -> float | None:
    for name, unit in (("retry-after-ms", 0.001), ("retry-after", 1.0)):
        try:
            return max(0.0, float(headers[name]) * unit)
        except (KeyError, ValueError):
            continue
    when = email.utils.parsedate_tz(headers.get("retry-after", ""))
    return None if when is None else max(0.0, email.utils.mktime_tz(when) - time.time())


def _short(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= 300 else f"{text[:300]}..."
