"""Builds, end to end: values computed by the loaded functions, routes, errors, the cache."""

import multiprocessing
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dice.errors import BuildFailure
from dice.toolchain.build import build, build_batch
from dice.toolchain.load import load_module
from dice.toolchain.source import BuildOptions, BuiltExtension, ExtensionSources

SCALE_CUDA = """
#include <torch/extension.h>
#include <cuda_runtime.h>
#define BLOCK 128
template <typename T>
__global__ void scale_kernel(const T* x, T* y, int n, float factor) {
  __shared__ T tile[BLOCK];
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : T(0);
  __syncthreads();
  if (i < n) y[i] = tile[threadIdx.x] * factor;
}
torch::Tensor scale(torch::Tensor x, double factor) {
  TORCH_CHECK(x.is_cuda(), "x must be a CUDA tensor");
  auto y = torch::empty_like(x);
  int n = x.numel();
  scale_kernel<float><<<(n + BLOCK - 1) / BLOCK, BLOCK>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, factor);
  return y;
}
"""
SCALE = ExtensionSources(
    name="scale",
    cpp_sources="torch::Tensor scale(torch::Tensor x, double factor);",
    cuda_sources=SCALE_CUDA,
    functions=("scale",),
)


def test_a_kernel_computes(fast_options: BuildOptions) -> None:
    built = build(SCALE, options=fast_options)
    assert built.route == "slim"
    x = torch.arange(1000, dtype=torch.float32)
    module = load_module(built)
    assert module.__name__ == "scale"
    assert torch.equal(module.scale(x, 2.5), x * 2.5)


def test_arguments_behave_as_under_the_stock_build(fast_options: BuildOptions) -> None:
    module = load_module(build(SCALE, options=fast_options))
    x = torch.ones(3)
    for arguments, keywords in (
        ((x,), {}),
        ((x, 1.0, 2), {}),
        ((x,), {"factor": 2.0}),
        ((x, "a"), {}),
        ((None, 1.0), {}),
    ):
        with pytest.raises(TypeError):
            module.scale(*arguments, **keywords)
    with pytest.raises(RuntimeError, match="expected scalar type"):
        module.scale(x.double(), 1.0)


VALUES_CPP = """
#include <torch/extension.h>
std::vector<torch::Tensor> both(torch::Tensor x, std::vector<int64_t> dims) { return {x.sum(dims), x + 1}; }
std::tuple<torch::Tensor, int64_t, bool> several(const torch::Tensor& x) { return {x * 2, x.numel(), true}; }
torch::Tensor maybe(torch::Tensor x, c10::optional<torch::Tensor> bias, std::string mode, float eps) {
  if (mode == "plain") return x + eps;
  return bias ? x + *bias : x;
}
void fill(torch::Tensor& x, bool up) { x.fill_(up ? 1 : -1); }
int64_t count(at::IntArrayRef sizes) { int64_t n = 1; for (auto one : sizes) n *= one; return n; }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("both", &both, "two tensors");
  m.def("several", &several);
  m.def("maybe", &maybe, py::arg("x"), py::arg("bias") = py::none(), py::arg("mode") = "add", py::arg("eps") = 0.5);
  m.def("fill", &fill);
  m.def("count", &count);
}
"""


def test_values_of_many_types(fast_options: BuildOptions) -> None:
    built = build(ExtensionSources(name="values", cpp_sources=VALUES_CPP), options=fast_options)
    assert built.route == "slim"
    module = load_module(built)
    x = torch.arange(6.0).reshape(2, 3)
    total, more = module.both(x, [0])
    assert torch.equal(total, x.sum(0))
    assert torch.equal(more, x + 1)
    doubled, number, flag = module.several(x)
    assert torch.equal(doubled, x * 2)
    assert (number, flag) == (6, True)
    assert torch.equal(module.maybe(x), x)
    assert torch.equal(module.maybe(x, bias=x), x + x)
    assert torch.equal(module.maybe(x, mode="plain"), x + 0.5)
    assert torch.equal(module.maybe(x, None, "plain", eps=2), x + 2)
    with pytest.raises(TypeError, match="no keyword argument 'wrong'"):
        module.maybe(x, wrong=1)
    with pytest.raises(TypeError, match="given twice"):
        module.maybe(x, x=x)
    assert module.fill(x, False) is None
    assert torch.equal(x, -torch.ones(2, 3))
    assert module.count((2, 3, 4)) == 24


