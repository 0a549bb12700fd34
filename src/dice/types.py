"""The nouns of the flow: problem -> prompt -> completion -> candidate -> verdict -> reward -> sample.

One frozen record each. Torch-free, so that everything may import them.
"""

from dataclasses import dataclass, field
from enum import StrEnum


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A PyTorch module file under KernelBench's contract: `Model`, `get_inputs`, `get_init_inputs`."""

    name: str
    code: str
    source: str = "file"
    """Where it came from: "file", "kernelbench", "dice_rl", "synth"."""
    path: str | None = None
    level: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One turn of a conversation."""

    role: str
    """"system", "user" or "assistant"."""
    content: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """What a model is given for one problem. Tokenising it is the engine's business.

    Either `text` or `messages`: a model trained on a template of its own gets text, a chat model gets
    messages, which its tokenizer's chat template turns into text.
    """

    problem: str
    """Name of the problem."""
    template: str
    text: str = ""
    """The rendered prompt, ending where the completion begins."""
    messages: tuple[Message, ...] = ()
    forced_prefix: str = ""
    """Text that every completion starts with (infilling)."""
    forced_suffix: str = ""
    """Text that every completion ends with (infilling); the prompt shows it too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Completion:
    """What a model returned, position by position; text is never tokenised again.

    `token_ids`, `steps` and `logprobs` have one entry per generated position, the whole last block
    included. A position that stayed masked holds the mask token, step -1 never occurs: it is None.
    """

    prompt_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    steps: tuple[int | None, ...]
    """Denoising step (0-based, counted within its block) at which each position was unmasked; None
    where forced or still masked."""
    logprobs: tuple[float | None, ...]
    """Untempered log-probability of each token at the step it was unmasked."""
    text: str
    """Decoded text, cut at the stop token; of an aborted completion, before its first masked position."""
    finish_reason: str
    """"stop", "length" or "aborted"."""
    forwards: int
    """Model forwards this sequence took part in while it was being denoised."""
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """One kernel file: Python source that should define `class ModelNew(nn.Module)`."""

    problem: str
    code: str
    name: str = "candidate"
    completion: Completion | None = None


class VerdictKind(StrEnum):
    """How a candidate ended (DESIGN section 4)."""

    CORRECT = "correct"
    WRONG = "wrong"
    UNSAFE = "unsafe"
    COMPILE_ERROR = "compile_error"
    LAUNCH_ERROR = "launch_error"
    TIMEOUT = "timeout"
    CRASHED = "crashed"
    HACK = "hack"
    NO_CUSTOM_KERNEL = "no_custom_kernel"
    UNTESTABLE = "untestable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """One observation behind a verdict. `kind` is a stable identifier, `message` is for people."""

    kind: str
    message: str
    details: dict[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Runtime:
    """How long one call takes, in microseconds, caches cold, the whole device waited for."""

    median_us: float
    p10_us: float
    p90_us: float
    clock_us: float
    """Mean time of a call by the second, independent clock, overhead subtracted."""
    calls: int
    batches: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """A ratio of medians with its bootstrap interval; above 1 the candidate is faster."""

    over: str
    """The baseline: "eager" or "compile"."""
    value: float
    low: float
    high: float
    confidence: float
    """That the interval from `low` to `high` holds the ratio, for runs like this one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Measured speed of a correct candidate beside PyTorch's on the same inputs and GPU."""

    runtime: Runtime
    baselines: dict[str, Runtime]
    """By name: "eager" and, where it compiles, "compile"."""
    speedups: tuple[Speedup, ...]
    refused: str | None
    """Why this measurement must not be believed (clocks that disagree, faster than the memory);
    None for a good one."""
    gbps: float
    """Bytes that every implementation must move, by the median time, in 10^9 bytes a second."""
    tflops: float
    """The reference's matrix arithmetic by the median time, in 10^12 operations a second."""
    peak_gbps: float
    peak_tflops: float
    """What this device was measured to reach, copying and multiplying float32 matrices."""
    gpu: str
    notes: tuple[str, ...] = ()

    def speedup(self, over: str = "eager") -> float | None:
        """The ratio over one baseline; None where there is none or the measurement was refused."""
        if self.refused is not None:
            return None
        return next((one.value for one in self.speedups if one.over == over), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """The judge's ruling on one candidate. `notes` hold what was checked, shrunk or not protected."""

    kind: VerdictKind
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()
    backend: str = "simt"
    nvcc: str = "not_available"
    """"compiled", "failed", "unsupported" (the check does not know the source's headers) or
    "not_available"; on the CPU backend nvcc only compiles."""
    build_s: float | None = None
    run_s: float | None = None
    attribution: str | None = None
    """Who made a right output: "custom" (kernels alone), "mixed" (kernels and PyTorch), "library" (PyTorch
    or a library, called from C++), "pytorch" (called from Python); None when there is none."""
    timing: Timing | None = None
    """None unless a correct candidate was timed, which takes a GPU."""
    outputs_match: bool | None = None
    """Whether every output matched, whatever else was found: what a check of outputs alone would have
    called correct. None where the candidate was stopped before its last output."""

    @property
    def correct(self) -> bool:
        return self.kind is VerdictKind.CORRECT


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingSample:
    """One supervised pair, tokenised: `token_ids` is prompt + response + stop token."""

    token_ids: tuple[int, ...]
    prompt_length: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reward:
    """What one verdict is worth, and the rule that said so."""

    value: float
    rule: str
