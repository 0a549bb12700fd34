"""Build an extension for a GPU: device and host code apart, content-cached, a minute's path as last resort.

Routes. "split": host code by g++ over the slim precompiled header, device code by NVRTC, linked with an
assembler file that holds the cubin and the table of kernels. "split-nvcc": the same with nvcc for the
device code. "stock": torch.utils.cpp_extension itself, for whatever does not split cleanly; the result
says why. A split build fails for good only at errors that the stock build must have too.
"""

import logging
import re
import time
import uuid
from dataclasses import dataclass
from pathlib import Path

from dice.errors import BuildFailure
from dice.toolchain.cache import Cache, cache_root, digest
from dice.toolchain.compiler import candidate_messages, failure, run_hostile
from dice.toolchain.cuda import elf, layout
from dice.toolchain.cuda.device import DOUBTFUL, HALVES, DeviceBuild, compile_device
from dice.toolchain.cuda.flags import DeviceFlags, device_flags
from dice.toolchain.cuda.link import stub_text
from dice.toolchain.cuda.options import CudaOptions
from dice.toolchain.cuda.prelude import toolkit
from dice.toolchain.cuda.split import Split, split_source
from dice.toolchain.cuda.stock import build_stock
from dice.toolchain.prelude import Progress, Toolkit
from dice.toolchain.shared_object import (
    CompileFailure,
    failed_at,
    raise_saved_failure,
    save_failure,
)
from dice.toolchain.source import (
    BINDINGS_FILE,
    CPP_FILE,
    CUDA_FILE,
    BuiltExtension,
    CompilerMessage,
    ExtensionSources,
)
from dice.toolchain.units import (
    ParsedExtension,
    head,
    marked,
    parse_extension,
    provided_elsewhere,
    repeated_declarations,
    slim_bindings,
)

logger = logging.getLogger(__name__)

KIND = "cuda-extensions"
_FORMAT = "1"


