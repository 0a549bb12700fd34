"""The two halves of a CUDA source, and what ties them together again."""

import subprocess
import sys

import pytest

from dice.errors import BuildFailure
from dice.toolchain.cuda import elf, layout
from dice.toolchain.cuda.build import build, device_check
from dice.toolchain.cuda.device import errors
from dice.toolchain.cuda.flags import device_flags
from dice.toolchain.cuda.link import stub_text
from dice.toolchain.cuda.options import CudaOptions
from dice.toolchain.cuda.split import split_source
from dice.toolchain.intercept import Interceptor
from dice.toolchain.nvcc import find_nvcc
from dice.toolchain.parse import parse
from dice.toolchain.source import ExtensionSources

SOURCE = """\
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <vector>
#define TILE 16
constexpr int twice(int n) { return 2 * n; }
__constant__ float weights[4];
__device__ float square(float x) {
  return x * x;
}
template <typename T, int N>
__global__ void scale(const T* __restrict__ x, T* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * (T)N;
}
static __global__ void fill(float* y, float value) {
  y[threadIdx.x] = square(value) * weights[0] + twice(TILE);
}
std::vector<int64_t> sizes(torch::Tensor x) { return x.sizes().vec(); }
torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  float w[4] = {1, 2, 3, 4};
  cudaMemcpyToSymbol(weights, w, sizeof(w));
  scale<float, 3><<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), (int)x.numel());
  fill<<<1, 32>>>(y.data_ptr<float>(), 2.0);
  return y;
}
"""


def _can_build() -> str:
    if layout.cuda_include() is None:
        return "CUDA's headers are not installed"
    if find_nvcc() is None and layout.nvrtc_library() is None:
        return "neither nvcc nor NVRTC is installed"
    return ""


needs_cuda = pytest.mark.skipif(bool(_can_build()), reason=_can_build() or "ready")
OPTIONS = CudaOptions(architecture="sm_90", allow_stock=False)


def test_halves_keep_every_line_where_it_was():
    split = split_source(parse(SOURCE))
    for half in (split.host, split.device):
        assert half.count("\n") == SOURCE.count("\n")
    lines = split.device.splitlines()
    assert lines[10] == SOURCE.splitlines()[10]
    assert split.kernels == {"scale", "fill"}
    assert split.templates
    assert split.variables == ("weights",)


def test_the_host_half_has_stubs_and_no_device_code():
    host = split_source(parse(SOURCE)).host
    assert "threadIdx" not in host
    assert "x * x" not in host
    assert "&scale<T, N>" in host
    assert "(void*)&x, (void*)&y, (void*)&n" in host
    assert "SIMT_LAUNCH((scale<float, 3>), (1, 32), x.data_ptr" in host
    assert "static __global__" not in host


def test_the_device_half_has_no_torch_and_keeps_what_kernels_use():
    device = split_source(parse(SOURCE)).device
    for word in ("torch", "vector", "std::"):
        assert word not in device
    for word in ("square", "twice", "TILE 16", "weights[4]", "threadIdx"):
        assert word in device


def test_kernels_of_an_anonymous_namespace_get_a_name():
    split = split_source(parse("namespace {\n__global__ void k(float* y) { y[0] = 1; }\n}\n"))
    assert "inline namespace dice_local" in split.host
    assert "inline namespace dice_local" in split.device


def test_names_are_found_in_demangled_declarations():
    assert (
        elf.demangle("_Z5scaleIfLi3EEvPKT_PS0_i")
        == "void scale<float, 3>(float const*, float*, int)"
    )
    assert elf.base_name("void a::b::scale<float, 3>(float const*, float*, int)") == "scale"
    assert elf.base_name("fill(float*, float)") == "fill"
    assert elf.base_name("weights") == "weights"
    assert elf.demangle("plain") == "plain"


def test_flags_are_passed_ignored_or_unknown():
    flags = device_flags(
        ("-O3", "--use_fast_math", "-lineinfo", "-Xptxas", "-v", "-maxrregcount", "64")
    )
    assert flags.passed == ("--use_fast_math", "--maxrregcount=64")
    assert flags.unknown is None
    assert device_flags(("-rdc=true",)).unknown == "-rdc=true"
    half = device_flags(("-U__CUDA_NO_HALF_OPERATORS__",))
    assert half.undefined == ("__CUDA_NO_HALF_OPERATORS__",)