def test_default_arguments_in_both_sources_and_declarations_repeated(
    fast_options: BuildOptions,
) -> None:
    cuda = "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x, double a = 1.0) { return x * a; }"
    cpp = "at::Tensor f(at::Tensor x, double a = 1.0);\nat::Tensor f(at::Tensor x, double a);"
    sources = ExtensionSources(name="e", cpp_sources=cpp, cuda_sources=cuda, functions=("f",))
    module = load_module(build(sources, options=fast_options))
    assert torch.equal(module.f(torch.ones(2), 3.0), torch.full((2,), 3.0))


def test_names_that_clash_between_the_sources_are_split(fast_options: BuildOptions) -> None:
    cuda = "#include <torch/extension.h>\nstatic int helper() { return 1; }\ntorch::Tensor f(torch::Tensor x) { return x * helper(); }"
    cpp = (
        "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x);\n"
        "static int helper() { return 5; }\ntorch::Tensor g(torch::Tensor x) { return f(x) * helper(); }"
    )
    sources = ExtensionSources(name="e", cpp_sources=cpp, cuda_sources=cuda, functions=("g",))
    built = build(sources, options=fast_options)
    assert built.route == "slim-split"
    assert "redefinition" in built.notes[0]
    assert torch.equal(load_module(built).g(torch.ones(2)), torch.full((2,), 5.0))


def failure_of(
    cuda: str, options: BuildOptions, cpp: str = "torch::Tensor f(torch::Tensor x);"
) -> str:
    sources = ExtensionSources(name="e", cpp_sources=cpp, cuda_sources=cuda, functions=("f",))
    with pytest.raises(BuildFailure) as caught:
        build(sources, options=options)
    return str(caught.value)


def test_errors_point_at_the_candidates_own_line(fast_options: BuildOptions) -> None:
    cuda = "#include <torch/extension.h>\n__global__ void k(float* x) {\n  x[0] = missing;\n}\ntorch::Tensor f(torch::Tensor x) { k<<<1, 1>>>(x.data_ptr<float>()); return x; }\n"
    message = failure_of(cuda, fast_options)
    assert message.startswith("cuda_source:3:")
    assert "'missing' was not declared" in message
    assert message.endswith("x[0] = missing;")


def test_wrong_kernel_arguments_point_at_the_launch(fast_options: BuildOptions) -> None:
    cuda = "#include <torch/extension.h>\n__global__ void k(float* x, int n) {}\ntorch::Tensor f(torch::Tensor x) {\n  k<<<1, 1>>>(x.data_ptr<float>());\n  return x;\n}\n"
    assert failure_of(cuda, fast_options).startswith("cuda_source:4:")


def test_shared_memory_of_variable_size_is_an_error_as_in_cuda(fast_options: BuildOptions) -> None:
    cuda = "#include <torch/extension.h>\n__global__ void k(float* x, int n) {\n  __shared__ float s[n];\n  s[0] = x[0];\n}\n"
    assert failure_of(cuda, fast_options).startswith("cuda_source:3:")


def test_an_error_in_cpp_sources_points_there(fast_options: BuildOptions) -> None:
    cpp = "\n\ntorch::Tensor f(torch::Tensor x) { return x + nothing; }"
    assert failure_of("", fast_options, cpp).startswith("cpp_source:3:")


@pytest.mark.parametrize("path", ["/etc/passwd", "../../secret.h", "/dev/zero"])
def test_foreign_includes_are_refused(path: str, fast_options: BuildOptions) -> None:
    message = failure_of(f'#include <torch/extension.h>\n#include "{path}"\n', fast_options)
    assert message.startswith("cuda_source:2:")


def test_an_included_file_is_not_quoted(fast_options: BuildOptions) -> None:
    """The path hidden behind a macro, so that only the compiler sees it."""
    message = failure_of('#define P "/etc/passwd"\n#include P\n', fast_options)
    assert "root" not in message


def test_a_compiler_bomb_is_stopped(fast_options: BuildOptions) -> None:
    bomb = (
        "template <int N> struct A { A<N - 1> a; A<N - 1> b; };\n"
        "constexpr long spin() { long n = 0; for (long i = 0; i < 1000000000000; ++i) n += i; return n; }\n"
        "static_assert(spin() == 1);\n#pragma GCC optimize\n"
    )
    with pytest.raises(BuildFailure):
        build(
            ExtensionSources(name="e", cpp_sources=bomb, cuda_sources=""),
            options=replace(fast_options, timeout_s=20, use_cache=False),
        )


