"""Where CUDA's headers, NVRTC and our own files are, found without importing torch or starting CUDA."""

import os
import site
from functools import cache
from pathlib import Path

from dice.toolchain.nvcc import find_nvcc
from dice.toolchain.simt.layout import torch_layout

HERE = Path(__file__).parent
INCLUDE_DIR = HERE / "include"
NVRTC_INCLUDE_DIR = HERE / "nvrtc_include"
RUNTIME_DIR = HERE / "runtime"
NVRTC_CHILD = HERE / "nvrtc_child.py"
STOCK_CHILD = HERE / "stock_child.py"


def _homes() -> list[Path]:
    """Folders that may hold a toolkit, the one that nvcc belongs to first."""
    homes = [Path(value) for name in ("CUDA_HOME", "CUDA_PATH") if (value := os.environ.get(name))]
    nvcc = find_nvcc()
    if nvcc is not None:
        homes += [nvcc.parent.parent, nvcc.resolve().parent.parent]
    homes.append(Path("/usr/local/cuda"))
    return homes + _wheel_homes()


def _wheel_homes() -> list[Path]:
    """NVIDIA's packages beside torch."""
    packages = [torch_layout().library_dir.parent.parent, *map(Path, site.getsitepackages())]
    return [home for root in dict.fromkeys(packages) for home in sorted(root.glob("nvidia/*"))]


@cache
def cuda_include() -> Path | None:
    """The folder with cuda_runtime.h; None where CUDA's headers are not installed."""
    for home in _homes():
        for folder in (home / "include", home / "targets" / "x86_64-linux" / "include"):
            if (folder / "cuda_runtime.h").is_file():
                return folder
    return None


@cache
def nvrtc_library() -> Path | None:
    """libnvrtc: torch's own first, whose version fits torch's; else the toolkit's."""
    for home in [*_wheel_homes(), *_homes()]:
        for folder in (home / "lib", home / "lib64"):
            found = sorted(folder.glob("libnvrtc.so.*[0-9]"))
            if found:
                return found[0]
    return None


@cache
def library_includes() -> tuple[Path, ...]:
    """Headers of cuBLAS, cuDNN and the like among NVIDIA's packages."""
    return tuple(home / "include" for home in _wheel_homes() if (home / "include").is_dir())


def cccl_includes(include: Path) -> list[Path]:
    """Where CUDA 13 keeps cub, thrust and libcu++."""
    return [folder for folder in (include / "cccl",) if folder.is_dir()]


def own_files() -> list[Path]:
    """Every file of ours that a build depends on."""
    roots = (INCLUDE_DIR, NVRTC_INCLUDE_DIR, RUNTIME_DIR)
    return sorted(one for root in roots for one in root.rglob("*") if one.is_file())
