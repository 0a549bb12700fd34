"""The next candidate's process, started while the current one is being built.

Starting CUDA in a process takes longer than checking most candidates, and the driver does it for one process
at a time. A worker on a GPU therefore starts CUDA before it hears of a candidate, and says "warm"; `Standby`
keeps one such worker ahead. It is as confined as any, belongs to one candidate alone, and knows nothing until
it is taken.
"""

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from dice.errors import SandboxError
from dice.sandbox import Child

WARM = {"stage": "warm"}
"""What a worker sends once it is ready for a candidate."""
START_S = 120.0


class Standby:
    """Hands out warm workers. One caller at a time.

    Args:
        spawn: starts a worker that will send `WARM`.
        beside: a context to start in, where starting disturbs others (a timing on the same GPU).
    """

    def __init__(
        self, spawn: Callable[[], Child], beside: Callable[[], AbstractContextManager[None]]
    ) -> None:
        self._spawn, self._beside = spawn, beside
        self._thread: threading.Thread | None = None
        self._child: Child | None = None
        self._error: Exception | None = None

    def take(self) -> Child:
        """A warm worker, the caller's from now on; the next one is started right away.

        Raises SandboxError when a worker cannot be started or ends before it is warm: the machine's fault,
        since it has not seen a candidate.
        """
        if self._thread is None:
            self._begin()
        child = self._join()
        if child is None:  # whatever it was may have passed
            self._begin()
            child = self._join()
        if child is None:
            raise SandboxError(f"no worker process could be started: {self._error}")
        self._begin()
        return child

    def close(self) -> None:
        """End the worker that waits."""
        child = self._join()
        if child is not None:
            child.close()

    def _begin(self) -> None:
        self._thread = threading.Thread(target=self._start, name="dice-standby", daemon=True)
        self._thread.start()

    def _join(self) -> Child | None:
        if self._thread is None:
            return None
        self._thread.join()
        self._thread = None
        child, self._child = self._child, None
        return child

    def _start(self) -> None:
        try:
            with self._beside():
                self._child = _warmed(self._spawn())
        except Exception as error:
            self._error = error


def _warmed(child: Child) -> Child:
    """Answer the worker's watched system calls until it is warm."""
    try:
        message = child.receive(START_S)
    except BaseException:
        child.close()
        raise
    if message != WARM:
        ending = child.finish()
        child.close()
        tail = ending.stderr.strip().splitlines()[-1:] or [""]
        raise SandboxError(
            f"a worker ended before it was ready ({ending.signal or ending.exit_code}) {tail[0][:300]}"
        )
    return child
