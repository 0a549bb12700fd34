"""Compile device text to a cubin: NVRTC (tens of milliseconds), or nvcc where NVRTC cannot."""

import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dice.toolchain.compiler import Ran, run_hostile
from dice.toolchain.cuda import layout
from dice.toolchain.cuda.flags import DeviceFlags
from dice.toolchain.cuda.options import CudaOptions
from dice.toolchain.nvcc import NO_HALF_MACROS, NVCC_ERROR, PTXAS_ERROR, find_nvcc
from dice.toolchain.simt import layout as simt_layout
from dice.toolchain.source import CUDA_FILE, CompilerMessage, ExtensionSources

HALVES = re.compile(
    r"\b(?:__half2?|half2?|__nv_bfloat162?|nv_bfloat162?|__float2half\w*|__half2float)\b"
)
_TORCH_HALVES = re.compile(r"\b(?:c10|at|torch)::(?:Half|BFloat16)\b")
_FAST_HEADERS = re.compile(r"#\s*include\s*[<\"](?:cub|thrust|curand_kernel)")
DOUBTFUL = re.compile(
    r"\b(?:torch|at|c10|std|pybind11|py|thrust|cub|dice|cuda)::|\bc10\b|\"(?:at|torch|c10|std|thrust|cub)\"|"
    r"cannot open source file|No such file|\b(?:cublas|cudnn|curand|cusparse|nvtx|wmma)\w*|[Nn]amespace|"
    r"PackedTensorAccessor|TensorAccessor|\bTensor\b|ScalarType|opmath|TORCH_|AT_|C10_|CUDA_KERNEL_LOOP"
)
"""An error that may come from what the split leaves out: then the stock path decides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceBuild:
    """How a device compilation ended: `cubin` is written when `messages` and `reason` are empty."""

    compiler: str
    """"nvrtc" or "nvcc"."""
    messages: tuple[CompilerMessage, ...] = ()
    """Errors at the candidate's lines that are final."""
    reason: str = ""
    """Why this build cannot decide."""


def compile_device(
    text: str,
    instantiations: Sequence[str],
    cubin: Path,
    sources: ExtensionSources,
    flags: DeviceFlags,
    options: CudaOptions,
) -> DeviceBuild:
    """Write `cubin` (its folder is the workspace) from device text and explicit instantiations."""
    whole = text + "\n" + "\n".join(instantiations) + "\n"
    torch_halves = bool(_TORCH_HALVES.search(whole))
    nvrtc = layout.nvrtc_library()
    if nvrtc is not None and not torch_halves and not _FAST_HEADERS.search(whole):
        ran = _nvrtc(nvrtc, whole, cubin, sources, flags, options)
        if ran.returncode == 0:
            return DeviceBuild(compiler="nvrtc")
    if find_nvcc() is None:
        return DeviceBuild(compiler="nvrtc", reason="NVRTC cannot compile it, and there is no nvcc")
    ran = _nvcc(whole, cubin, sources, flags, options, torch_halves)
    if ran.returncode == 0:
        return DeviceBuild(compiler="nvcc")
    if ran.timed_out:
        return DeviceBuild(compiler="nvcc", reason="nvcc was stopped at its time limit")
    return _decide(ran.output, sources.cuda_sources)


def _includes() -> list[str]:
    cuda = layout.cuda_include()
    assert cuda is not None
    return [f"-I{one}" for one in (cuda, *layout.cccl_includes(cuda))]


def _macros(sources: ExtensionSources, flags: DeviceFlags) -> list[str]:
    kept = [f"-D{name}" for name in NO_HALF_MACROS if name not in flags.undefined]
    return [*kept, *(f"-D{name}={value}" for name, value in sources.defines)]


