"""`extra_cuda_cflags` in a split build: which flags change the device code, and which nobody knows."""

import re
from dataclasses import dataclass

_PASSED = re.compile(
    r"^(?:--?use_fast_math|--?(?:fmad|ftz|prec-div|prec-sqrt|maxrregcount)=\w+|--?std=c\+\+(?:14|17|20))$"
)
_IGNORED = re.compile(
    r"^(?:-O[0-3s]?|-lineinfo|--generate-line-info|-g|--?expt-(?:relaxed-constexpr|extended-lambda)|"
    r"--?extended-lambda|--?(?:gpu-architecture|arch|gencode|gpu-code|code)(?:=.*)?|--?ptxas-options=-v|"
    r"--?Xptxas=-v|--?threads=?\d*|-t=?\d*|-U__CUDA_NO_\w+|-v|--verbose|--?Wno-\w+|-w|"
    r"--resource-usage|--keep|-Xcompiler=.*|--compiler-options=.*|--?diag-suppress=.*|"
    r"-allow-unsupported-compiler|--allow-unsupported-compiler)$"
)
_WITH_VALUE = {
    "-Xptxas",
    "--ptxas-options",
    "-Xcompiler",
    "--compiler-options",
    "-gencode",
    "-arch",
    "--gpu-architecture",
    "-t",
    "--threads",
    "-diag-suppress",
    "--diag-suppress",
}
_VALUE_PASSED = {"-maxrregcount", "--maxrregcount"}
_HALF = "-U__CUDA_NO_"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceFlags:
    """Flags for NVRTC and nvcc alike; `unknown` is the first flag that only the stock path can take."""

    passed: tuple[str, ...] = ()
    undefined: tuple[str, ...] = ()
    """Macros of the stock build that the candidate takes back (`-U__CUDA_NO_HALF_OPERATORS__`)."""
    unknown: str | None = None


def device_flags(flags: tuple[str, ...]) -> DeviceFlags:
    """Sort the flags of `extra_cuda_cflags` (without `-D`)."""
    passed: list[str] = []
    undefined: list[str] = []
    pending: str | None = None
    for flag in flags:
        if pending is not None:
            if pending in _VALUE_PASSED:
                passed.append(f"--maxrregcount={flag}")
            pending = None
        elif flag in _WITH_VALUE or flag in _VALUE_PASSED:
            pending = flag
        elif flag.startswith(_HALF):
            undefined.append(flag.removeprefix("-U"))
        elif _PASSED.match(flag):
            passed.append("--" + flag.lstrip("-"))
        elif not _IGNORED.match(flag):
            return DeviceFlags(unknown=flag)
    return DeviceFlags(passed=tuple(passed), undefined=tuple(undefined))
