"""Many candidates over several workers, each with a judge, a warm parent and problems prepared once.

    with Pool(workers=4) as pool:
        for outcome in pool.map(jobs):
            print(outcome.job.candidate.name, outcome.verdict)

Every job ends in exactly one outcome. A worker that dies is replaced and its job tried once more; a job
on which two workers died gets an error of the machine, never a verdict. `RayPool` is the same over many
machines. Builds overlap with what runs on a GPU when there are more workers than GPUs: the judges share
a GPU by `slots.GpuSlots`.
"""

import os
import queue
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias

from dice.errors import DiceError, SandboxError, UserError
from dice.types import Candidate, Problem, Verdict
from dice.verify import backends
from dice.verify.local_worker import LocalWorker, WorkerDied, machine_failed
from dice.verify.policy import Policy
from dice.verify.pool_queue import JobQueue, Ticket
from dice.verify.pool_worker import OPEN_JUDGE, WorkerSettings, problem_key

JOB_S = 1800.0
"""For one job; only a judge that hangs gets there, candidates have limits of their own."""
_ATTEMPTS = 2
_PREPARED = {"simt": 8, "cuda": 2}


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One candidate for one problem. `id` is the caller's."""

    problem: Problem
    candidate: Candidate
    id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of a job: a verdict, or an error about its problem or the machine."""

    job: Job
    verdict: Verdict | None = None
    error: DiceError | None = None


_Done: TypeAlias = "queue.SimpleQueue[tuple[Job, Future[Verdict]]]"


class Worker(Protocol):
    """One judge somewhere. Used by one thread at a time."""

    held: tuple[str, ...]
    """Keys of the problems it has prepared."""

    def rule(self, problem: Problem, candidate: Candidate, timeout_s: float) -> Verdict:
        """One verdict. Raises UserError for the problem's mistakes, else WorkerDied."""

    def close(self) -> None:
        """End it in good order."""

    def interrupt(self) -> None:
        """From another thread: make it end, so that `rule` raises WorkerDied."""

    def kill(self) -> None:
        """End it now."""


