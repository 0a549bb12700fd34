"""Which backend rules, and how its judge is opened. Imports torch only when a judge is opened."""

import glob
import os
from collections.abc import Callable
from typing import Any, Protocol

from dice.errors import UserError
from dice.types import Candidate, Problem, Verdict
from dice.verify.policy import Policy
from dice.verify.slots import visible_device

BACKENDS = ("auto", "simt", "cuda")


class Judging(Protocol):
    """What a judge does, see `Judge`."""

    def prepare(self, problem: Problem) -> Any:
        """Sizes, inputs and reference outputs of a problem. Raises ProblemError."""

    def judge(self, prepared: Any, candidate: Candidate) -> Verdict:
        """Rule on one candidate."""

    def close(self) -> None:
        """End every process."""


def gpus() -> tuple[str, ...]:
    """Indices of the NVIDIA GPUs that may be used; CUDA is not initialised.

    From the driver's device files; `CUDA_VISIBLE_DEVICES`, where it holds indices, chooses among them.
    """
    names = (path.removeprefix("/dev/nvidia") for path in glob.glob("/dev/nvidia[0-9]*"))
    found = sorted((name for name in names if name.isdigit()), key=int)
    wanted = [word.strip() for word in os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    chosen = [name for name in wanted if name in found]
    return tuple(chosen or found)


def choose(backend: str) -> str:
    """Name of the backend, simt or cuda: "auto" takes the GPU where there is one. Raises UserError."""
    if backend not in BACKENDS:
        raise UserError(f"backend {backend!r} is none of {', '.join(BACKENDS)}")
    if backend == "cuda" and not gpus():
        raise UserError(
            "backend cuda: this machine has no NVIDIA GPU; use simt (see `dice doctor`)"
        )
    if backend == "auto":
        return "cuda" if gpus() else "simt"
    return backend


def visible_gpu() -> int:
    """Index of the GPU that this process is to use, from CUDA_VISIBLE_DEVICES. Raises UserError."""
    first = visible_device()
    if not first.isdigit():
        raise UserError(f"CUDA_VISIBLE_DEVICES={first}: name the GPU by its index, as in 0")
    return int(first)


def open_judge(
    policy: Policy | None = None,
    *,
    backend: str = "auto",
    timing: bool = False,
    on_progress: Callable[[str], None] | None = None,
) -> Judging:
    """A judge of the named backend; with `timing` it measures the speed of correct candidates on a GPU.

    Raises UserError, ToolchainError or SandboxError for a machine that cannot run it.
    """
    from dice.verify.judge import Judge

    chosen = choose(backend)
    gpu = visible_gpu() if chosen == "cuda" else 0
    return Judge(policy, backend=chosen, gpu=gpu, timing=timing, on_progress=on_progress)
