"""A pool's worker as a process of this machine."""

import contextlib
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Pipe
from pathlib import Path
from typing import Any

from dice.errors import SandboxError
from dice.types import Candidate, Problem, Verdict
from dice.verify.pool_worker import WorkerSettings

START_S = 600.0
"""For the start of a worker: the first one on a machine builds its precompiled header."""


class WorkerDied(Exception):
    """A worker ended, or stopped answering. Says nothing about a candidate."""


class LocalWorker:
    """One process with a judge in it. Used by one thread at a time."""

    def __init__(
        self,
        settings: WorkerSettings,
        *,
        directory: Path,
        gpu: str | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        """Start it and wait until it is ready. Raises UserError or WorkerDied.

        Its temporary files are in a new directory under `directory`. It sees only the GPU `gpu`.
        """
        self._directory = tempfile.mkdtemp(dir=directory, prefix="worker-")
        self.held: tuple[str, ...] = ()
        package = Path(__file__).resolve().parents[2]
        paths = [str(package), *(path for path in sys.path if os.path.isdir(path))]
        environment = {
            **os.environ,
            "TMPDIR": self._directory,
            "PYTHONPATH": os.pathsep.join(paths),
        }
        if gpu is not None:
            environment["CUDA_VISIBLE_DEVICES"] = gpu
        self._connection, theirs = Pipe()
        self._lock = threading.Lock()
        self._lifeline: int | None
        lifeline, self._lifeline = os.pipe()
        command = [sys.executable, "-P", "-m", "dice.verify.pool_worker"]
        self._process = subprocess.Popen(
            [*command, str(theirs.fileno()), str(lifeline)],
            stdin=subprocess.DEVNULL,
            pass_fds=[theirs.fileno(), lifeline],
            env=environment,
            start_new_session=True,
        )
        theirs.close()
        os.close(lifeline)
        try:
            self._connection.send(settings)
            while (answer := self._receive(START_S))[0] == "progress":
                if on_progress is not None:
                    on_progress(answer[1])
            if answer[0] == "user_error":
                raise answer[1]
        except BaseException as error:
            self.kill()
            if isinstance(error, OSError):
                raise WorkerDied(f"a worker did not start: {error}") from error
            raise

    @property
    def pid(self) -> int:
        return self._process.pid

    def rule(self, problem: Problem, candidate: Candidate, timeout_s: float) -> Verdict:
        """One verdict. Raises UserError for a problem that cannot be used, else WorkerDied."""
        try:
            self._connection.send((problem, candidate))
        except OSError as error:
            raise WorkerDied(f"a worker ended: {error}") from error
        kind, value, self.held = self._receive(timeout_s)
        if kind == "user_error":
            raise value
        assert isinstance(value, Verdict)
        return value

    def _receive(self, timeout_s: float) -> Any:
        try:
            if not self._connection.poll(timeout_s):
                raise WorkerDied(f"a worker did not answer in {timeout_s:.0f} s")
            answer = self._connection.recv()
        except (EOFError, OSError) as error:
            code = None
            with contextlib.suppress(subprocess.TimeoutExpired):
                code = self._process.wait(5)
            raise WorkerDied(f"a worker ended with exit code {code}") from error
        if answer[0] == "broken":
            raise WorkerDied(answer[1])
        return answer

    def close(self, timeout_s: float = 10.0) -> None:
        """Let it end by itself, and make it end if it does not."""
        self._connection.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout_s)
        self.kill()

    def interrupt(self) -> None:
        """Make it end; for another thread than the one that uses it, which then gets WorkerDied."""
        with self._lock:
            lifeline, self._lifeline = self._lifeline, None
        if lifeline is not None:
            os.close(lifeline)

    def kill(self) -> None:
        """End it now; its warm parent and all children follow."""
        self.interrupt()
        try:
            self._process.wait(5.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._connection.close()
        deadline = time.monotonic() + 5.0
        while time.monotonic() < deadline and self._has_warm_parent():
            time.sleep(0.01)
        shutil.rmtree(self._directory, ignore_errors=True)

    def _has_warm_parent(self) -> bool:
        """Whether it is still there: it removes its directory as its last act."""
        with contextlib.suppress(OSError):
            return any(name.startswith("dice-sandbox-") for name in os.listdir(self._directory))
        return False


def machine_failed(text: str) -> SandboxError:
    """What a job gets when its workers died: no verdict."""
    return SandboxError(f"no verdict, the machine failed: {text}")
