"""The runtime library and the precompiled headers: built once, shared by every process and build.

Keyed by compiler, torch, flags and the contents of every header; built under a file lock into a
temporary name and renamed, so that a killed build leaves nothing half-made behind.
"""

import contextlib
import logging
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import lru_cache, partial
from pathlib import Path

from dice.errors import ToolchainError
from dice.toolchain.bindings import HELPERS, MODULE_NAME
from dice.toolchain.cache import SIZE_LIMIT_MIB, Cache, cache_root, digest, file_lock
from dice.toolchain.compiler import accepts, compiler_identity, find_compiler, run_own
from dice.toolchain.simt import layout
from dice.toolchain.source import BuildOptions

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]

BUILD_TIMEOUT_S = 600.0
UNUSED_S = 30 * 24 * 3600
RECENT_S = 3600
FILL_LOCALS = "-ftrivial-auto-var-init=pattern"
"""For what `uninitialised` leaves alone; g++ has it since version 12."""

_SLIM = '#include "simt_slim.h"\n#include <cstring>\n'
_FULL = '#include "simt_full.h"\n#include <cstring>\n'


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolkit:
    """Everything that one compiler command needs, besides the source."""

    compiler: Path
    flags: tuple[str, ...]
    header: Path
    link_flags: tuple[str, ...]
    trusted_dirs: tuple[str, ...]
    """Folders (with a slash at the end) whose headers a message may quote."""
    readable_dirs: tuple[str, ...]
    """What the compiler must be able to read besides the system's directories."""
    key: str
    """Changes whenever an extension built with another toolkit must not be reused."""


def library_path(options: BuildOptions) -> Path:
    """The runtime's shared library (there once `ensure_prelude` has returned)."""
    return _runtime_dir(options) / f"lib{layout.LIBRARY}.so"


def header_path(options: BuildOptions, *, full: bool = False) -> Path:
    """The precompiled header (there once `ensure_prelude` has returned)."""
    return _header_dir(options, full) / "dice_prelude.h.gch"


def ensure_prelude(
    options: BuildOptions, on_progress: Progress | None = None, *, full: bool = False
) -> Path:
    """Build the runtime library and the precompiled header unless they are there.

    Returns the folder of the header. Raises ToolchainError when the compiler is missing or fails on
    our own sources.
    """
    say = on_progress or logger.info
    _ensure_runtime(options, say)
    mark_used(_runtime_dir(options), _header_dir(options, full))
    header = _header_dir(options, full) / "dice_prelude.h"
    compiled = header.with_name(header.name + ".gch")
    if not compiled.exists():
        with file_lock(_cache(options).root / "locks" / f"{header.parent.name}.lock"):
            if not compiled.exists():
                say(
                    "building the precompiled "
                    + (
                        "header with pybind11, about a minute, once"
                        if full
                        else "header, about 20 s, once"
                    )
                )
                _build_header(options, header, compiled, full)
                remove_unused(header.parent.parent)
    return header.parent


def toolkit(
    options: BuildOptions, on_progress: Progress | None = None, *, full: bool = False
) -> Toolkit:
    """The compiler, flags and libraries for candidates; builds the prelude where needed."""
    folder = ensure_prelude(options, on_progress, full=full)
    torch = layout.torch_layout()
    runtime = _runtime_dir(options)
    link = [
        "-shared",
        "-nodefaultlibs",  # the runtime library brings them; keeps libtsan out of check builds
        f"-L{runtime}",
        f"-l{layout.LIBRARY}",
        f"-Wl,-rpath,{runtime}",
        "-lgcc",
    ]
    if options.check:  # library calls are not instrumented: the runtime checks them itself
        link.append("-Wl,--wrap=memcpy,--wrap=memset,--wrap=memmove")
    if full:
        link += [f"-L{torch.library_dir}", "-ltorch_python", f"-Wl,-rpath,{torch.library_dir}"]
    return Toolkit(
        compiler=find_compiler(),
        flags=_flags(options, full),
        header=folder / "dice_prelude.h",
        link_flags=tuple(link),
        trusted_dirs=(
            f"{layout.INCLUDE_DIR}/",
            *(f"{one}/" for one in torch.include_dirs),
            "/usr/include/",
            "/usr/lib/gcc/",
            f"{folder}/",
        ),
        readable_dirs=(
            str(layout.INCLUDE_DIR),
            *map(str, torch.include_dirs),
            str(torch.library_dir),
            str(layout.python_include()),
            str(folder),
            str(runtime),
        ),
        key=digest(folder.name, runtime.name, *link),
    )


def _cache(options: BuildOptions) -> Cache:
    return Cache(cache_root(options.cache_dir))


def _flags(options: BuildOptions, full: bool) -> tuple[str, ...]:
    torch = layout.torch_layout()
    flags = [layout.STANDARD, options.optimisation, "-fPIC", "-w", "-g0"]
    flags += ["-fdiagnostics-color=never", "-fno-diagnostics-show-caret"]
    flags += ["-fno-diagnostics-show-option", "-fmax-errors=20", "-ftemplate-backtrace-limit=4"]
    if options.check:
        flags += ["-fsanitize=thread", "--param", "tsan-instrument-func-entry-exit=0"]
        if accepts(find_compiler(), FILL_LOCALS):
            flags.append(FILL_LOCALS)
    if not full:
        flags.append(f"-I{layout.INCLUDE_DIR / 'fakeslim'}")
    flags += [f"-I{layout.INCLUDE_DIR / 'fake'}", f"-I{layout.INCLUDE_DIR}"]
    for one in (*torch.include_dirs, layout.python_include()):
        flags += ["-isystem", str(one)]
    flags += [f"-DTORCH_EXTENSION_NAME={MODULE_NAME}", "-DTORCH_API_INCLUDE_EXTENSION_H"]
    return tuple(flags)


