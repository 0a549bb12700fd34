"""Interception changes the process for good, so every case runs in a process of its own."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dice.toolchain.source import BuildOptions

ROOT = Path(__file__).parents[3]

HEADER = """
import json, warnings
warnings.simplefilter("error")
import torch
from torch.utils.cpp_extension import load_inline
import torch.utils.cpp_extension as stock
from dice.toolchain.intercept import install
from dice.toolchain.source import BuildOptions
interceptor = install(BuildOptions(check=False))
torch.set_num_threads(1)
"""


def run(body: str, tmp_path: Path) -> object:
    """Run Python after the interception; returns what it leaves in `result`."""
    script = tmp_path / "script.py"
    script.write_text(HEADER + body + "\nprint('RESULT ' + json.dumps(result))\n")
    ran = subprocess.run(
        [sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path,
        env={**__import__("os").environ, "PYTHONPATH": str(ROOT / "src")}, timeout=250,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr
    [line] = [one for one in ran.stdout.splitlines() if one.startswith("RESULT ")]
    return json.loads(line.removeprefix("RESULT "))


def test_the_cuda_device_works_on_the_cpu(tmp_path: Path) -> None:
    result = run(
        """
x = torch.randn(3, 4, device="cuda").cuda().to("cuda").to(torch.device("cuda:0")).to(0)
layer = torch.nn.Linear(4, 4, device="cuda").cuda().to("cuda")
y = torch.empty_like(layer(x), device=torch.device("cuda"))
begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event()
begin.record(); end.record(); torch.cuda.synchronize()
torch.manual_seed(1); torch.cuda.manual_seed_all(1)
with torch.device("cuda"), torch.cuda.stream(torch.cuda.Stream()), torch.cuda.device(0):
    z = torch.zeros(2)
recurrent = torch.nn.LSTM(4, 4, 2)(x)[0]
result = [str(y.device), str(z.device), x.is_cuda, torch.cuda.is_available(), begin.elapsed_time(end) >= 0,
          isinstance(x.device, torch.device), torch.device("cuda").type, torch.cuda.device_count(), list(recurrent.shape),
          x.device.type, x.device == torch.device("cuda:0"), torch.zeros(2, device=x.device).new_ones(2, device=x.device).tolist(),
          x.to(z.device).add(1).device.index, layer.weight.device.type, torch.empty(1, device="meta").device.type]
""",
        tmp_path,
    )
    seen = ["cuda:0", "cuda:0", True, True, True, True, "cuda", 1, [3, 4]]
    assert result == [*seen, "cuda", True, [1.0, 1.0], 0, "cuda", "meta"]


def test_load_inline_under_every_name_and_with_every_argument(
    tmp_path: Path, fast_options: BuildOptions
) -> None:
    result = run(
        """
cpp = "torch::Tensor f(torch::Tensor x);"
cuda = '''
__global__ void k(float* x, int n) { int i = threadIdx.x; if (i < n) x[i] *= FACTOR; }
torch::Tensor f(torch::Tensor x) { auto y = x.clone(); k<<<1, 32>>>(y.data_ptr<float>(), y.numel()); return y; }
'''
one = load_inline("one", cpp, cuda, ["f"], extra_cuda_cflags=["-O3", "--use_fast_math", "-DFACTOR=3"], verbose=True,
                  with_cuda=True, extra_ldflags=["-lcublas"], build_directory=".", no_implicit_headers=False)
two = stock.load_inline(name="two", cpp_sources=[cpp], cuda_sources=[cuda], functions="f", extra_cflags=["-D", "FACTOR=4"])
x = torch.ones(5, device="cuda")
result = [one.f(x).tolist(), two.f(x).tolist(), [e.sources.name for e in interceptor.extensions], one.__name__]
""",
        tmp_path,
    )
    assert result == [[3.0] * 5, [4.0] * 5, ["one", "two"], "one"]


def test_load_reads_files_with_their_own_module(tmp_path: Path, fast_options: BuildOptions) -> None:
    (tmp_path / "own.h").write_text("torch::Tensor twice(torch::Tensor x);\n")
    (tmp_path / "k.cu").write_text(
        '#include <torch/extension.h>\n#include "own.h"\n'
        "__global__ void k(float* x) { x[threadIdx.x] *= 2; }\n"
        "torch::Tensor twice(torch::Tensor x) { k<<<1, 4>>>(x.data_ptr<float>()); return x; }\n"
    )
    (tmp_path / "m.cpp").write_text(
        '#include <torch/extension.h>\n#include "own.h"\n'
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("twice", &twice, "doubles", py::arg("x")); }\n'
    )
    result = run(
        """
from pathlib import Path
module = stock.load(name="files", sources=[str(Path.cwd() / "k.cu"), str(Path.cwd() / "m.cpp")])
result = [module.twice(x=torch.ones(4)).tolist(), interceptor.extensions[0].route]
""",
        tmp_path,
    )
    assert result == [[2.0] * 4, "slim"]


def test_a_failure_is_raised_and_recorded(tmp_path: Path, fast_options: BuildOptions) -> None:
    result = run(
        """
from dice.errors import BuildFailure
try:
    load_inline("bad", "int f() { return }", "", ["f"])
except BuildFailure as error:
    result = [str(error).split(":")[0], len(interceptor.failures)]
""",
        tmp_path,
    )
    assert result == ["cpp_source", 1]


@pytest.mark.parametrize("reply", ["built elsewhere"])
def test_builds_can_be_handed_to_another_process(tmp_path: Path, reply: str) -> None:
    result = run(
        f"""
from dice.errors import BuildFailure
from dice.toolchain import intercept
def elsewhere(sources):
    raise BuildFailure({reply!r} + " " + sources.name)
other = intercept.install(build=elsewhere)
try:
    stock.load_inline("x", "", "", [])
except BuildFailure as error:
    result = str(error)
""",
        tmp_path,
    )
    assert result == f"{reply} x"


def test_headers_of_the_candidates_own_need_no_file_at_build_time(
    tmp_path: Path, fast_options: BuildOptions
) -> None:
    """As under the judge, where another process builds and sees no file of the candidate's."""
    (tmp_path / "headers").mkdir()
    (tmp_path / "headers" / "factor.cuh").write_text("#pragma once\n#define FACTOR 3\n")
    result = run(
        """
cuda = '''#include <torch/extension.h>
#include "factor.cuh"
__global__ void k(float* x) { x[threadIdx.x] *= FACTOR; }
torch::Tensor f(torch::Tensor x) { k<<<1, 4>>>(x.data_ptr<float>()); return x; }'''
module = load_inline(name="own", cpp_sources="torch::Tensor f(torch::Tensor x);", cuda_sources=cuda,
                     functions=["f"], extra_include_paths=["headers"])
sources = interceptor.sources[0]
result = [module.f(torch.ones(4)).tolist(), "FACTOR 3" in sources.cuda_sources, sources.stock_reason]
""",
        tmp_path,
    )
    assert result == [[3.0] * 4, True, ""]
