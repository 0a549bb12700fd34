"""nvcc over declarations-only headers: what passes, what fails, what is undecided."""

from pathlib import Path

import pytest

from dice.toolchain import nvcc
from dice.toolchain.nvcc import compile_check, find_nvcc
from dice.toolchain.source import ExtensionSources

HEAD = "#include <torch/extension.h>\n"
needs_nvcc = pytest.mark.skipif(find_nvcc() is None, reason="nvcc is not installed")


def check(text: str) -> nvcc.NvccReport:
    return compile_check(ExtensionSources(name="e", cuda_sources=HEAD + text))


@needs_nvcc
def test_a_kernel_compiles_with_its_resources() -> None:
    report = check(
        "template <class T> __global__ void k(T* x) { __shared__ T s[32]; s[threadIdx.x] = x[0];\n"
        "  __syncthreads(); x[threadIdx.x] = s[31 - threadIdx.x]; }\n"
        "torch::Tensor f(torch::Tensor x) { auto y = torch::zeros({x.size(0), 3}, x.options());\n"
        '  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "f", ([&] { k<scalar_t><<<1, 32>>>(y.data_ptr<scalar_t>()); }));\n'
        "  C10_CUDA_KERNEL_LAUNCH_CHECK(); return y; }\n"
    )
    assert report.status == "ok", report.log
    assert {one.shared_bytes for one in report.kernels} == {128, 256}
    assert all(0 < one.registers <= 64 for one in report.kernels)


@needs_nvcc
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("float g(float x) { return x; }\n__global__ void k(float* x) { x[0] = g(x[0]); }", "__host__ function"),
        ("#include <cuda_fp16.h>\n__global__ void k(__half* x) { x[0] = x[0] + x[1]; }", 'operator "+"'),
        ("__global__ void k(float* x) { __shared__ float s[20000]; s[threadIdx.x] = x[0]; __syncthreads(); x[0] = s[1]; }",
         "too much shared data"),
        ("__global__ void k(float* x) {\n  x[0] = missing; }", "missing"),
    ],
)  # fmt: skip
def test_what_real_cuda_rejects(text: str, expected: str) -> None:
    report = check(text)
    assert report.status == "failed"
    assert expected in report.log
    assert report.log.startswith("cuda_source")


@needs_nvcc
@pytest.mark.parametrize(
    "text",
    [
        "torch::Tensor f(torch::Tensor x) { return torch::some_new_function(x); }",
        "#include <ATen/cudnn/Handle.h>\n",
        "torch::Tensor f(torch::Tensor x) { return x.some_new_method(3); }",
    ],
)
def test_a_gap_in_the_declarations_is_undecided(text: str) -> None:
    assert check(text).status == "unsupported"


def test_without_nvcc_it_is_undecided(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(nvcc, "find_nvcc", lambda: None)
    assert check("").status == "unsupported"
