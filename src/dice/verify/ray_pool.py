"""The pool over many machines: one Ray actor a worker. Needs the extra `dice-cuda[ray]`.

    ray.init(address="auto")
    with RayPool(workers=64, backend="cuda", gpus_per_worker=0.125) as pool: ...

Same interface as `Pool`. An actor that dies, alone or with its machine, is replaced wherever the cluster
has room. Each machine needs the package and, for the CPU backend, g++; builds are cached on each machine
for itself.
"""

import contextlib
import os
from collections.abc import Callable
from typing import Any

from dice.errors import SandboxError, UserError
from dice.types import Candidate, Problem, Verdict
from dice.verify.local_worker import START_S, WorkerDied
from dice.verify.policy import Policy
from dice.verify.pool import JOB_S, Pool, Worker
from dice.verify.pool_worker import OPEN_JUDGE, Bench, WorkerSettings


def _ray() -> Any:
    try:
        import ray
    except ImportError as error:
        raise UserError("Ray is not installed: pip install 'dice-cuda[ray]'") from error
    if not ray.is_initialized():
        raise UserError("not connected to a Ray cluster: call ray.init(address=...) first")
    return ray


class RayPool(Pool):
    """Workers all over a Ray cluster. Call `ray.init` first.

    Args:
        workers: how many; by default the cluster's number of CPUs.
        cpus_per_worker: what a worker asks Ray for; builds use one core.
        gpus_per_worker: a part of a GPU; 1/4 puts four workers on each GPU.
        resources: further resources that a worker asks Ray for.

    The others as for `Pool`. Raises UserError without Ray or a cluster.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        policy: Policy | None = None,
        backend: str = "auto",
        timing: bool = False,
        cpus_per_worker: float = 1.0,
        gpus_per_worker: float = 0.0,
        resources: dict[str, float] | None = None,
        max_pending: int | None = None,
        job_timeout_s: float = JOB_S,
        on_progress: Callable[[str], None] | None = None,
        factory: str = OPEN_JUDGE,
    ) -> None:
        self._cluster = _ray()
        total = self._cluster.cluster_resources().get("CPU", 1)
        self._options = {
            "num_cpus": cpus_per_worker,
            "num_gpus": gpus_per_worker,
            "resources": resources,
            "max_restarts": 0,
            "scheduling_strategy": "SPREAD",
        }
        super().__init__(
            workers or max(1, int(total / max(cpus_per_worker, 1e-9))),
            policy=policy,
            backend=backend,
            timing=timing,
            gpus=(),
            max_pending=max_pending,
            job_timeout_s=job_timeout_s,
            on_progress=on_progress,
            factory=factory,
        )

    def _choose_backend(self, backend: str) -> str:
        return backend  # each machine of the cluster decides for itself

    def _start_worker(self, index: int) -> Worker:
        return RayWorker(self._cluster, self.settings, self._options)


class RayWorker:
    """One actor with a judge in it."""

    def __init__(self, ray: Any, settings: WorkerSettings, options: dict[str, Any]) -> None:
        self._ray = ray
        self.held: tuple[str, ...] = ()
        self._actor = ray.remote(_Actor).options(**options).remote(settings)
        try:
            self._get(self._actor.start.remote(), START_S)
        except BaseException:
            self.kill()
            raise

    def rule(self, problem: Problem, candidate: Candidate, timeout_s: float) -> Verdict:
        """One verdict. Raises UserError for a problem that cannot be used, else WorkerDied."""
        verdict, self.held = self._get(self._actor.rule.remote(problem, candidate), timeout_s)
        assert isinstance(verdict, Verdict)
        return verdict

    def _get(self, reference: Any, timeout_s: float) -> Any:
        exceptions = self._ray.exceptions
        try:
            return self._ray.get(reference, timeout=timeout_s)
        except exceptions.RayTaskError as error:
            cause = getattr(error, "cause", None)
            if isinstance(cause, UserError):
                raise cause from error
            raise WorkerDied(f"{type(cause).__name__}: {cause}") from error
        except exceptions.GetTimeoutError as error:
            raise WorkerDied(f"a worker did not answer in {timeout_s:.0f} s") from error
        except exceptions.RayError as error:
            raise WorkerDied(str(error).strip().splitlines()[0]) from error

    def close(self) -> None:
        with contextlib.suppress(WorkerDied, UserError):
            self._get(self._actor.close.remote(), 10.0)
        self.kill()

    def interrupt(self) -> None:
        self.kill()

    def kill(self) -> None:
        with contextlib.suppress(self._ray.exceptions.RayError):
            self._ray.kill(self._actor)


class _Actor:
    """Runs on a machine of the cluster."""

    def __init__(self, settings: WorkerSettings) -> None:
        self._settings = settings
        self._bench: Bench | None = None

    def start(self) -> int:
        """Open the judge; the process id."""
        self._bench = Bench(self._settings, lambda _: None)
        return os.getpid()

    def rule(self, problem: Problem, candidate: Candidate) -> tuple[Verdict, tuple[str, ...]]:
        """The verdict, and which problems are prepared here now."""
        if self._bench is None:
            raise SandboxError("the worker was not started")
        return self._bench.rule(problem, candidate), self._bench.held()

    def close(self) -> None:
        if self._bench is not None:
            self._bench.close()
