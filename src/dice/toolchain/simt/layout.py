"""Where the runtime's sources and headers lie, and how they are compiled."""

import importlib.util
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

HERE = Path(__file__).parent
INCLUDE_DIR = HERE / "include"
RUNTIME_DIR = HERE / "runtime"

STANDARD = "-std=c++20"
LIBRARY = "dice_simt"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchLayout:
    """Torch's headers and libraries, found without importing torch."""

    version: str
    include_dirs: tuple[Path, ...]
    library_dir: Path


@cache
def torch_layout() -> TorchLayout:
    """Where the installed torch keeps its headers. Raises ModuleNotFoundError without torch."""
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError("torch is not installed")
    root = Path(spec.origin).parent
    version = (root / "version.py").read_text()
    return TorchLayout(
        version=version,
        include_dirs=(root / "include", root / "include" / "torch" / "csrc" / "api" / "include"),
        library_dir=root / "lib",
    )


def runtime_sources() -> list[Path]:
    """The runtime's translation units."""
    return sorted(RUNTIME_DIR.glob("*.cpp"))


def runtime_files() -> list[Path]:
    """Everything the runtime library is made of."""
    return sorted([*RUNTIME_DIR.glob("*.cpp"), *RUNTIME_DIR.glob("*.h")])


def header_files() -> list[Path]:
    """Every file that a build may include, in a fixed order."""
    return sorted(one for one in INCLUDE_DIR.rglob("*") if one.is_file())


def python_include() -> Path:
    return Path(sysconfig.get_paths()["include"])
