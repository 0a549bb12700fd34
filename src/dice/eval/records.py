"""What a run's files hold: `run.json`, and the lines of `log.jsonl`. Pydantic, since these are bytes from disk.

A sample is named by level, problem number and sample number. It gets one `generation` line, then `verdict`
lines; of several verdicts of one sample the last counts.
"""

import math
from dataclasses import asdict
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from dice.types import Verdict

Key: TypeAlias = tuple[int, int, int]
"""Level, problem number, sample number."""
VERDICT = TypeAdapter(Verdict)
FORMAT = 1
"""Of a run's folder; a later one is refused, not guessed."""


class Record(BaseModel):
    """Base: unknown keys are errors, values do not change."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class Sampling(Record):
    """How completions are drawn. None leaves a value to the checkpoint."""

    samples: Annotated[int, Field(ge=1)] = 1
    seed: Annotated[int, Field(ge=0)] = 0
    temperature: Annotated[float, Field(ge=0)] | None = None
    """None: greedy for a single sample, else the checkpoint's (or 1)."""
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    threshold: Annotated[float, Field(ge=0, le=1)] | None = None
    steps: Annotated[int, Field(ge=1)] | None = None
    max_new_tokens: Annotated[int, Field(ge=1)] | None = None


class Place(Record):
    """Where candidates are judged. Results of different places are never mixed in one run."""

    backend: Literal["simt", "cuda"]
    gpu: str | None = None
    timing: bool = False


class Chosen(Record):
    """One problem of the run, with the hash of its code."""

    level: int
    problem_id: int
    stem: str
    code_hash: str


class RunConfig(Record):
    """`run.json`: everything that decides a run's results."""

    format: int = FORMAT
    name: str
    model: dict[str, Any]
    """As the generating backend describes itself; `{"kind": "imported"}` for candidates made elsewhere."""
    options: dict[str, Any] = {}
    """How to open that backend again, to resume. Never a secret."""
    dataset: str
    dataset_version: str
    problems: tuple[Chosen, ...]
    sampling: Sampling
    place: Place
    policy: dict[str, Any]
    """Every constant of the ruling."""
    provenance: tuple[dict[str, Any], ...] = ()
    """One entry per start or resume."""


class Generation(Record):
    """One completion, or why there is none."""

    event: Literal["generation"] = "generation"
    level: int
    problem_id: int
    sample: int
    code_hash: str
    """Of the problem."""
    seed: int
    text: str = ""
    code: str = ""
    """The candidate file that was found in the text."""
    failure: str | None = None
    """"context_overflow", "refused": a failure that counts."""
    message: str | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    forwards: int | None = None
    seconds: float | None = None
    """Of waiting for this answer after the one before: the mean is what a completion takes."""
    cost_usd: float | None = None
    pieces: tuple[str, ...] | None = None
    """Text of each generated position, for the replay."""
    steps: tuple[int | None, ...] | None = None
    """The model's denoising forward at which each position was written, counted over the sequence."""

    @property
    def key(self) -> Key:
        return self.level, self.problem_id, self.sample


class Judged(Record):
    """One verdict. `error` instead of it: the machine failed, and resuming tries again."""

    event: Literal["verdict"] = "verdict"
    level: int
    problem_id: int
    sample: int
    verdict: dict[str, Any] | None = None
    error: str | None = None
    same_as: int | None = None
    """An earlier sample of the problem with the same code, whose verdict this is."""
    seconds: float | None = None

    @property
    def key(self) -> Key:
        return self.level, self.problem_id, self.sample


class Upstream(Record):
    """What KernelBench's own scripts said about an imported candidate."""

    event: Literal["upstream"] = "upstream"
    level: int
    problem_id: int
    sample: int
    compiled: bool
    correctness: bool
    runtime_ms: float | None = None
    baseline_ms: dict[str, float] = {}
    """By baseline ("eager", "compile"), from its timing files."""

    @property
    def key(self) -> Key:
        return self.level, self.problem_id, self.sample


Line: TypeAlias = Annotated[Generation | Judged | Upstream, Field(discriminator="event")]
LINE: TypeAdapter[Line] = TypeAdapter(Line)


def plain_verdict(verdict: Verdict) -> dict[str, Any]:
    """Plain data that JSON can hold; numbers that it cannot (inf, NaN) become text."""
    plain = _finite(asdict(verdict))
    assert isinstance(plain, dict)
    return plain


def _finite(value: Any) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return str(value)
        case dict():
            return {clean(str(key)): _finite(one) for key, one in value.items()}
        case list() | tuple() | set() | frozenset():
            return [_finite(one) for one in value]
        case str():
            return clean(value)
        case int() | float() | None:
            return value
        case _:
            return clean(str(value))


def clean(text: str) -> str:
    """The text with a question mark for what UTF-8 lacks (half a surrogate pair)."""
    return text.encode("utf-8", "replace").decode()


def verdict_of(line: Judged) -> Verdict | None:
    """The verdict as a record. Raises pydantic's ValidationError for a foreign form."""
    return None if line.verdict is None else VERDICT.validate_python(line.verdict)