def _nvrtc(
    library: Path,
    text: str,
    cubin: Path,
    sources: ExtensionSources,
    flags: DeviceFlags,
    options: CudaOptions,
) -> Ran:
    source = cubin.with_name("device_nvrtc.cu")
    halves = "#include <cuda_fp16.h>\n#include <cuda_bf16.h>\n" if HALVES.search(text) else ""
    source.write_text(f'{halves}#line 1 "{CUDA_FILE}"\n{text}')
    command: list[str | Path] = [
        sys.executable,
        "-I",
        "-S",
        layout.NVRTC_CHILD,
        library,
        source,
        cubin,
    ]
    command += [f"--gpu-architecture={options.target}", "-default-device", "-w"]
    command += [f"-I{layout.NVRTC_INCLUDE_DIR}", *_includes(), "--pre-include=dice_nvrtc.h"]
    if not any(flag.startswith("--std") for flag in flags.passed):
        command.append("--std=c++17")
    command += [*_macros(sources, flags), *flags.passed]
    return run_hostile(
        [command],
        cwd=cubin.parent,
        readable=[
            *map(str, (layout.HERE, library.parent, sys.prefix, sys.base_prefix)),
            *(one.removeprefix("-I") for one in _includes()),
        ],
        executable=[sys.prefix, sys.base_prefix],
        timeout_s=options.timeout_s,
        memory_mib=options.memory_mib,
    )


def _nvcc(
    text: str,
    cubin: Path,
    sources: ExtensionSources,
    flags: DeviceFlags,
    options: CudaOptions,
    torch_halves: bool,
) -> Ran:
    nvcc = find_nvcc()
    assert nvcc is not None
    torch = simt_layout.torch_layout()
    source = cubin.with_name("device_nvcc.cu")
    headers = [
        "cstdint",
        "cmath",
        "cfloat",
        "climits",
        "algorithm",
        "limits",
        "cuda_fp16.h",
        "cuda_bf16.h",
    ]
    lines = [f"#include <{one}>\n" for one in headers]
    if torch_halves:
        lines += ["#include <c10/util/Half.h>\n", "#include <c10/util/BFloat16.h>\n"]
        names = "using c10::Half; using c10::BFloat16;"
        lines += [f"namespace at {{ {names} }}\n", f"namespace torch {{ {names} }}\n"]
    source.write_text(f'{"".join(lines)}#line 1 "{CUDA_FILE}"\n{text}')
    command: list[str | Path] = [nvcc, f"-arch={options.target}", "-cubin", "-w"]
    command += [
        "--expt-relaxed-constexpr",
        "--extended-lambda",
        *_macros(sources, flags),
        *flags.passed,
    ]
    if not any(flag.startswith("--std") for flag in flags.passed):
        command.append("--std=c++17")
    command += [f"-I{one}" for one in torch.include_dirs] if torch_halves else []
    command += [source, "-o", cubin]
    homes = [str(nvcc.resolve().parent.parent)]
    include = layout.cuda_include()
    if include is not None:
        homes += [str(include.parent), str(include.resolve().parent)]
    return run_hostile(
        [command],
        cwd=cubin.parent,
        readable=[*homes, *map(str, torch.include_dirs)],
        executable=homes,
        timeout_s=options.timeout_s,
        memory_mib=options.memory_mib,
    )


def _decide(output: str, text: str) -> DeviceBuild:
    """Errors at the candidate's lines are final, unless one may be a gap of the split."""
    messages, gaps = errors(output, text)
    if gaps or not messages:
        return DeviceBuild(
            compiler="nvcc", reason=gaps[0] if gaps else "nvcc failed without a message"
        )
    return DeviceBuild(compiler="nvcc", messages=tuple(messages))


def errors(output: str, text: str) -> tuple[list[CompilerMessage], list[str]]:
    """(errors of the source, errors that something left out may explain) in a compiler's output."""
    lines = text.splitlines()
    found: list[CompilerMessage] = []
    gaps: list[str] = []
    for line in output.splitlines():
        ptxas = PTXAS_ERROR.match(line)
        if ptxas is not None and "aborted" not in line:
            found.append(_message(0, ptxas["text"], ""))
            continue
        match = NVCC_ERROR.match(line)
        if match is None:
            continue
        number = int(match["line"])
        own = match["file"] == CUDA_FILE and 0 < number <= len(lines)
        if not own or DOUBTFUL.search(match["text"]):
            gaps.append(match["text"])
        else:
            found.append(_message(number, match["text"], lines[number - 1].strip()[:200]))
    return list(dict.fromkeys(found)), gaps


def _message(line: int, text: str, shown: str) -> CompilerMessage:
    return CompilerMessage(
        file=CUDA_FILE, line=line, column=1, kind="error", text=text, source_line=shown
    )