def test_flags_reach_the_sources_of_an_intercepted_build():
    seen = []

    def refuse(sources):
        seen.append(sources)
        raise BuildFailure("seen")

    interceptor = Interceptor(build=refuse)
    with pytest.raises(BuildFailure):
        interceptor.load_inline(
            "m",
            "",
            "",
            [],
            extra_cuda_cflags=["-O3", "-DN=4", "-D", "M"],
            extra_ldflags=["-lcublas"],
        )
    assert seen[0].cuda_flags == ("-O3",)
    assert seen[0].defines == (("N", "4"), ("M", "1"))
    assert seen[0].stock_reason == "it links -lcublas"


def test_an_error_that_the_split_may_cause_is_a_gap_and_others_are_the_sources():
    text = "__global__ void k() {\n  undeclared = 1;\n}\n"
    own = 'cuda_source(2): error: identifier "undeclared" is undefined\n'
    gap = (
        'cuda_source(2): error: name followed by "::" must be a class or namespace name: at::Half\n'
    )
    messages, gaps = errors(own, text)
    assert [one.line for one in messages] == [2]
    assert messages[0].source_line == "undeclared = 1;"
    assert not gaps
    assert errors(own + gap, text)[1]


def test_the_stub_names_each_kernel_twice_and_ends_its_tables():
    text = stub_text(["_Z1kPf"], ["weights"])
    assert ".quad _Z1kPf, .Lname0" in text
    assert '.Lname1: .asciz "weights"' in text
    assert text.count(".quad 0, 0") == 2


@needs_cuda
def test_a_split_build_holds_every_kernel_that_its_host_half_launches():
    sources = ExtensionSources(
        name="m",
        cpp_sources="torch::Tensor run(torch::Tensor x);",
        cuda_sources=SOURCE,
        functions=("run",),
    )
    built = build(sources, options=OPTIONS)
    assert built.route in ("split", "split-nvcc")
    names = {elf.demangle(one) for one in elf.defined_symbols(built_path(built))}
    assert "void scale<float, 3>(float const*, float*, int)" in names
    again = build(sources, options=OPTIONS)
    assert again.cached
    assert again.path == built.path


def built_path(built):
    from pathlib import Path

    return Path(built.path)


@needs_cuda
def test_a_device_error_is_found_at_its_line_before_any_host_code_is_compiled():
    text = SOURCE.replace("return x * x;", "return x * missing;")
    with pytest.raises(BuildFailure, match=r"cuda_source:8:.*missing"):
        device_check(ExtensionSources(name="m", cuda_sources=text), OPTIONS)


@needs_cuda
def test_a_host_error_is_found_at_its_line():
    text = SOURCE.replace("return y;\n}", "return nowhere;\n}")
    sources = ExtensionSources(
        name="m",
        cpp_sources="torch::Tensor run(torch::Tensor x);",
        cuda_sources=text,
        functions=("run",),
    )
    with pytest.raises(BuildFailure, match=r"cuda_source:25:.*nowhere"):
        build(sources, options=OPTIONS)


@needs_cuda
def test_what_needs_a_library_is_left_to_the_stock_path():
    text = "#include <cudnn.h>\n" + SOURCE
    with pytest.raises(BuildFailure, match="cannot decide"):
        build(ExtensionSources(name="m", cuda_sources=text, functions=()), options=OPTIONS)


def test_torchs_own_build_can_be_asked_for(monkeypatch, tmp_path):
    monkeypatch.setattr(
        "dice.toolchain.cuda.build.build_stock", lambda sources, options: (tmp_path, False)
    )
    built = build(
        ExtensionSources(name="m", cuda_sources=SOURCE), options=CudaOptions(always_stock=True)
    )
    assert built.route == "stock"
    assert built.path == str(tmp_path)
    assert built.notes == ("does not split: it was asked not to",)


def test_nothing_here_starts_cuda():
    code = "import dice.toolchain.cuda.build, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
