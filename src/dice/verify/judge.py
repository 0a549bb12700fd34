"""The judge: a warm parent process, a backend to run candidates on, the ruling.

Everything that does not depend on the backend is in `trial` (one process) and `ruling` (the verdict).
"""

import os
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext, suppress
from pathlib import Path

from dice.errors import ProblemError
from dice.sandbox import Child, Zygote, features
from dice.toolchain import prelude
from dice.toolchain.build import build
from dice.toolchain.cuda.options import CudaOptions
from dice.toolchain.nvcc import compile_check, find_nvcc
from dice.toolchain.source import BuildOptions, BuiltExtension, ExtensionSources
from dice.types import Candidate, Evidence, Problem, Verdict
from dice.verify import backends, sizes
from dice.verify.gpu_backend import CudaBackend
from dice.verify.gpu_reference import prepare_on_gpu
from dice.verify.policy import Policy
from dice.verify.reference import prepare
from dice.verify.ruling import judge_candidate
from dice.verify.trial import Backend, Inspection, Measured, Message, Prepared, Trial

ENTRY = "dice.verify.worker:main"
_PRELOAD = ("dice.verify.worker", "dice.verify.warm:warm_up")
_GPU_PRELOAD = (
    *("dice.verify.gpu_worker", "dice.verify.gpu_referee", "dice.verify.timing.worker"),
    "dice.verify.warm:warm_up",
)
"""Imported before the processes of a GPU fork; CUDA itself is started in each of them."""

_KEPT_PROBLEMS = 16
"""Problems prepared again at sizes that candidates have in their code."""


class Judge:
    """Prepares problems and rules on candidates. One warm parent process serves both.

    `backend` is "simt" (the CPU), "cuda" (GPU number `gpu`) or "auto": a GPU where there is one.
    `sanitizer` names tools of compute-sanitizer for correct candidates on a GPU, `timing` has them timed;
    the CPU backend measures no speed. Use as a context
    manager, or call `close`. `on_progress` hears about long steps (the first build of the precompiled
    header). Raises SandboxError or ToolchainError for a broken machine only.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        backend: str = "simt",
        gpu: int = 0,
        sanitizer: tuple[str, ...] = (),
        timing: bool = False,
        build_options: BuildOptions | None = None,
        cuda_options: CudaOptions | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self._kept: dict[tuple[str, frozenset[int]], Prepared | None] = {}
        on_gpu = backends.choose(backend) == "cuda"
        options = build_options or BuildOptions(check=self.policy.check)
        if not on_gpu:
            prelude.ensure_prelude(options, on_progress)
        self._zygote = Zygote(
            preload=_GPU_PRELOAD if on_gpu else _PRELOAD,
            python_path=tuple(path for path in sys.path if os.path.isdir(path)),
        )
        self.backend: Backend
        if on_gpu:
            self.backend = CudaBackend(
                self.policy,
                cuda_options or CudaOptions(),
                self._zygote,
                gpu=gpu,
                sanitizer=sanitizer,
                timing=timing,
                on_progress=on_progress,
            )
        else:
            self.backend = SimtBackend(self.policy, options, self._zygote)

    def prepare(self, problem: Problem) -> Prepared:
        """Sizes, inputs, reference outputs and lint of a problem.

        Raises ProblemError, with a message that says what to do, for the author's mistakes.
        """
        if isinstance(self.backend, CudaBackend):
            with self.backend.running():
                return prepare_on_gpu(problem, self.backend.referee)
        return prepare(problem, self._zygote, self.policy)

    def judge(self, prepared: Prepared, candidate: Candidate) -> Verdict:
        """Rule on one candidate. Never raises for what a candidate does.

        A failure on a reduced problem does not count against a candidate with the unreduced sizes in its
        code: it is judged with these sizes kept, and is `untestable` where that is too large.
        """
        verdict = judge_candidate(self.backend, prepared, candidate)
        if verdict.kind not in sizes.DOUBTFUL or not prepared.changes:
            return verdict
        written = sizes.unreduced(candidate.code, prepared.changes)
        if not written:
            return verdict
        kept = self._keeping(prepared, written)
        if kept is None:
            return sizes.untestable(verdict, written)
        return judge_candidate(self.backend, kept, candidate)

    def _keeping(self, prepared: Prepared, written: frozenset[int]) -> Prepared | None:
        """The problem again with some sizes kept, None where it does not fit."""
        key = (prepared.problem.code, written)
        if key not in self._kept:
            kept: Prepared | None = None
            with suppress(ProblemError):
                kept = prepare(prepared.problem, self._zygote, self.policy, keep=written)
            if len(self._kept) >= _KEPT_PROBLEMS:
                self._kept.pop(next(iter(self._kept)), None)
            self._kept[key] = kept
        return self._kept[key]

    def close(self) -> None:
        if isinstance(self.backend, CudaBackend):
            self.backend.close()
        self._zygote.close()

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class SimtBackend:
    """Kernels on the CPU's emulator. See `trial.Backend`."""

    name = "simt"
    blind_in_process = False

    def __init__(self, policy: Policy, options: BuildOptions, zygote: Zygote) -> None:
        self.policy, self._options, self._zygote = policy, options, zygote
        self.protections = features()
        self.checked = (
            "no out-of-bounds access, uninitialised read or race" if options.check else ""
        )
        self._library = prelude.library_path(options)
        self._nvcc = find_nvcc()

    def spawn(self, prepared: Prepared) -> Child:
        return self._zygote.spawn(
            ENTRY,
            limits=self.policy.limits,
            readable=(str(self._library.parent),),
            private=(str(prepared.directory), str(Path(prepared.problem.path or "/nonexistent"))),
        )

    def running(self) -> AbstractContextManager[None]:
        return nullcontext()

    def job(self) -> Message:
        return {
            "check": self._options.check,
            "runtime": str(self._library),
            "threads": self.policy.threads,
            "step_limit": self.policy.step_limit,
        }

    def build(self, sources: ExtensionSources) -> BuiltExtension:
        return build(sources, options=self._options)

    def inspect(self, built: list[ExtensionSources]) -> Inspection:
        """Whether nvcc accepts the sources, where it is installed."""
        if self._nvcc is None or not built:
            return Inspection()
        for one in built:
            report = compile_check(one)
            if report.status == "failed":
                message = f"nvcc rejects the source: {report.log[:1500]}"
                evidence = Evidence(kind="nvcc_failed", message=message)
                return Inspection(nvcc="failed", evidence=evidence)
            if report.status != "ok":
                note = f"nvcc check not possible: {report.log[:200]}"
                return Inspection(nvcc="unsupported", notes=(note,))
        return Inspection(nvcc="compiled")

    def examine(self, trial: Trial) -> list[Evidence]:
        """The emulator has checked every access already."""
        return []

    def time(self, trial: Trial) -> Measured:
        """An emulator has no speed to speak of."""
        return Measured()
