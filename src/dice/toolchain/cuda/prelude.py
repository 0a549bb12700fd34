"""The launch library and the precompiled header of host code: built once, shared by every build."""

import logging
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from dice.errors import ToolchainError
from dice.toolchain.bindings import HELPERS, MODULE_NAME
from dice.toolchain.cache import Cache, cache_root, digest, file_lock
from dice.toolchain.compiler import compiler_identity, find_compiler
from dice.toolchain.cuda import layout
from dice.toolchain.cuda.options import CudaOptions
from dice.toolchain.prelude import Progress, Toolkit, build_own, mark_used, remove_unused
from dice.toolchain.simt import layout as simt_layout

logger = logging.getLogger(__name__)

LIBRARY = "dice_cuda"
_HEADER = '#include "dice_cuda.h"\n'
_MACROS = "c10/cuda/impl/cuda_cmake_macros.h"


@dataclass(frozen=True, slots=True, kw_only=True)
class Folders:
    """Where the parts of one configuration are, built or not."""

    runtime: Path
    header: Path


def folders(options: CudaOptions) -> Folders:
    """The folders of this compiler, torch, CUDA and our files."""
    torch = simt_layout.torch_layout()
    identity = compiler_identity(find_compiler())
    base = digest(
        identity, torch.version, str(torch.library_dir), str(_cuda_include()), _own_digest()
    )
    root = Cache(cache_root(options.cache_dir)).root / "cuda"
    header = digest(base, _HEADER, HELPERS, *_flags())[:20]
    return Folders(runtime=root / f"runtime-{base[:20]}", header=root / f"header-{header}")


def library_path(options: CudaOptions) -> Path:
    """The launch library (there once `ensure_prelude` has returned)."""
    return folders(options).runtime / f"lib{LIBRARY}.so"


def ensure_prelude(options: CudaOptions, on_progress: Progress | None = None) -> Path:
    """Build the launch library and the header unless they are there; returns the header's folder.

    Raises ToolchainError without g++ or CUDA's headers, or where our own sources do not compile.
    """
    say = on_progress or logger.info
    where = folders(options)
    cache = Cache(cache_root(options.cache_dir))
    mark_used(where.runtime, where.header)
    for final, make, what in (
        (where.runtime, _build_runtime, "launch library, about 20 s"),
        (where.header, _build_header, "precompiled header for CUDA, about 20 s"),
    ):
        if final.is_dir():
            continue
        with file_lock(cache.root / "locks" / f"{final.name}.lock"):
            if final.is_dir():
                continue
            say(f"building the {what}, once")
            final.parent.mkdir(parents=True, exist_ok=True)
            with cache.workspace() as workspace:
                make(workspace, final)
            remove_unused(final.parent)
    return where.header


def toolkit(options: CudaOptions, on_progress: Progress | None = None) -> Toolkit:
    """The compiler, flags and libraries for host code; builds the prelude where needed."""
    header = ensure_prelude(options, on_progress)
    torch = simt_layout.torch_layout()
    runtime = folders(options).runtime
    cuda = _cuda_include()
    return Toolkit(
        compiler=find_compiler(),
        flags=_flags(),
        header=header / "dice_prelude.h",
        link_flags=(
            *("-shared", "-Wl,-Bsymbolic", f"-L{runtime}", f"-l{LIBRARY}"),
            f"-Wl,-rpath,{runtime}",
        ),
        trusted_dirs=(
            *(f"{one}/" for one in (layout.INCLUDE_DIR, simt_layout.INCLUDE_DIR, cuda, header)),
            *(f"{one}/" for one in torch.include_dirs),
            *("/usr/include/", "/usr/lib/gcc/"),
        ),
        readable_dirs=(
            *map(str, (layout.HERE, simt_layout.INCLUDE_DIR, cuda, header, runtime)),
            *map(str, (*torch.include_dirs, torch.library_dir, simt_layout.python_include())),
            *map(str, layout.library_includes()),
        ),
        key=digest(header.name, runtime.name),
    )


def _cuda_include() -> Path:
    found = layout.cuda_include()
    if found is None:
        raise ToolchainError(
            "CUDA's headers are not installed: install the CUDA toolkit (set CUDA_HOME to it) or "
            "`pip install nvidia-cuda-runtime nvidia-cuda-nvrtc`"
        )
    return found


def _flags() -> tuple[str, ...]:
    torch = simt_layout.torch_layout()
    flags = [simt_layout.STANDARD, "-O0", "-fPIC", "-w", "-g0"]
    flags += ["-fdiagnostics-color=never", "-fno-diagnostics-show-caret"]
    flags += ["-fno-diagnostics-show-option", "-fmax-errors=20", "-ftemplate-backtrace-limit=4"]
    fake = simt_layout.INCLUDE_DIR / "fakeslim"
    flags += [f"-I{one}" for one in (layout.INCLUDE_DIR, fake, simt_layout.INCLUDE_DIR)]
    for one in (*torch.include_dirs, _cuda_include(), simt_layout.python_include()):
        flags += ["-isystem", str(one)]
    if not (torch.include_dirs[0] / _MACROS).exists():  # torch without CUDA: builds, never runs
        flags += ["-isystem", str(layout.HERE / "cpu_torch_include")]
    for one in layout.library_includes():
        flags += ["-isystem", str(one)]
    flags += [f"-DTORCH_EXTENSION_NAME={MODULE_NAME}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    return tuple(flags)


@lru_cache(maxsize=1)
def _own_digest() -> str:
    parts: list[str | bytes] = []
    for one in [*layout.own_files(), *simt_layout.header_files()]:
        parts += [one.name, one.read_bytes()]
    return digest(*parts)


def _build_runtime(workspace: Path, final: Path) -> None:
    torch = simt_layout.torch_layout()
    includes = [*torch.include_dirs, _cuda_include(), simt_layout.python_include()]
    flags = [word for one in includes for word in ("-isystem", str(one))]
    sources = sorted(layout.RUNTIME_DIR.glob("*.cpp"))
    objects = [workspace / f"{one.stem}.o" for one in sources]
    compile_one = partial(_compile, flags=flags, workspace=workspace)
    with ThreadPoolExecutor(max_workers=2) as pool:
        list(pool.map(compile_one, sources, objects))
    built = workspace / "built"
    built.mkdir()
    # libcudart is torch's own, loaded before this library: not linked, so that there is only one
    link: list[str | Path] = [find_compiler(), "-shared", *objects]
    link += ["-o", built / f"lib{LIBRARY}.so", "-Wl,--no-as-needed", f"-L{torch.library_dir}"]
    link += ["-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", f"-Wl,-rpath,{torch.library_dir}"]
    build_own(link, workspace, "the launch library")
    built.rename(final)


def _compile(source: Path, output: Path, *, flags: list[str], workspace: Path) -> None:
    command: list[str | Path] = [find_compiler(), simt_layout.STANDARD, "-O1", "-fPIC", "-w"]
    command += [*flags, "-c", source, "-o", output]
    build_own(command, workspace, "the launch library")


def _build_header(workspace: Path, final: Path) -> None:
    built = workspace / "built"
    built.mkdir()
    header = built / "dice_prelude.h"
    header.write_text(_HEADER + HELPERS)
    command: list[str | Path] = [find_compiler(), *_flags(), "-x", "c++-header", header]
    build_own([*command, "-o", built / "dice_prelude.h.gch"], workspace, "the precompiled header")
    # g++ finds a precompiled header by name beside the text: the folder moves as a whole
    shutil.copystat(header, built / "dice_prelude.h.gch")
    os.replace(built, final)
