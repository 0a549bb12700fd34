"""A content-addressed cache of directories that several processes may use at once.

An entry is a directory that appears by one rename, so it is either whole or absent: a builder that is
killed leaves a folder under `tmp/`, which a later eviction removes. Reading an entry refreshes its
modification time; eviction removes the least recently used entries.
"""

import contextlib
import fcntl
import hashlib
import os
import shutil
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

STALE_S = 24 * 3600
SIZE_LIMIT_MIB = 4096
EVICT_EVERY = 64


def cache_root(configured: str | Path | None = None) -> Path:
    """`configured`, else `$DICE_CACHE`, else `~/.cache/dice`."""
    chosen = configured or os.environ.get("DICE_CACHE") or Path.home() / ".cache" / "dice"
    return Path(chosen).expanduser().absolute()


def digest(*parts: str | bytes) -> str:
    """Hex digest of the parts; their boundaries count."""
    hasher = hashlib.sha256()
    for part in parts:
        data = part.encode() if isinstance(part, str) else part
        hasher.update(len(data).to_bytes(8, "little"))
        hasher.update(data)
    return hasher.hexdigest()[:40]


@contextlib.contextmanager
def file_lock(path: Path) -> Iterator[None]:
    """Hold an exclusive lock on `path`. The kernel releases it when the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


@dataclass(frozen=True, slots=True)
class Cache:
    """Directories under `root/<kind>/<key>`; `limit_mib` bounds each kind that is evicted."""

    root: Path
    limit_mib: int = SIZE_LIMIT_MIB

    def find(self, kind: str, key: str) -> Path | None:
        """The entry, marked as used now, or None."""
        path = self.root / kind / key
        try:
            os.utime(path)
        except FileNotFoundError:
            return None
        return path

    @contextlib.contextmanager
    def workspace(self) -> Iterator[Path]:
        """A fresh folder on the cache's file system, removed afterwards unless published."""
        path = self.root / "tmp" / f"{os.getpid()}-{uuid.uuid4().hex}"
        path.mkdir(parents=True)
        try:
            yield path
        finally:
            shutil.rmtree(path, ignore_errors=True)

    def publish(self, built: Path, kind: str, key: str) -> Path:
        """Make the folder `built` the entry; if another process was first, its entry stands."""
        path = self.root / kind / key
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            built.rename(path)
        except OSError:
            if not path.is_dir():
                raise
        if int(key[:8], 16) % EVICT_EVERY == 0:
            self.evict(kind)
        return path

    def evict(self, kind: str) -> int:
        """Remove least recently used entries over the size limit, and stale workspaces.

        Returns the number of entries removed.
        """
        self._remove_stale()
        entries = []
        with contextlib.suppress(FileNotFoundError):
            for one in os.scandir(self.root / kind):
                with contextlib.suppress(FileNotFoundError):
                    entries.append((one.stat().st_mtime, _size(Path(one.path)), Path(one.path)))
        total = sum(size for _, size, _ in entries)
        removed = 0
        for _, size, path in sorted(entries):
            if total <= self.limit_mib * 2**20:
                break
            doomed = self.root / "tmp" / f"evicted-{uuid.uuid4().hex}"
            doomed.parent.mkdir(parents=True, exist_ok=True)
            with contextlib.suppress(OSError):
                path.rename(doomed)
                removed += 1
            shutil.rmtree(doomed, ignore_errors=True)
            total -= size
        return removed

    def _remove_stale(self) -> None:
        horizon = time.time() - STALE_S
        with contextlib.suppress(FileNotFoundError):
            for one in os.scandir(self.root / "tmp"):
                with contextlib.suppress(FileNotFoundError):
                    if one.stat().st_mtime < horizon:
                        shutil.rmtree(one.path, ignore_errors=True)


def _size(path: Path) -> int:
    total = 0
    for one in path.iterdir():
        with contextlib.suppress(FileNotFoundError):
            total += one.stat().st_size
    return total
