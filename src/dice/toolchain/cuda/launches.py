"""The launch library of this process, through ctypes: what was launched, and launches that do nothing."""

import ctypes
from functools import cache
from pathlib import Path

from dice.errors import ToolchainError


class Launches:
    """The loaded launch library. Needs torch's CUDA libraries in the process."""

    def __init__(self, path: Path) -> None:
        try:
            self._library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        except OSError as error:
            raise ToolchainError(f"the launch library cannot be loaded: {error}") from error
        self._library.dice_cuda_launch_count.restype = ctypes.c_ulonglong
        self._library.dice_cuda_launched.restype = ctypes.c_char_p

    def skip(self, on: bool) -> None:
        """Whether every launch does nothing and reports success."""
        self._library.dice_cuda_set_skip(int(on))

    def count(self) -> int:
        """Kernel launches of split extensions since the process started."""
        return int(self._library.dice_cuda_launch_count())

    def kernels(self) -> list[str]:
        """Mangled names of the kernels launched so far."""
        return sorted(self._library.dice_cuda_launched().decode().split())


@cache
def load(path: str) -> Launches:
    """Load the launch library, once per process."""
    return Launches(Path(path))
