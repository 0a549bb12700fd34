"""Does real CUDA accept the source? nvcc's device compilation over declarations-only torch headers.

Takes about a second, because torch's headers are replaced by declarations (`nvcc_stub/`): enough for
nvcc's front end to check host code loosely and to instantiate and compile every kernel that is
launched. An error that may be a gap in those declarations gives "unsupported", never "failed".
"""

import json
import os
import re
import shutil
from dataclasses import asdict, dataclass
from functools import cache
from pathlib import Path

from dice.toolchain.cache import Cache, cache_root, digest
from dice.toolchain.compiler import Ran, compiler_identity, run_hostile
from dice.toolchain.source import CUDA_FILE, BuildOptions, ExtensionSources

STUB_DIR = Path(__file__).parent / "nvcc_stub"
KIND = "nvcc"
DEFAULT_ARCHITECTURE = "sm_80"

# What torch.utils.cpp_extension passes to nvcc, and puts before the source.
NO_HALF_MACROS = (
    "__CUDA_NO_HALF_OPERATORS__",
    "__CUDA_NO_HALF_CONVERSIONS__",
    "__CUDA_NO_BFLOAT16_CONVERSIONS__",
    "__CUDA_NO_HALF2_OPERATORS__",
)
_STOCK_FLAGS = (
    *(f"-D{name}" for name in NO_HALF_MACROS),
    "--expt-relaxed-constexpr",
    "-std=c++20",
)
_STOCK_PREFIX = "#include <torch/types.h>\n#include <cuda.h>\n#include <cuda_runtime.h>\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class KernelResources:
    """What ptxas says about one kernel instantiation."""

    name: str
    """Mangled."""
    registers: int
    spill_stores_bytes: int = 0
    spill_loads_bytes: int = 0
    shared_bytes: int = 0
    stack_bytes: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NvccReport:
    """The outcome. `log` has the errors at the candidate's lines ("failed") or the reason."""

    status: str
    """"ok", "failed", or "unsupported": nvcc could not decide (a header or declaration is missing)."""
    log: str = ""
    kernels: tuple[KernelResources, ...] = ()
    architecture: str = DEFAULT_ARCHITECTURE

    @property
    def ok(self) -> bool:
        return self.status == "ok"


@cache
def find_nvcc() -> Path | None:
    """nvcc from `$CUDA_HOME`, PATH or /usr/local/cuda; None where there is none."""
    for home in (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")):
        if home and (Path(home) / "bin" / "nvcc").is_file():
            return Path(home) / "bin" / "nvcc"
    found = shutil.which("nvcc")
    if found is not None:
        return Path(found)
    usual = Path("/usr/local/cuda/bin/nvcc")
    return usual if usual.is_file() else None


def compile_check(
    sources: ExtensionSources,
    options: BuildOptions | None = None,
    *,
    architecture: str = DEFAULT_ARCHITECTURE,
) -> NvccReport:
    """Compile the device code of `sources.cuda_sources` for one architecture."""
    nvcc = find_nvcc()
    if nvcc is None:
        return NvccReport(
            status="unsupported", log="nvcc is not installed", architecture=architecture
        )
    if not sources.cuda_sources.strip():
        return NvccReport(status="ok", architecture=architecture)
    options = options or BuildOptions()
    cache_folder = Cache(cache_root(options.cache_dir))
    text = f'{_STOCK_PREFIX}#line 1 "{CUDA_FILE}"\n{sources.cuda_sources}\n'
    defines = tuple(f"-D{name}={value}" for name, value in sources.defines)
    key = digest("1", compiler_identity(nvcc), _stub_digest(), architecture, *defines, text)
    found = cache_folder.find(KIND, key) if options.use_cache else None
    if found is not None:
        return _read(found)
    with cache_folder.workspace() as workspace:
        source = workspace / "extension.cu"
        source.write_text(text)
        command: list[str | Path] = [nvcc, f"-arch={architecture}", "-cubin", "-w", "-Xptxas", "-v"]
        command += [*_STOCK_FLAGS, *defines, f"-I{STUB_DIR}"]
        command += [source, "-o", workspace / "extension.cubin"]
        report = _report(_run(command, nvcc, workspace, sources, options), sources, architecture)
        if report.status != "unsupported" or not report.log.startswith("nvcc was stopped"):
            built = workspace / "built"
            built.mkdir()
            (built / "report.json").write_text(json.dumps(asdict(report)))
            cache_folder.publish(built, KIND, key)
    return report


def _run(
    command: list[str | Path],
    nvcc: Path,
    workspace: Path,
    sources: ExtensionSources,
    options: BuildOptions,
) -> Ran:
    home = str(nvcc.resolve().parent.parent)
    return run_hostile(
        [command],
        cwd=workspace,
        readable=[str(STUB_DIR), home],
        executable=[home],
        timeout_s=options.timeout_s,
        memory_mib=options.memory_mib,
    )


@cache
def _stub_digest() -> str:
    files = sorted(one for one in STUB_DIR.rglob("*") if one.is_file())
    return digest(*(part for one in files for part in (str(one.name), one.read_bytes())))


def _read(entry: Path) -> NvccReport:
    record = json.loads((entry / "report.json").read_text())
    record["kernels"] = tuple(KernelResources(**one) for one in record["kernels"])
    return NvccReport(**record)


NVCC_ERROR = re.compile(
    r"^(?P<file>[^()\n]+)\((?P<line>\d+)\): (?:catastrophic )?error[^:]*: (?P<text>.*)$"
)
_GCC_ERROR = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):\d+: (?:fatal )?error: (?P<text>.*)$")
PTXAS_ERROR = re.compile(r"^ptxas (?:error|fatal)\s*: (?P<text>.*)$")
_STUB_GAP = re.compile(
    r"\b(?:at|torch|c10|pybind11|py|std|cub|thrust|cutlass)::|\bTensor|TORCH_|\bAT_|\bC10_|ArrayRef"
    r"|ScalarType|cannot open source file|No such file|\bcublas|\bcudnn|\bCUBLAS|\bCUDNN|namespace \""
    r"(?:at|torch|c10|py|std|cub|thrust|at::cuda|c10::cuda|torch::cuda)\"|dice_|PYBIND11"
)


