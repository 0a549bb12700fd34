"""How much memory a device has left, and a refusal before it is asked for more.

On a CPU the smaller of the system's available memory and what the process's control group (v2) still
allows; page cache counts as free. Not covered: limits of cgroup v1, `ulimit -v`.
"""

from pathlib import Path

import torch

from dice.errors import ModelError

_MEMINFO = Path("/proc/meminfo")
_CGROUPS = Path("/sys/fs/cgroup")


def available_bytes(device: torch.device | str) -> int | None:
    """Bytes that can still be allocated; `None` where nobody says."""
    device = torch.device(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    if device.type != "cpu":
        return None
    known = [bytes_ for bytes_ in (_system_bytes(), _cgroup_bytes()) if bytes_ is not None]
    return min(known, default=None)


def require_memory(needed: int, device: torch.device | str, what: str, advice: str) -> None:
    """Refuses what would not fit.

    Raises:
        ModelError: `what` needs more bytes than the device has left; `advice` says what to do.
    """
    free = available_bytes(device)
    if free is not None and needed > free:
        raise ModelError(
            f"too little memory: {what} needs {gib(needed)}, {torch.device(device).type} has "
            f"{gib(free)} left; {advice}"
        )


def gib(size: int) -> str:
    """A number of bytes for people."""
    return f"{size / 2**30:.1f} GiB"


def _system_bytes() -> int | None:
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    available = next((line for line in lines if line.startswith("MemAvailable:")), None)
    return int(available.split()[1]) * 1024 if available else None


def _cgroup_bytes() -> int | None:
    """The tightest limit among the process's group and its ancestors."""
    try:
        own = Path("/proc/self/cgroup").read_text(encoding="ascii").strip().rpartition("::")[2]
    except OSError:
        return None
    left = []
    group = _CGROUPS / own.lstrip("/")
    for folder in (group, *group.parents):
        if not folder.is_relative_to(_CGROUPS):
            break
        try:
            limit = (folder / "memory.max").read_text(encoding="ascii").strip()
            used = int((folder / "memory.current").read_text(encoding="ascii"))
            stat = (folder / "memory.stat").read_text(encoding="ascii").split()
        except (OSError, ValueError):
            continue
        if limit != "max":
            cache = int(dict(zip(stat[::2], stat[1::2], strict=True)).get("inactive_file", 0))
            left.append(max(0, int(limit) - used + cache))
    return min(left, default=None)