class Pool:
    """Worker processes on this machine. Use as a context manager, or call `close`.

    Args:
        workers: how many; by default the number of cores.
        policy: of every judge.
        backend: "simt", "cuda", or "auto" for the GPU where there is one.
        timing: have the speed of correct candidates measured, where there is a GPU.
        gpus: indices to use, workers are dealt out to them in turn; by default all.
        max_pending: `submit` waits while so many jobs wait.
        on_progress: hears about long steps (the first build of the precompiled header).
        factory: opens a worker's judge, see `WorkerSettings`.

    Raises UserError, ToolchainError or SandboxError when the first worker cannot start.
    """

    def __init__(
        self,
        workers: int | None = None,
        *,
        policy: Policy | None = None,
        backend: str = "auto",
        timing: bool = False,
        gpus: Iterable[str | int] | None = None,
        max_pending: int | None = None,
        job_timeout_s: float = JOB_S,
        on_progress: Callable[[str], None] | None = None,
        factory: str = OPEN_JUDGE,
    ) -> None:
        self.workers = workers or len(os.sched_getaffinity(0))
        self.backend = self._choose_backend(backend)
        found = backends.gpus() if gpus is None else tuple(str(gpu) for gpu in gpus)
        self.gpus = found if self.backend == "cuda" else ()
        self.settings = WorkerSettings(
            policy=policy or Policy(),
            backend=self.backend,
            timing=timing,
            prepared=_PREPARED.get(self.backend, 8),
            factory=factory,
        )
        self._queue = JobQueue(max_pending or max(64, 16 * self.workers))
        self._job_timeout_s = job_timeout_s
        self._on_progress = on_progress
        self._failure: DiceError | None = None
        self._stopping = threading.Event()
        self._active: dict[int, Worker] = {}
        self._lock = threading.Lock()
        self._closed = False
        self._directory = Path(tempfile.mkdtemp(prefix="dice-pool-"))
        try:
            first = self._start(0)
        except (DiceError, WorkerDied) as error:
            self._clean()
            if isinstance(error, WorkerDied):
                raise SandboxError(f"a worker did not start: {error}") from error
            raise
        except BaseException:
            self._clean()
            raise
        self._threads = [
            threading.Thread(
                target=self._work,
                args=(index, first if index == 0 else None),
                name=f"dice-pool-{index}",
                daemon=True,
            )
            for index in range(self.workers)
        ]
        for thread in self._threads:
            thread.start()

    # -- jobs ------------------------------------------------------------------------------------

    def submit(self, job: Job) -> "Future[Verdict]":
        """Queue one job; waits while too many wait already.

        The future's exception is a UserError about the problem, or a SandboxError when the machine
        failed. Raises the pool's own error when it is broken or closed.
        """
        future: Future[Verdict] = Future()
        ticket = Ticket(key=problem_key(job.problem), job=job, future=future)
        if not self._queue.put(ticket):
            raise self._failure or SandboxError("the pool is closed")
        return future

    def map(self, jobs: Iterable[Job]) -> Iterator[Outcome]:
        """Outcomes in the order of completion; `jobs` is read only as far as there is room."""
        done: _Done = queue.SimpleQueue()
        window = self._queue.limit + self.workers
        waiting = 0
        for job in jobs:
            while waiting and (waiting >= window or not done.empty()):
                yield _outcome(*done.get())
                waiting -= 1
            future = self.submit(job)
            waiting += 1
            future.add_done_callback(partial(_put, done, job))
        for _ in range(waiting):
            yield _outcome(*done.get())

    # -- workers ---------------------------------------------------------------------------------

    def _choose_backend(self, backend: str) -> str:
        return backends.choose(backend)

    def _start_worker(self, index: int) -> Worker:
        gpu = self.gpus[index % len(self.gpus)] if self.gpus else None
        return LocalWorker(
            self.settings, directory=self._directory, gpu=gpu, on_progress=self._on_progress
        )

    def _start(self, index: int) -> Worker:
        """A new worker, which `close` can reach from then on. One more attempt if the first dies."""
        try:
            worker = self._start_worker(index)
        except WorkerDied:
            if self._stopping.is_set():
                raise
            worker = self._start_worker(index)
        with self._lock:
            self._active[index] = worker
            stopping = self._stopping.is_set()
        if stopping:
            worker.kill()
            raise WorkerDied("the pool was closed")
        return worker

    def _work(self, index: int, worker: Worker | None) -> None:
        """One thread a worker: takes jobs, replaces the worker when it dies."""
        while (ticket := self._queue.take(index)) is not None:
            if not ticket.deaths and not ticket.future.set_running_or_notify_cancel():
                continue
            try:
                worker = worker or self._start(index)
            except Exception as error:
                self._break(error, ticket)
                continue
            try:
                job: Job = ticket.job
                verdict = worker.rule(job.problem, job.candidate, self._job_timeout_s)
            except UserError as error:
                ticket.future.set_exception(error)
            except Exception as error:
                with self._lock:
                    self._active.pop(index, None)
                worker.kill()
                worker = None
                self._died_on(ticket, error)
            else:
                ticket.future.set_result(verdict)
            self._queue.holds(index, worker.held if worker is not None else ())
        if worker is not None:
            worker.close()

    def _died_on(self, ticket: Ticket, error: Exception) -> None:
        ticket.deaths += 1
        if ticket.deaths < _ATTEMPTS and not self._stopping.is_set():
            self._queue.put_back(ticket)
        else:
            ticket.future.set_exception(machine_failed(str(error)))

    def _break(self, error: Exception, ticket: Ticket) -> None:
        """No worker can be started any more: every job that waits, and every later one, fails."""
        self._failure = error if isinstance(error, DiceError) else machine_failed(str(error))
        ticket.future.set_exception(self._failure)
        self._queue.close()
        self._queue.drain(self._refuse)

    def _refuse(self, ticket: Ticket) -> None:
        error = self._failure or SandboxError("the pool was closed before this job began")
        if ticket.deaths or ticket.future.set_running_or_notify_cancel():
            ticket.future.set_exception(error)

    def pids(self) -> list[int]:
        """Process ids of the workers on this machine."""
        with self._lock:
            return [one.pid for one in self._active.values() if isinstance(one, LocalWorker)]

    # -- the end ---------------------------------------------------------------------------------

    def close(self, *, wait: bool = True) -> None:
        """End the pool. With `wait` the jobs that were submitted are finished first."""
        if self._closed:
            return
        self._closed = True
        self._queue.close()
        try:
            if wait:
                for thread in self._threads:
                    thread.join()
        finally:
            self._stopping.set()
            self._queue.drain(self._refuse)
            with self._lock:
                active = list(self._active.values())
            if any(thread.is_alive() for thread in self._threads):
                for worker in active:
                    worker.interrupt()
                for thread in self._threads:
                    thread.join(10.0)
            self._clean()

    def _clean(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)

    def __enter__(self) -> "Pool":
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(wait=kind is None)


def _put(done: "_Done", job: Job, future: "Future[Verdict]") -> None:
    done.put((job, future))


def _outcome(job: Job, future: "Future[Verdict]") -> Outcome:
    if future.cancelled():
        return Outcome(job=job, error=SandboxError("the job was cancelled"))
    error = future.exception()
    if error is None:
        return Outcome(job=job, verdict=future.result())
    if isinstance(error, DiceError):
        return Outcome(job=job, error=error)
    raise error
