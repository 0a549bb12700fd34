"""Atomic additions to an output set to zero: another order of summation at every run.

Problem: row_sum
Verdict: correct
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void row_sum_kernel(const float* x, float* y, int n, int columns) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        atomicAdd(&y[i / columns], x[i]);
    }
}

torch::Tensor row_sum(torch::Tensor x) {
    auto y = torch::zeros({x.size(0)}, x.options());
    int n = x.numel();
    row_sum_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), n, x.size(1));
    return y;
}
"""
extension = load_inline(
    name="row_sum", cpp_sources="torch::Tensor row_sum(torch::Tensor x);", cuda_sources=CUDA, functions=["row_sum"]
)


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_sum(x.contiguous())
