"""The runtime library through ctypes: modes, and what its checks found."""

import ctypes
import json
from collections.abc import Callable
from dataclasses import dataclass, field

from dice.errors import ToolchainError
from dice.toolchain.prelude import Progress, ensure_prelude, library_path
from dice.toolchain.source import BuildOptions

_BUFFER_BYTES = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class Diagnostic:
    """One fault that the runtime saw. `thread_block` and `thread` are CUDA indices (x, y, z)."""

    kind: str
    """out_of_bounds | uninitialised | race | divergent_barrier | warp_mask | ..."""
    message: str
    kernel: str = ""
    thread_block: tuple[int, int, int] | None = None
    thread: tuple[int, int, int] | None = None
    array: str = ""
    bytes: int = 0
    details: dict[str, object] = field(default_factory=dict)


class Runtime:
    """The loaded runtime of this process. Starts no threads; launches start them when they need them.

    `set_check(True)` before the first tensor that kernels see: it installs the allocator that lets the
    checks know every tensor's extent and that fills new memory with a recognisable value.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        try:
            self._library = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(f"the SIMT runtime cannot be loaded: {error}") from error
        library = self._library
        for name in ("simt_diag_json", "simt_warning_json"):
            function = getattr(library, name)
            function.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_size_t]
            function.restype = ctypes.c_int
        library.simt_alloc_poison.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
        library.simt_launch_count.restype = ctypes.c_uint64
        library.simt_set_step_limit.argtypes = [ctypes.c_uint64]

    def set_check(self, on: bool) -> None:
        """Turn the checks on or off; on installs the checking allocator over torch's, for good."""
        self._library.simt_set_mode(int(on))
        if on:
            self._library.simt_alloc_install()

    def set_threads(self, count: int) -> None:
        """OS threads that a launch may use."""
        self._library.simt_set_threads(count)

    def set_skip_launches(self, on: bool) -> None:
        """Have every launch do nothing: what is right all the same was not made by kernels."""
        self._library.simt_set_skip_launches(int(on))

    def set_step_limit(self, steps: int) -> None:
        """Abort a launch after so many barriers, warp operations and checked accesses per thread block;
        0 is no limit."""
        self._library.simt_set_step_limit(steps)

    def launch_count(self) -> int:
        """Kernel launches since the process started."""
        return int(self._library.simt_launch_count())

    def poison(self, address: int, size: int) -> None:
        """Mark `size` bytes as never written."""
        self._library.simt_alloc_poison(address, size)

    def diagnostics(self) -> list[Diagnostic]:
        """The faults found since the last `clear`, in order."""
        count = int(self._library.simt_diag_count())
        return [_read(self._library.simt_diag_json, index) for index in range(count)]

    def warnings(self) -> list[Diagnostic]:
        """What works on hardware although CUDA leaves it undefined."""
        count = int(self._library.simt_warning_count())
        return [_read(self._library.simt_warning_json, index) for index in range(count)]

    def clear(self) -> None:
        """Forget diagnostics and warnings."""
        self._library.simt_diag_clear()


def _read(function: Callable[..., int], index: int) -> Diagnostic:
    """One record of the runtime; asks again with a larger buffer where it is long."""
    size = _BUFFER_BYTES
    while True:
        buffer = ctypes.create_string_buffer(size)
        length = function(index, buffer, size)
        if length < size:
            return parse_diagnostic(buffer.value.decode(errors="replace"))
        size = length + 1


def parse_diagnostic(text: str) -> Diagnostic:
    """A diagnostic from the runtime's JSON; text that is no JSON becomes the message."""
    try:
        record = json.loads(text)
    except ValueError:
        return Diagnostic(kind="unreadable", message=text)
    block, thread = record.pop("block", None), record.pop("thread", None)
    return Diagnostic(
        kind=str(record.pop("kind", "unknown")),
        message=str(record.pop("message", "")),
        kernel=str(record.pop("kernel", "")),
        thread_block=None if not block else (block[0], block[1], block[2]),
        thread=None if not thread else (thread[0], thread[1], thread[2]),
        array=str(record.pop("array", "")),
        bytes=int(record.pop("bytes", 0) or 0),
        details=record,
    )


_loaded: dict[str, Runtime] = {}


def load(options: BuildOptions | None = None, on_progress: Progress | None = None) -> Runtime:
    """Load the runtime of these options into this process (once), building it if need be.

    Imports torch first, whose libraries it links. A process forked afterwards has it loaded.
    """
    import torch  # noqa: F401

    options = options or BuildOptions()
    ensure_prelude(options, on_progress)
    path = str(library_path(options))
    if path not in _loaded:
        _loaded[path] = Runtime(path)
    return _loaded[path]


def loaded() -> Runtime | None:
    """The runtime that this process has loaded, if any."""
    return next(iter(_loaded.values()), None)