@lru_cache(maxsize=1)
def _sources_digest() -> str:
    parts: list[str | bytes] = []
    for one in [*layout.header_files(), *layout.runtime_files()]:
        parts += [one.name, one.read_bytes()]
    return digest(*parts)


def _base_key(options: BuildOptions) -> str:
    torch = layout.torch_layout()
    identity = compiler_identity(find_compiler())
    return digest(identity, torch.version, str(torch.library_dir), _sources_digest())


def _runtime_dir(options: BuildOptions) -> Path:
    return _cache(options).root / "simt" / f"runtime-{_base_key(options)[:20]}"


def _header_text(full: bool) -> str:
    return (_FULL if full else _SLIM) + HELPERS


def _header_dir(options: BuildOptions, full: bool) -> Path:
    key = digest(_base_key(options), _header_text(full), *_flags(options, full))[:20]
    return _cache(options).root / "simt" / f"header-{'full' if full else 'slim'}-{key}"


def _ensure_runtime(options: BuildOptions, say: Progress) -> None:
    final = _runtime_dir(options)
    if final.is_dir():
        return
    torch = layout.torch_layout()
    cache = _cache(options)
    with file_lock(cache.root / "locks" / f"{final.name}.lock"):
        if final.is_dir():
            return
        say("building the SIMT runtime, about 30 s, once")
        with cache.workspace() as workspace:
            built = workspace / "built"
            built.mkdir()
            sources = layout.runtime_sources()
            objects = [workspace / f"{one.stem}.o" for one in sources]
            with ThreadPoolExecutor(max_workers=2) as pool:
                compile_one = partial(_compile_runtime_file, workspace=workspace)
                list(pool.map(compile_one, sources, objects))
            output = built / f"lib{layout.LIBRARY}.so"
            link: list[str | Path] = [
                find_compiler(),
                "-shared",
                *objects,
                "-o",
                output,
                *("-Wl,--no-as-needed", f"-L{torch.library_dir}"),
                *("-lc10", "-ltorch_cpu", "-ltorch", "-ltorch_python", "-lpthread", "-ldl"),
                f"-Wl,-rpath,{torch.library_dir}",
            ]
            build_own(link, workspace, "the SIMT runtime")
            final.parent.mkdir(parents=True, exist_ok=True)
            built.rename(final)


def _compile_runtime_file(source: Path, output: Path, *, workspace: Path) -> None:
    torch = layout.torch_layout()
    command: list[str | Path] = [
        *(find_compiler(), layout.STANDARD, "-O2", "-fPIC", "-w", "-c", source, "-o", output),
        *(f"-I{layout.INCLUDE_DIR}", "-isystem", str(torch.include_dirs[0])),
        *("-isystem", str(torch.include_dirs[1]), "-isystem", str(layout.python_include())),
    ]
    build_own(command, workspace, "the SIMT runtime")


def _build_header(options: BuildOptions, header: Path, compiled: Path, full: bool) -> None:
    header.parent.mkdir(parents=True, exist_ok=True)
    with _cache(options).workspace() as workspace:
        text = workspace / header.name
        text.write_text(_header_text(full))
        os.replace(text, header)
        output = header.with_name(f".{os.getpid()}.gch.tmp")
        try:
            command: list[str | Path] = [
                find_compiler(),
                *_flags(options, full),
                "-x",
                "c++-header",
                header,
                "-o",
                output,
            ]
            build_own(command, workspace, "the precompiled header")
            os.replace(output, compiled)
        finally:
            output.unlink(missing_ok=True)


def mark_used(*folders: Path) -> None:
    """Folders that exist count as used now."""
    for folder in folders:
        with contextlib.suppress(FileNotFoundError):
            os.utime(folder)


def remove_unused(root: Path, *, limit_mib: int = SIZE_LIMIT_MIB) -> None:
    """Remove runtimes and headers that no process needs: each takes 230 MiB or more.

    What was not used for a month goes, and over the size limit what was not used for an hour, the
    longest unused first; every build counts as a use.
    """
    folders = []
    for folder in root.iterdir():
        with contextlib.suppress(FileNotFoundError):
            size = sum(file.stat().st_size for file in folder.iterdir())
            folders.append((folder.stat().st_mtime, size, folder))
    now, total = time.time(), 0
    for used, size, folder in sorted(folders, reverse=True):
        total += size
        idle_s = now - used
        if idle_s > UNUSED_S or (total > limit_mib << 20 and idle_s > RECENT_S):
            shutil.rmtree(folder, ignore_errors=True)


def build_own(command: list[str | Path], workspace: Path, what: str) -> None:
    """Compile our own sources; a failure is the machine's, not a candidate's."""
    ran = run_own(command, cwd=workspace, timeout_s=BUILD_TIMEOUT_S)
    if ran.returncode != 0:
        errors = [line for line in ran.output.splitlines() if "error" in line][:5]
        shown = "\n".join(errors) or ran.output[-2000:]
        raise ToolchainError(
            f"{command[0]} could not build {what} (needs g++ 11 or newer, Python's and torch's "
            f"headers):\n{shown}"
        )
