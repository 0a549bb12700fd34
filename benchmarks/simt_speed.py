"""Emulated thread-steps per second: an elementwise, a softmax and a matmul kernel, fast and checked.

A thread-step is one thread executing one pass of its kernel's innermost loop body (elementwise: one
element; softmax: one element in one of its three passes, or one step of its reductions; matmul: one
multiply-add of the inner product). The baseline of each kernel is its own check mode in the same run.

    python benchmarks/simt_speed.py [--threads N] [--seconds 2] [--out FILE]
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine

CUDA = r"""
#include <torch/extension.h>

__global__ void add_kernel(const float* a, const float* b, float* out, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = a[i] + b[i];
}

torch::Tensor add(torch::Tensor a, torch::Tensor b) {
  auto out = torch::empty_like(a);
  int n = a.numel();
  add_kernel<<<(n + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}

__global__ void softmax_kernel(const float* x, float* out, int columns) {
  __shared__ float partial[256];
  const float* row = x + blockIdx.x * columns;
  float high = -INFINITY;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) high = fmaxf(high, row[c]);
  partial[threadIdx.x] = high;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) partial[threadIdx.x] = fmaxf(partial[threadIdx.x], partial[threadIdx.x + s]);
    __syncthreads();
  }
  high = partial[0];
  __syncthreads();
  float sum = 0;
  for (int c = threadIdx.x; c < columns; c += blockDim.x) sum += expf(row[c] - high);
  partial[threadIdx.x] = sum;
  __syncthreads();
  for (int s = blockDim.x / 2; s > 0; s >>= 1) {
    if (threadIdx.x < s) partial[threadIdx.x] += partial[threadIdx.x + s];
    __syncthreads();
  }
  for (int c = threadIdx.x; c < columns; c += blockDim.x)
    out[blockIdx.x * columns + c] = expf(row[c] - high) / partial[0];
}

torch::Tensor softmax(torch::Tensor x) {
  auto out = torch::empty_like(x);
  softmax_kernel<<<x.size(0), 256>>>(x.data_ptr<float>(), out.data_ptr<float>(), x.size(1));
  return out;
}

#define TILE 16
__global__ void matmul_kernel(const float* a, const float* b, float* out, int n) {
  __shared__ float as[TILE][TILE], bs[TILE][TILE];
  int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
  float sum = 0;
  for (int t = 0; t < n; t += TILE) {
    as[threadIdx.y][threadIdx.x] = a[row * n + t + threadIdx.x];
    bs[threadIdx.y][threadIdx.x] = b[(t + threadIdx.y) * n + column];
    __syncthreads();
    for (int k = 0; k < TILE; ++k) sum += as[threadIdx.y][k] * bs[k][threadIdx.x];
    __syncthreads();
  }
  out[row * n + column] = sum;
}

torch::Tensor matmul(torch::Tensor a, torch::Tensor b) {
  auto out = torch::empty_like(a);
  int n = a.size(0);
  matmul_kernel<<<dim3(n / TILE, n / TILE), dim3(TILE, TILE)>>>(a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
  return out;
}
"""
CPP = """
torch::Tensor add(torch::Tensor a, torch::Tensor b);
torch::Tensor softmax(torch::Tensor x);
torch::Tensor matmul(torch::Tensor a, torch::Tensor b);
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One kernel at one size: `steps` thread-steps a call."""

    name: str
    inputs: tuple[Any, ...]
    steps: int
    reference: Callable[..., Any]


def cases() -> list[Case]:
    """The three kernels at sizes that take some ten milliseconds."""
    import torch

    n, rows, columns, size = 2**20, 256, 1024, 256
    x = torch.randn(n)
    square = torch.randn(size, size)
    softmax_steps = rows * (3 * columns + 2 * 256 * 8)
    return [
        Case(name="elementwise", inputs=(x, x), steps=n, reference=torch.add),
        Case(
            name="softmax",
            inputs=(torch.randn(rows, columns),),
            steps=softmax_steps,
            reference=lambda one: one.softmax(-1),
        ),
        Case(name="matmul", inputs=(square, square), steps=size**3, reference=torch.matmul),
    ]


FUNCTIONS = {"elementwise": "add", "softmax": "softmax", "matmul": "matmul"}


def median_call_s(function: Callable[..., Any], inputs: tuple[Any, ...], seconds: float) -> float:
    """Median wall time of a call over about `seconds`."""
    function(*inputs)
    times: list[float] = []
    while sum(times) < seconds or len(times) < 3:
        started = time.perf_counter()
        function(*inputs)
        times.append(time.perf_counter() - started)
    return statistics.median(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--threads", type=int, default=0, help="OS threads of a launch; 0 is all")
    parser.add_argument("--seconds", type=float, default=2.0, help="time per measurement")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    import torch

    from dice.toolchain.build import build
    from dice.toolchain.load import load_module
    from dice.toolchain.simt.runtime import load
    from dice.toolchain.source import BuildOptions, ExtensionSources

    sources = ExtensionSources.from_inline("speed", CPP, CUDA, ["add", "softmax", "matmul"])
    runtime = load(BuildOptions(check=False), print)
    runtime.set_threads(options.threads)
    records: list[dict[str, Any]] = []
    for check in (False, True):
        module = load_module(build(sources, options=BuildOptions(check=check), on_progress=print))
        runtime.set_check(check)
        torch.manual_seed(0)
        for case in cases():
            function = getattr(module, FUNCTIONS[case.name])
            assert torch.allclose(function(*case.inputs), case.reference(*case.inputs), 1e-3, 1e-3)
            call_s = median_call_s(function, case.inputs, options.seconds)
            records.append(
                {
                    "kernel": case.name,
                    "mode": "check" if check else "fast",
                    "call_ms": round(call_s * 1e3, 2),
                    "thread_steps_per_s": round(case.steps / call_s),
                }
            )
        if check:
            assert runtime.diagnostics() == []
    summary: dict[str, Any] = {"threads": options.threads}
    for case in cases():
        fast, checked = (one for one in records if one["kernel"] == case.name)
        ratio = checked["call_ms"] / fast["call_ms"]
        summary[case.name] = {
            "fast_steps_per_s": fast["thread_steps_per_s"],
            "check_steps_per_s": checked["thread_steps_per_s"],
            "fast_over_check": round(ratio, 1),
        }
        print(
            f"{case.name:12} fast {fast['call_ms']:8.2f} ms {fast['thread_steps_per_s'] / 1e6:8.1f} M/s   "
            f"check {checked['call_ms']:8.2f} ms {checked['thread_steps_per_s'] / 1e6:8.1f} M/s   x{ratio:.1f}"
        )
    print(json.dumps(summary))
    machine.write_results("simt_speed", summary, records, options.out)


if __name__ == "__main__":
    main()