def _report(ran: Ran, sources: ExtensionSources, architecture: str) -> NvccReport:
    if ran.timed_out:
        return NvccReport(
            status="unsupported",
            log="nvcc was stopped at its time limit",
            architecture=architecture,
        )
    if ran.returncode == 0:
        return NvccReport(status="ok", kernels=_resources(ran.output), architecture=architecture)
    own, gaps = _errors(ran.output, sources.cuda_sources)
    if own:
        return NvccReport(status="failed", log="\n".join(own[:10]), architecture=architecture)
    reason = "nvcc could not decide: " + (gaps[0] if gaps else "it failed without an error message")
    return NvccReport(status="unsupported", log=reason, architecture=architecture)


def _errors(output: str, text: str) -> tuple[list[str], list[str]]:
    """Errors that are the source's, and errors that a missing declaration may explain."""
    lines = text.splitlines()
    own: list[str] = []
    gaps: list[str] = []
    for line in output.splitlines():
        ptxas = PTXAS_ERROR.match(line)
        if ptxas is not None:
            if "aborted due to errors" not in line:
                own.append(f"{CUDA_FILE}: error: {ptxas['text']}")
            continue
        found = NVCC_ERROR.match(line) or _GCC_ERROR.match(line)
        if found is None:
            continue
        number = int(found["line"])
        if _STUB_GAP.search(found["text"]):
            gaps.append(found["text"])
        elif found["file"] == CUDA_FILE:
            shown = lines[number - 1].strip()[:200] if 0 < number <= len(lines) else ""
            own.append(f"{CUDA_FILE}:{number}: error: {found['text']}\n    {shown}")
        else:
            gaps.append("an error in a header")
    # One missing declaration leads to errors of any kind further on.
    return ([] if gaps else own), gaps


_ENTRY = re.compile(r"Compiling entry function '(\w+)'")
_STACK = re.compile(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads")
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")


def _resources(output: str) -> tuple[KernelResources, ...]:
    """ptxas's report, one record for each kernel instantiation."""
    kernels = []
    name, stack = "", (0, 0, 0)
    for line in output.splitlines():
        if (entry := _ENTRY.search(line)) is not None:
            name, stack = entry[1], (0, 0, 0)
        elif (spilled := _STACK.search(line)) is not None:
            stack = (int(spilled[1]), int(spilled[2]), int(spilled[3]))
        elif (used := _USED.search(line)) is not None and name:
            shared = _SHARED.search(line)
            kernels.append(
                KernelResources(
                    name=name,
                    registers=int(used[1]),
                    stack_bytes=stack[0],
                    spill_stores_bytes=stack[1],
                    spill_loads_bytes=stack[2],
                    shared_bytes=int(shared[1]) if shared else 0,
                )
            )
            name = ""
    return tuple(kernels)
