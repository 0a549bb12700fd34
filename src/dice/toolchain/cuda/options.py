"""How to build for a GPU, and which GPU."""

import shutil
import subprocess
from dataclasses import dataclass
from functools import cache

DEFAULT_ARCHITECTURE = "sm_90"


@dataclass(frozen=True, slots=True, kw_only=True)
class CudaOptions:
    """How to build an extension for a GPU."""

    architecture: str | None = None
    """"sm_90", say; None is this machine's GPU, else sm_90."""
    allow_stock: bool = True
    """Whether what does not split may take the stock path, which costs a minute."""
    always_stock: bool = False
    """Have torch build everything itself, to compare with."""
    timeout_s: float = 60.0
    stock_timeout_s: float = 400.0
    memory_mib: int = 8192
    cache_dir: str | None = None
    """None is `$DICE_CACHE`, else `~/.cache/dice`."""
    use_cache: bool = True

    @property
    def target(self) -> str:
        return self.architecture or gpu_architecture() or DEFAULT_ARCHITECTURE


@cache
def gpu_architecture() -> str | None:
    """The architecture of the first GPU, asked from the driver's tool: CUDA is not initialised here."""
    tool = shutil.which("nvidia-smi") or "/usr/local/nvidia/bin/nvidia-smi"
    command = [tool, "--query-gpu=compute_cap", "--format=csv,noheader"]
    try:
        shown = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    first = shown.stdout.strip().splitlines()[:1]
    return f"sm_{first[0].strip().replace('.', '')}" if first else None