def test_a_symbol_defined_nowhere_fails_at_loading(fast_options: BuildOptions) -> None:
    cpp = "torch::Tensor f(torch::Tensor x, int64_t missing);"
    sources = ExtensionSources(name="e", cpp_sources=cpp, cuda_sources="", functions=("f",))
    with pytest.raises(BuildFailure, match="declared but defined nowhere: f"):
        load_module(build(sources, options=fast_options))


def test_the_second_build_is_cached_and_failures_too(fast_options: BuildOptions) -> None:
    build(SCALE, options=fast_options)
    again = build(SCALE, options=fast_options)
    assert again.cached
    assert again.seconds < 1.0
    message = failure_of("int x = y;", fast_options)
    assert failure_of("int x = y;", fast_options) == message


def build_in_child(sources: ExtensionSources, options: BuildOptions) -> str:
    return build(sources, options=options).path


def test_two_processes_build_the_same_source(fast_options: BuildOptions) -> None:
    sources = replace(SCALE, cuda_sources=SCALE_CUDA + f"// {Path(__file__).stat().st_mtime_ns}\n")
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        paths = pool.starmap(build_in_child, [(sources, fast_options)] * 2)
    assert paths[0] == paths[1]
    assert Path(paths[0]).is_file()


def test_defines_reach_both_sources(fast_options: BuildOptions) -> None:
    cpp = "int64_t f() { return FACTOR; }"
    sources = ExtensionSources(
        name="e", cpp_sources=cpp, functions=("f",), defines=(("FACTOR", "7"),)
    )
    assert load_module(build(sources, options=fast_options)).f() == 7


def test_a_batch_is_one_shared_object_with_separate_names(fast_options: BuildOptions) -> None:
    many = [
        replace(SCALE, cuda_sources=SCALE_CUDA.replace("* factor", f"* factor + {number}"))
        for number in range(3)
    ]
    broken = replace(SCALE, cuda_sources=SCALE_CUDA.replace("* factor", "* nothing"))
    undeclared = replace(SCALE, functions=("other",))
    results = build_batch([many[0], broken, many[1], undeclared, many[2]], fast_options)
    good = [one for one in results if isinstance(one, BuiltExtension)]
    assert [one.route for one in good] == ["batch"] * 3
    assert len({one.path for one in good}) == 1
    x = torch.arange(10, dtype=torch.float32)
    for number, one in enumerate(good):
        assert torch.equal(load_module(one).scale(x, 2.0), x * 2 + number)
    assert isinstance(results[1], BuildFailure)
    assert "'nothing' was not declared" in str(results[1])
    assert isinstance(results[3], BuildFailure)


def test_torch_names_beyond_the_basic_ones(fast_options: BuildOptions) -> None:
    cpp = """
#include <torch/extension.h>
using namespace torch::indexing;
torch::Tensor f(torch::Tensor x) {
  std::vector<torch::Tensor> parts{x, x + 1};
  auto rows = torch::cat(parts, 0), more = torch::cat({x, x * 2});
  return torch::stack({rows, more}).index({0, Slice(1, 3)}) - 1 + at::relu(rows.slice(0, 1, 3));
}
"""
    sources = ExtensionSources(name="e", cpp_sources=cpp, functions=("f",))
    x = torch.arange(6.0).reshape(3, 2) - 2
    rows = torch.cat([x, x + 1])
    assert torch.equal(
        load_module(build(sources, options=fast_options)).f(x), rows[1:3] - 1 + rows[1:3].relu()
    )


@pytest.mark.slow
def test_other_module_bodies_and_more_of_torchs_api_take_the_full_route(
    fast_options: BuildOptions,
) -> None:
    """The first run builds the precompiled header with pybind11, about a minute."""
    own = (
        SCALE_CUDA
        + """PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("plus", [](torch::Tensor x, int n) { return scale(x, 2.0) + n; }, py::arg("x"), py::arg("n") = 3);
}
"""
    )
    first = build(ExtensionSources(name="e", cuda_sources=own), options=fast_options)
    cpp = "#include <torch/extension.h>\ntorch::Tensor g(torch::Tensor x) { return torch::nn::functional::silu(x); }"
    second = build(
        ExtensionSources(name="e", cpp_sources=cpp, functions=("g",)), options=fast_options
    )
    assert (first.route, second.route) == ("full", "full")
    assert second.notes[0].startswith("the slim route failed: cpp_source:2:")
    x = torch.ones(3)
    assert torch.equal(load_module(first).plus(x=x), torch.full((3,), 5.0))
    assert torch.equal(load_module(second).g(x), torch.nn.functional.silu(x))
