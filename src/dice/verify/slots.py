"""Who may use a GPU, and when: several candidates at once to be checked, one alone to be timed.

A readers-writer lock of two files per device. The kernel releases a lock when its holder dies, however
that comes about, so nothing stale is ever left. Fair: who waits holds the turnstile, and those who come
later queue behind it, so a steady stream of checks does not starve a timing. Processes that share the
cache directory share the locks, whether or not they belong to one pool.
"""

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from pathlib import Path

from dice.toolchain.cache import cache_root, file_lock

TURNS = 6
"""Processes that launch work on one GPU at once."""
_RETRY_S = 0.005


def visible_device() -> str:
    """The device that this process calls 0, by the name CUDA_VISIBLE_DEVICES has for it."""
    return os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0].strip() or "0"


class GpuSlots:
    """The locks of one GPU. Threads may share an object; a thread that holds one must not ask again.

    Args:
        device: index or UUID of the GPU; `visible_device()` when left out.
        directory: where the lock files are; below the cache directory when left out.
    """

    def __init__(self, device: str | None = None, *, directory: Path | None = None) -> None:
        self.device = visible_device() if device is None else device
        folder = (directory or cache_root() / "gpu").absolute()
        folder.mkdir(parents=True, exist_ok=True)
        name = "".join(c if c.isalnum() or c == "-" else "_" for c in self.device)
        self._turnstile, self._room = folder / f"{name}.turnstile", folder / f"{name}.room"

    @contextlib.contextmanager
    def checking(self) -> Iterator[None]:
        """Use the GPU beside others. Waits while somebody times or waits to."""
        with self._hold(fcntl.LOCK_SH):
            yield

    @contextlib.contextmanager
    def checking_in_turn(self, places: int = TURNS) -> Iterator[None]:
        """`checking`, with one of a few places for those who launch work right now.

        A GPU switches between processes by time slices, so what many do at once takes longer for each
        and no less for all.
        """
        with self._turn(places), self.checking():
            yield

    @contextlib.contextmanager
    def _turn(self, places: int) -> Iterator[None]:
        start = os.getpid() % places
        while True:
            for step in range(places):
                path = self._room.with_suffix(f".turn{(start + step) % places}")
                place = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
                try:
                    fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    os.close(place)
                    continue
                try:
                    yield
                finally:
                    os.close(place)
                return
            time.sleep(_RETRY_S)

    @contextlib.contextmanager
    def timing(self) -> Iterator[None]:
        """Use the GPU alone. Waits for those inside; nobody enters meanwhile."""
        with self._hold(fcntl.LOCK_EX):
            yield

    @contextlib.contextmanager
    def _hold(self, kind: int) -> Iterator[None]:
        with file_lock(self._turnstile):
            room = os.open(self._room, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                fcntl.flock(room, kind)
            except BaseException:
                os.close(room)
                raise
        try:
            yield
        finally:
            os.close(room)
