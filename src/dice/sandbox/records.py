"""What a sandboxed child may use, and what became of it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one child, its descendants included where the kernel can count them."""

    wall_s: float = 30.0
    """Wall-clock seconds for the whole child; the supervisor may be given shorter ones per request."""
    cpu_s: int = 60
    memory_mib: int = 4096
    """Memory beyond what the warm parent already holds (address space and resident memory)."""
    threads: int = 64
    """Threads of a worker, or processes of a command."""
    file_size_mib: int = 512
    disk_mib: int = 1024
    """Everything in the private directory together."""
    open_files: int = 256
    output_kib: int = 64
    """Of stdout and stderr each; the rest is read and dropped."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Incident:
    """Something the child tried that the sandbox watches for; `refused` unless it was harmless."""

    kind: str
    """"process", "exec", "network", "signal", "memory_snooping", "write_outside", "read_outside",
    "privilege"."""
    detail: str
    refused: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildResult:
    """How a child ended."""

    exit_code: int | None
    """None when a signal ended it."""
    signal: int | None = None
    timed_out: bool = False
    limit: str | None = None
    """The limit that ended it: "wall", "cpu", "memory", "threads", "disk"; None otherwise."""
    peak_memory_mib: float = 0.0
    wall_s: float = 0.0
    cpu_s: float = 0.0
    stdout: str = ""
    stderr: str = ""
    incidents: tuple[Incident, ...] = ()

    @property
    def ok(self) -> bool:
        return self.exit_code == 0 and self.limit is None


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """Paths a child may use; everything else is refused where Landlock is there."""

    readable: tuple[str, ...] = ()
    writable: tuple[str, ...] = ()
    executable: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Features:
    """Protections of this machine. `missing` maps a protection to what its absence allows."""

    active: tuple[str, ...] = ()
    missing: dict[str, str] = field(default_factory=dict)
