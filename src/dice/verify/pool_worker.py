"""One worker of a pool: a judge and the problems it has prepared. `Bench` is used by every kind of pool.

Run as a program (`python -m dice.verify.pool_worker CONNECTION LIFELINE`) it answers over a connection
until that closes. When the pool's process dies, however that comes about, the lifeline closes and the
worker ends at once, with its files; its warm parent and every child follow it.
"""

import contextlib
import importlib
import os
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection
from typing import Any

from dice.errors import UserError
from dice.toolchain.cache import digest
from dice.types import Candidate, Problem, Verdict
from dice.verify.backends import Judging
from dice.verify.policy import Policy

OPEN_JUDGE = "dice.verify.backends:open_judge"


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSettings:
    """What a worker needs to know before its first job."""

    policy: Policy
    backend: str = "auto"
    timing: bool = False
    prepared: int = 8
    """Problems kept prepared; on a GPU each of them holds a process with GPU memory."""
    factory: str = OPEN_JUDGE
    """Opens the judge: "module:function", called as `open_judge` is."""


def problem_key(problem: Problem) -> str:
    """Names a problem by what matters for preparing it."""
    return digest(problem.name, problem.code, problem.path or "")


class Bench:
    """A judge with its prepared problems, the least recently used dropped first."""

    def __init__(
        self, settings: WorkerSettings, on_progress: Callable[[str], None] | None = None
    ) -> None:
        module, _, function = settings.factory.partition(":")
        opener = getattr(importlib.import_module(module), function)
        self._judge: Judging = opener(
            settings.policy,
            backend=settings.backend,
            timing=settings.timing,
            on_progress=on_progress,
        )
        self._limit = max(1, settings.prepared)
        self._prepared: OrderedDict[str, Any] = OrderedDict()

    def rule(self, problem: Problem, candidate: Candidate) -> Verdict:
        """Raises ProblemError for a problem that cannot be used; others for a broken machine."""
        key = problem_key(problem)
        if key not in self._prepared:
            while len(self._prepared) >= self._limit:
                self._prepared.popitem(last=False)
            self._prepared[key] = self._judge.prepare(problem)
        self._prepared.move_to_end(key)
        return self._judge.judge(self._prepared[key], candidate)

    def held(self) -> tuple[str, ...]:
        """Keys of the problems that are prepared."""
        return tuple(self._prepared)

    def close(self) -> None:
        self._prepared.clear()
        self._judge.close()


def serve(connection: Connection, settings: WorkerSettings) -> None:
    """Answer jobs until the connection closes.

    Answers are ("progress", text), ("ready", None), ("verdict", verdict, keys held), ("user_error",
    exception, keys held) and, last of all, ("broken", text).
    """
    bench = None
    try:
        bench = Bench(settings, lambda text: connection.send(("progress", text)))
        connection.send(("ready", None))
        while True:
            problem, candidate = connection.recv()
            try:
                verdict = bench.rule(problem, candidate)
            except UserError as error:
                connection.send(("user_error", error, bench.held()))
            else:
                connection.send(("verdict", verdict, bench.held()))
    except EOFError:
        pass
    except UserError as error:
        connection.send(("user_error", error, ()))
    except Exception as error:
        connection.send(("broken", f"{type(error).__name__}: {error}"))
    finally:
        if bench is not None:
            bench.close()


def _end_with(lifeline: int, directory: str, pool: int) -> None:
    """Wait until nobody holds the other end any more, then end this process and what it started."""
    with contextlib.suppress(OSError):
        os.read(lifeline, 1)
    deadline = time.monotonic() + 2.0
    while True:
        for child in _children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(child, signal.SIGKILL)  # grandchildren die with their parents
        shutil.rmtree(directory, ignore_errors=True)
        if not os.path.exists(directory) or time.monotonic() > deadline:
            break
        time.sleep(0.02)
    if os.getppid() != pool:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.dirname(directory))  # nobody else will, and the last worker can
    os._exit(1)


def _children() -> list[int]:
    found = []
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError), open(f"/proc/self/task/{task}/children") as file:
            found += [int(word) for word in file.read().split()]
    return found


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the pool decides when its workers end
    connection, lifeline = Connection(int(sys.argv[1])), int(sys.argv[2])
    directory = tempfile.gettempdir()
    watch = (lifeline, directory, os.getppid())
    threading.Thread(target=_end_with, args=watch, daemon=True).start()
    settings: WorkerSettings = connection.recv()
    serve(connection, settings)


if __name__ == "__main__":
    main()