class CannotSplit(Exception):
    """The split build cannot decide about this source; the text says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Halves:
    """The texts of a split build."""

    host: str
    split: Split
    flags: DeviceFlags


def build(
    sources: ExtensionSources,
    *,
    options: CudaOptions | None = None,
    on_progress: Progress | None = None,
) -> BuiltExtension:
    """Build an extension for the GPU, or find it in the cache.

    Raises BuildFailure, with messages at the candidate's own lines, for a source that does not
    compile; ToolchainError for a machine without compilers or CUDA's headers.
    """
    options = options or CudaOptions()
    started = time.monotonic()
    notes: list[str] = []
    try:
        if options.always_stock:
            raise CannotSplit("it was asked not to")
        kit = toolkit(options, on_progress)
        halves = _halves(sources)
        path, route, cached = _cached_split(sources, halves, kit, options)
    except CannotSplit as reason:
        notes.append(f"does not split: {str(reason)[:300]}")
        if not options.allow_stock:
            raise BuildFailure(f"the split build cannot decide: {reason}") from reason
        path, cached = build_stock(sources, options)
        route = "stock"
    return BuiltExtension(
        sources=sources,
        path=str(path),
        seconds=time.monotonic() - started,
        route=route,
        check=False,
        cached=cached,
        notes=tuple(notes),
    )


def device_check(sources: ExtensionSources, options: CudaOptions | None = None) -> None:
    """Compile the device half alone, which takes a fraction of a second.

    Raises BuildFailure when it cannot compile in any build; passes what it cannot decide.
    """
    options = options or CudaOptions()
    try:
        halves = _halves(sources)
    except CannotSplit:
        return
    with Cache(cache_root(options.cache_dir)).workspace() as workspace:
        cubin = workspace / "device.cubin"
        built = compile_device(halves.split.device, (), cubin, sources, halves.flags, options)
    if built.messages:
        raise failed_at(list(built.messages))


def _halves(sources: ExtensionSources) -> _Halves:
    if sources.stock_reason:
        raise CannotSplit(sources.stock_reason)
    if "cudnn" in sources.cuda_sources + sources.cpp_sources:
        raise CannotSplit("it calls cuDNN, which crashes in a split build")
    flags = device_flags(sources.cuda_flags)
    if flags.unknown is not None:
        raise CannotSplit(f"the flag {flags.unknown} is not known")
    extension = parse_extension(sources)
    if extension.bindings is None:
        raise CannotSplit("its PYBIND11_MODULE does more than define functions")
    split = split_source(extension.cuda, provided_elsewhere(extension.cuda))
    return _Halves(host=_host_text(extension, split), split=split, flags=flags)


def _host_text(extension: ParsedExtension, split: Split) -> str:
    cpp = extension.cpp
    drop = (*repeated_declarations(cpp, extension.cuda), *provided_elsewhere(cpp))
    text = _text(extension)
    libraries = '#include "dice_blas.h"\n' if _LIBRARIES.search(text) else ""
    if HALVES.search(text):
        libraries += "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n"
    return (
        libraries
        + head(extension, True)
        + marked(CUDA_FILE, split.host)
        + marked(CPP_FILE, split_source(cpp, drop).host)
        + marked(BINDINGS_FILE, slim_bindings(extension))
    )


_LIBRARIES = re.compile(r"\b(?:cublas|cusparse|cudnn|getCurrentCUDA(?:Blas|Sparse))\w*")


def _text(extension: ParsedExtension) -> str:
    return extension.sources.cuda_sources + extension.sources.cpp_sources


def _cached_split(
    sources: ExtensionSources, halves: _Halves, kit: Toolkit, options: CudaOptions
) -> tuple[Path, str, bool]:
    cache = Cache(cache_root(options.cache_dir))
    parts = (halves.host, halves.split.device, *halves.flags.passed, *halves.flags.undefined)
    key = digest(_FORMAT, kit.key, options.target, str(layout.nvrtc_library()), *parts)
    if not options.use_cache:
        key += f"-{uuid.uuid4().hex[:8]}"
    found = cache.find(KIND, key)
    if found is not None:
        return _read(found)
    with cache.workspace() as workspace:
        built = workspace / "built"
        built.mkdir()
        try:
            route = _compile(workspace, built / "extension.so", sources, halves, kit, options)
            (built / "route").write_text(route)
        except CompileFailure as error:
            if error.messages:
                save_failure(built, error)
                cache.publish(built, KIND, key)
            raise
        path = cache.publish(built, KIND, key) / "extension.so"
    return path, route, False


def _read(entry: Path) -> tuple[Path, str, bool]:
    raise_saved_failure(entry)
    return entry / "extension.so", (entry / "route").read_text(), True


def _compile(
    workspace: Path,
    output: Path,
    sources: ExtensionSources,
    halves: _Halves,
    kit: Toolkit,
    options: CudaOptions,
) -> str:
    """Device code first where it needs nothing of the host: what cannot compile is cheap to find."""
    split, cubin = halves.split, workspace / "device.cubin"
    device: DeviceBuild | None = None
    if not split.templates and split.kernels:
        device = compile_device(split.device, (), cubin, sources, halves.flags, options)
        _settle(device)
    host = _compile_host(workspace, sources, halves, kit, options)
    symbols = elf.defined_symbols(host)
    declared = {name: elf.demangle(name) for name in symbols}
    kernels = [one for one in symbols if elf.base_name(declared[one]) in split.kernels]
    if device is None:
        wanted = [
            f"template __global__ {declared[one]};" for one in kernels if "<" in declared[one]
        ]
        device = compile_device(split.device, wanted, cubin, sources, halves.flags, options)
        _settle(device)
    available = set(elf.defined_symbols(cubin, local=True))
    lost = [one for one in kernels if one not in available]
    if lost:
        raise CannotSplit(f"the device code has no kernel {declared[lost[0]]}")
    variables = [
        one
        for one in symbols
        if one in available and elf.base_name(declared[one]) in split.variables
    ]
    stub = workspace / "stub.s"
    stub.write_text(stub_text(kernels, variables))
    link: list[str | Path] = [kit.compiler, host, stub, "-o", output, *kit.link_flags]
    ran = run_hostile(
        [link],
        cwd=workspace,
        readable=kit.readable_dirs,
        timeout_s=options.timeout_s,
        memory_mib=options.memory_mib,
    )
    if ran.returncode != 0:
        raise CannotSplit(f"it does not link: {ran.output.strip()[-200:]}")
    return "split" if device.compiler == "nvrtc" else "split-nvcc"


def _settle(device: DeviceBuild) -> None:
    """Raise for a device build that failed, for good or not."""
    if device.messages:
        raise failed_at(list(device.messages))
    if device.reason:
        raise CannotSplit(device.reason)


def _compile_host(
    workspace: Path, sources: ExtensionSources, halves: _Halves, kit: Toolkit, options: CudaOptions
) -> Path:
    source, output = workspace / "host.cpp", workspace / "host.o"
    source.write_text(halves.host)
    command: list[str | Path] = [kit.compiler, *kit.flags, "-Winvalid-pch"]
    command += ["-include", kit.header, "-c", source, "-o", output]
    ran = run_hostile(
        [command],
        cwd=workspace,
        readable=kit.readable_dirs,
        timeout_s=options.timeout_s,
        memory_mib=options.memory_mib,
    )
    if ran.returncode == 0:
        return output
    logger.debug("compiler output:\n%s", ran.output)
    own = {CUDA_FILE: sources.cuda_sources, CPP_FILE: sources.cpp_sources, BINDINGS_FILE: ""}
    messages = candidate_messages(ran.output, own, kit.trusted_dirs)
    if ran.timed_out:
        raise CompileFailure(str(failure(ran, messages, options.timeout_s)), [])
    doubtful = [one for one in messages if _doubtful(one)]
    if doubtful or not messages:
        raise CannotSplit(str(doubtful[0] if doubtful else ran.output.strip()[-300:]))
    raise CompileFailure(str(failure(ran, messages, options.timeout_s)), messages)


_HOST_GAPS = re.compile(
    r"threadIdx|blockIdx|blockDim|__\w+'? was not declared|unnamed parameter|static_cast"
)


def _doubtful(message: CompilerMessage) -> bool:
    text = message.text
    return bool(message.file == BINDINGS_FILE or DOUBTFUL.search(text) or _HOST_GAPS.search(text))
