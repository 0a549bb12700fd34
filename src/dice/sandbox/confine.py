"""Applied by a child to itself, before anything hostile runs: limits, paths, system calls.

Runs in a forked copy of the warm parent (or in the launcher of a command), single-threaded. Everything
here keeps its hold over root: root's capabilities are dropped, and neither Landlock nor seccomp asks
who the caller is.
"""

import os
import resource
import site
import sys
from dataclasses import dataclass

from dice.sandbox import gpu as nvidia
from dice.sandbox import landlock, seccomp, syscalls
from dice.sandbox.records import Access, Limits

_MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Confined:
    """What took effect. `listener` is the descriptor to hand to the supervisor."""

    active: tuple[str, ...]
    missing: tuple[str, ...]
    listener: int | None


def python_roots() -> tuple[str, ...]:
    """Directories a Python process reads while importing: never the user's own, unless on no other."""
    package = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    roots = [sys.prefix, sys.base_prefix, sys.exec_prefix, *site.getsitepackages(), package]
    torch = sys.modules.get("torch")
    if torch is not None and torch.__file__:
        roots.append(os.path.dirname(os.path.dirname(torch.__file__)))
    return tuple(dict.fromkeys(os.path.realpath(root) for root in roots if os.path.isdir(root)))


SYSTEM_READABLE = (
    "/usr",
    "/lib",
    "/lib64",
    "/bin",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/sys/devices/system",
    "/proc/cpuinfo",
    "/proc/meminfo",
    "/proc/stat",
    "/proc/sys/vm/overcommit_memory",
    "/dev/urandom",
    "/dev/random",
    "/dev/zero",
)


def set_limits(
    limits: Limits, *, base_memory_bytes: int = 0, processes: bool = False, gpu: bool = False
) -> None:
    """Resource limits of the calling process. Raises OSError or ValueError.

    CUDA reserves address space by the terabyte, so with `gpu` only the watchdog limits memory.
    """

    def cap(which: int, soft: int, hard: int | None = None) -> None:
        ceiling = resource.getrlimit(which)[1]
        hard = soft if hard is None else hard
        if ceiling != resource.RLIM_INFINITY:
            soft, hard = min(soft, ceiling), min(hard, ceiling)
        resource.setrlimit(which, (soft, hard))

    cap(resource.RLIMIT_CPU, limits.cpu_s, limits.cpu_s + 2)
    if not gpu:
        cap(resource.RLIMIT_AS, base_memory_bytes + limits.memory_mib * _MIB)
    cap(resource.RLIMIT_FSIZE, limits.file_size_mib * _MIB)
    cap(resource.RLIMIT_NOFILE, limits.open_files)
    cap(resource.RLIMIT_CORE, 0)
    if processes and os.getuid() != 0:
        # counts everything this user runs, so it is a backstop here; the supervisor counts exactly
        cap(resource.RLIMIT_NPROC, 4096)


def address_space_bytes() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")


def confine_worker(limits: Limits, access: Access, *, gpu: bool = False) -> Confined:
    """Confine this forked worker for good. Raises OSError when even the plain limits fail."""
    active, missing = ["limits"], []
    syscalls.prctl(syscalls.PR_SET_PDEATHSIG, 9)
    syscalls.prctl(syscalls.PR_SET_NO_NEW_PRIVS, 1)
    base_memory_bytes = address_space_bytes()
    devices = nvidia.device_files() if gpu else ()
    more = nvidia.READABLE if gpu else ()
    own = Access(
        readable=(
            *SYSTEM_READABLE,
            *python_roots(),
            f"/proc/{os.getpid()}",
            *more,
            *access.readable,
        ),
        executable=access.executable,
        # CUDA names its threads, and does not start where it cannot
        writable=(
            "/dev/null",
            *devices,
            *([f"/proc/{os.getpid()}/task"] if gpu else ()),
            *access.writable,
        ),
    )
    try:
        landlock.restrict(own)
        active.append("landlock")
    except OSError:
        missing.append("landlock")
    if os.getuid() == 0:
        try:
            syscalls.drop_capabilities()
            active.append("capabilities")
        except OSError:
            missing.append("capabilities")
    set_limits(limits, base_memory_bytes=base_memory_bytes, gpu=gpu)
    listener = None
    try:
        listener = seccomp.install(notify=True, gpu=gpu)
        active += ["seccomp", "seccomp_record"]
    except OSError:
        try:
            seccomp.install(notify=False, gpu=gpu)
            active.append("seccomp")
            missing.append("seccomp_record")
        except OSError:
            missing += ["seccomp", "seccomp_record"]
    return Confined(active=tuple(active), missing=tuple(missing), listener=listener)
