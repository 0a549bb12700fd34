"""What the soak test looks at from outside: processes, descriptors, memory and what is left behind."""

import ctypes
import os
import statistics
import time
from dataclasses import dataclass, field
from pathlib import Path

from dice.toolchain.cache import cache_root
from dice.verify.pool import Pool

WORKER_MIB = 2048
GROWTH_MIB = 64.0
GROWTH_FDS = 8
SAMPLES = 12
"""Fewer say nothing about growth."""
_PLANTED = ("/tmp/dice_planted_file", "/dev/shm/dice_left_behind", "/tmp/dice_escaped")
_SET_CHILD_SUBREAPER = 36


def adopt_orphans() -> None:
    """A process whose parent ends becomes a child of this one, so that it is found."""
    ctypes.CDLL(None).prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tree(root: int) -> list[int]:
    """Living processes below `root`, zombies not among them."""
    children: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            try:
                state, parent = (
                    Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[:2]
                )
            except OSError:
                continue
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(entry))
    found, todo = [], [root]
    while todo:
        below = children.get(todo.pop(), [])
        found += below
        todo += below
    return found


def name_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()[:120]
    except OSError:
        return "ended meanwhile"


def memory_mib(pid: int) -> float | None:
    """Its own memory: anonymous and shared, not files."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return None
    parts = [line.split()[1] for line in lines if line.startswith(("RssAnon", "RssShmem"))]
    return sum(map(int, parts)) / 1024


def pss_mib(pid: int) -> float:
    """Its share of the memory it uses, files too."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0.0


def descriptors(pid: int) -> int | None:
    try:
        return len(os.listdir(f"/proc/{pid}/fd"))
    except OSError:
        return None


@dataclass
class Growth:
    """Samples of the processes that live as long as the pool."""

    pool: Pool
    every: int
    every_pid: set[int] = field(default_factory=set)
    _steps: int = 0
    _samples: dict[tuple[str, int], list[tuple[float, int]]] = field(default_factory=dict)

    def step(self) -> None:
        """Call once for each outcome."""
        workers = self.pool.pids()
        self.every_pid.update(workers)
        self._steps += 1
        if self._steps % self.every:
            return
        self._sample("pool", os.getpid())
        for worker in workers:
            self._sample("worker", worker)
            for child in _warm_parents(worker):
                self._sample("warm parent", child)

    def _sample(self, role: str, pid: int) -> None:
        mib, fds = memory_mib(pid), descriptors(pid)
        if mib is not None and fds is not None:
            self._samples.setdefault((role, pid), []).append((mib, fds))

    def idle_mib(self) -> list[float]:
        """Of each worker with everything below it. Call while no job runs."""
        return [
            round(sum(pss_mib(pid) for pid in (worker, *tree(worker))), 1)
            for worker in self.pool.pids()
        ]

    def growth(self) -> dict[str, dict[str, float]]:
        """From the second quarter of the samples to the last, of each role the most.

        Of memory the median; of descriptors the minimum, since a job in progress holds some.
        """
        found: dict[str, dict[str, float]] = {}
        for (role, _), samples in self._samples.items():
            if len(samples) < SAMPLES:
                continue
            quarter = len(samples) // 4
            early, late = samples[quarter : 2 * quarter], samples[-quarter:]
            mib = statistics.median(m for m, _ in late) - statistics.median(m for m, _ in early)
            fds = float(min(f for _, f in late) - min(f for _, f in early))
            most = found.setdefault(role, {"MiB": mib, "descriptors": fds})
            most["MiB"] = round(max(most["MiB"], mib), 2)
            most["descriptors"] = max(most["descriptors"], fds)
        return found

    def complaints(self, idle_mib: list[float]) -> list[str]:
        found = [f"an idle worker has {mib} MiB" for mib in idle_mib if mib > WORKER_MIB]
        for role, grown in self.growth().items():
            if grown["MiB"] > GROWTH_MIB:
                found.append(f"{role}: memory grew by {grown['MiB']} MiB")
            if grown["descriptors"] > GROWTH_FDS:
                found.append(f"{role}: {grown['descriptors']} more descriptors")
        return found


def _warm_parents(worker: int) -> list[int]:
    try:
        words = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    except OSError:
        return []
    return [int(word) for word in words if "zygote_server" in name_of(int(word))]


@dataclass(frozen=True)
class Outside:
    """What is on the machine beside the run's own directory."""

    shared: frozenset[str]
    planted: frozenset[str]

    @classmethod
    def now(cls) -> "Outside":
        shared = frozenset(os.listdir("/dev/shm")) if os.path.isdir("/dev/shm") else frozenset()
        return cls(shared=shared, planted=frozenset(p for p in _PLANTED if os.path.exists(p)))


def left_behind(
    before: Outside, own: Path, workers: set[int], patience_s: float = 5.0
) -> list[str]:
    """Everything of a closed pool that is still there."""
    deadline = time.monotonic() + patience_s
    while time.monotonic() < deadline and tree(os.getpid()):
        time.sleep(0.05)
    found = [f"process {pid} is left: {name_of(pid)}" for pid in tree(os.getpid())]
    found += [f"temporary {path} is left" for path in sorted(own.rglob("*"))]
    after = Outside.now()
    found += [f"shared memory {name} is left" for name in sorted(after.shared - before.shared)]
    found += [f"{name} was written" for name in sorted(after.planted - before.planted)]
    spaces = cache_root() / "tmp"
    if spaces.is_dir():
        owners = {str(pid) for pid in workers}
        names = sorted(name for name in os.listdir(spaces) if name.partition("-")[0] in owners)
        found += [f"workspace {spaces / name} is left" for name in names]
    return found
