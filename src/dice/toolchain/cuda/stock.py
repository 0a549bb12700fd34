"""The stock path: torch.utils.cpp_extension builds the extension, in the sandbox, in about a minute."""

import json
import sys
import uuid
from pathlib import Path

from dice import sandbox
from dice.errors import BuildFailure
from dice.sandbox.confine import python_roots
from dice.toolchain.bindings import MODULE_NAME
from dice.toolchain.cache import Cache, cache_root, digest
from dice.toolchain.compiler import compiler_roots, find_compiler
from dice.toolchain.cuda import layout
from dice.toolchain.cuda.device import errors
from dice.toolchain.cuda.options import CudaOptions
from dice.toolchain.nvcc import find_nvcc
from dice.toolchain.simt import layout as simt_layout
from dice.toolchain.source import ExtensionSources

KIND = "cuda-stock"


def build_stock(sources: ExtensionSources, options: CudaOptions) -> tuple[Path, bool]:
    """(shared object, whether it was in the cache). Raises BuildFailure."""
    nvcc = find_nvcc()
    if nvcc is None:
        raise BuildFailure(
            "this source needs torch's own build, which needs nvcc: install the CUDA toolkit"
        )
    cache = Cache(cache_root(options.cache_dir))
    torch = simt_layout.torch_layout()
    request = {
        "name": MODULE_NAME,
        "cpp": sources.cpp_sources,
        "cuda": sources.cuda_sources,
        "functions": list(sources.functions),
        "flags": [*(f"-D{name}={value}" for name, value in sources.defines), *sources.cuda_flags],
        "ld_flags": list(sources.ld_flags),
    }
    text = json.dumps(request, sort_keys=True)
    key = digest("1", torch.version, str(torch.library_dir), options.target, str(nvcc), text)
    if not options.use_cache:
        key += f"-{uuid.uuid4().hex[:8]}"
    found = cache.find(KIND, key)
    if found is not None:
        return found / "extension.so", True
    with cache.workspace() as workspace:
        (workspace / "request.json").write_text(text)
        built = workspace / "built"
        built.mkdir()
        result = _run(workspace, nvcc, options)
        if not (built / "extension.so").is_file():
            raise BuildFailure(_explain(result, sources, options))
        return cache.publish(built, KIND, key) / "extension.so", False


def _run(workspace: Path, nvcc: Path, options: CudaOptions) -> sandbox.ChildResult:
    include = layout.cuda_include()
    assert include is not None
    home = include.parent
    homes = [str(home), str(home.resolve()), str(nvcc.parent), str(nvcc.resolve().parent.parent)]
    number = options.target.removeprefix("sm_").rstrip("a")
    torch_home = simt_layout.torch_layout().library_dir.parent
    programs = [sys.prefix, sys.base_prefix, *compiler_roots(find_compiler())]
    path = [str(home / "bin"), str(Path(sys.executable).parent), str(find_compiler().parent)]
    return sandbox.run(
        [sys.executable, "-P", str(layout.STOCK_CHILD), str(workspace)],
        limits=sandbox.Limits(
            wall_s=options.stock_timeout_s,
            cpu_s=int(options.stock_timeout_s),
            memory_mib=3 * options.memory_mib,
            file_size_mib=1024,
            output_kib=256,
        ),
        cwd=str(workspace),
        readable=[*python_roots(), *homes, str(torch_home.parent), sys.prefix, sys.base_prefix],
        executable=[*programs, *homes],
        environment={
            "PATH": ":".join([*path, "/usr/bin", "/bin"]),
            "CUDA_HOME": str(home),
            "TORCH_CUDA_ARCH_LIST": f"{number[:-1]}.{number[-1]}",
            "TORCH_EXTENSIONS_DIR": str(workspace / "stock"),
            "MAX_JOBS": "2",
            "LC_ALL": "C",
            "PYTHONPATH": ":".join(one for one in sys.path if one),
        },
    )


def _explain(result: sandbox.ChildResult, sources: ExtensionSources, options: CudaOptions) -> str:
    if result.timed_out:
        return f"torch's own build was stopped after {options.stock_timeout_s:.0f} s"
    text = result.stdout + result.stderr
    messages, gaps = errors(text.replace("cuda.cu(", "cuda_source("), "")
    found = [str(one) for one in messages] + gaps
    if found:
        return "torch's own build rejects it:\n" + "\n".join(found[:10])
    lines = [line for line in text.splitlines() if "error" in line.lower()]
    return "torch's own build rejects it:\n" + "\n".join(line[:300] for line in lines[:10])
