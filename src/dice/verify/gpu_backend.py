"""Kernels on a GPU: split builds, a confined worker with the device, the problem's referee beside it."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path

from dice.errors import SandboxError
from dice.sandbox import Child, Limits, Zygote, features
from dice.toolchain.cuda import prelude
from dice.toolchain.cuda.build import build
from dice.toolchain.cuda.options import CudaOptions
from dice.toolchain.prelude import Progress
from dice.toolchain.source import BuiltExtension, ExtensionSources
from dice.types import Evidence
from dice.verify.gpu_reference import GpuPreparedProblem, RefereeProcess
from dice.verify.policy import Policy
from dice.verify.sanitizer import Rerun, sanitize
from dice.verify.slots import GpuSlots
from dice.verify.standby import Standby
from dice.verify.timing.timer import GpuTimer
from dice.verify.trial import Inspection, Measured, Message, Prepared, Trial

ENTRY = "dice.verify.gpu_worker:main"
TIMING_ENTRY = "dice.verify.timing.worker:main"
LIMITS = Limits(
    wall_s=240.0,
    cpu_s=240,
    memory_mib=24 << 10,
    threads=256,
    file_size_mib=64 << 10,
    disk_mib=128 << 10,
    open_files=1024,
)
"""Of a worker or referee: inputs and outputs of gigabytes pass through files."""


class CudaBackend:
    """See `trial.Backend`. `sanitizer` names tools of compute-sanitizer to run on correct candidates,
    which are also timed with `timing`."""

    name = "cuda"
    blind_in_process = True
    checked = ""

    def __init__(
        self,
        policy: Policy,
        options: CudaOptions,
        zygote: Zygote,
        *,
        gpu: int = 0,
        sanitizer: Sequence[str] = (),
        timing: bool = False,
        on_progress: Progress | None = None,
    ) -> None:
        prelude.ensure_prelude(options, on_progress)
        self.policy, self.gpu = for_gpu(policy.seeded()), gpu
        self.slots = GpuSlots(str(gpu))
        self.referee = RefereeProcess(zygote, self.policy, gpu)
        self._options, self._zygote, self._sanitizer = options, zygote, tuple(sanitizer)
        self._library = prelude.library_path(options)
        self._timer = GpuTimer(self.policy, self.slots, str(gpu)) if timing else None
        self.protections = features()
        self._standby = Standby(lambda: self._spawn(ENTRY), self.slots.checking)

    def spawn(self, prepared: Prepared) -> Child:
        child = self._standby.take()
        child.private = _private(prepared)
        return child

    def close(self) -> None:
        self._standby.close()
        self.referee.close()

    def _spawn(self, entry: str, private: tuple[str, ...] = ()) -> Child:
        return self._zygote.spawn(
            entry,
            limits=self.policy.limits,
            readable=(str(self._library.parent),),
            private=private,
            gpu=self.gpu,
        )

    def running(self) -> AbstractContextManager[None]:
        return self.slots.checking_in_turn()

    def job(self) -> Message:
        return {"launch_library": str(self._library)}

    def build(self, sources: ExtensionSources) -> BuiltExtension:
        return build(sources, options=self._options)

    def inspect(self, built: list[ExtensionSources]) -> Inspection:
        """CUDA's own compiler has built what ran."""
        return Inspection(nvcc="compiled" if built else "not_available")

    def examine(self, trial: Trial) -> list[Evidence]:
        """The first call again under compute-sanitizer, where that was asked for."""
        if not self._sanitizer:
            return []
        directory = Path(trial.prepared.directory)
        first = directory / "input_0.bin"
        trial.prepared.write_input(0, first)
        rerun = Rerun(
            job=trial.job,
            builds=tuple(
                {**answer, "path": built.path}
                for answer, built in zip(
                    [one for one in trial.answers if "path" in one], trial.built, strict=True
                )
            ),
            files=(directory / "init.bin", directory / "state.bin", first),
        )
        try:
            found = sanitize(rerun, self._sanitizer, limits=self.policy.limits)
        except SandboxError as error:
            trial.notes.append(f"not examined: {error}")
            return []
        if not found:
            trial.notes.append(f"compute-sanitizer {', '.join(self._sanitizer)}: no fault")
        return found

    def time(self, trial: Trial) -> Measured:
        """Its speed in a process of its own, where timing was asked for."""
        prepared = trial.prepared
        if self._timer is None or not isinstance(prepared, GpuPreparedProblem):
            return Measured()
        private = _private(prepared)
        return self._timer.time(trial, prepared, lambda: self._spawn(TIMING_ENTRY, private))


def _private(prepared: Prepared) -> tuple[str, ...]:
    """What a candidate has no business reading."""
    return str(prepared.directory), str(Path(prepared.problem.path or "/nonexistent"))


def for_gpu(policy: Policy) -> Policy:
    """The policy with a GPU's limits: no reduction of sizes, room for files and CUDA's threads."""
    lasting = replace(LIMITS, cpu_s=1 << 20)
    return replace(policy, limits=LIMITS, reference_limits=lasting, max_reference_s=60.0)
