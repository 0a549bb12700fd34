"""AT_DISPATCH over floating-point types.

Problem: scale_bias
Verdict: correct
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

template <typename T>
__global__ void scale_bias_kernel(const T* x, const T* w, const T* b, T* y, int n, int f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i] * w[i % f] + b[i % f];
    }
}

torch::Tensor scale_bias(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = at::empty_like(x);
    int n = x.numel();
    AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "scale_bias", ([&] {
        scale_bias_kernel<scalar_t><<<(n + 255) / 256, 256>>>(
            x.data_ptr<scalar_t>(), w.data_ptr<scalar_t>(), b.data_ptr<scalar_t>(), y.data_ptr<scalar_t>(), n,
            w.numel());
    }));
    return y;
}
"""
CPP = "torch::Tensor scale_bias(torch::Tensor x, torch::Tensor w, torch::Tensor b);"
extension = load_inline(name="scale_bias", cpp_sources=CPP, cuda_sources=CUDA, functions=["scale_bias"])


class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return extension.scale_bias(x.contiguous(), self.weight, self.bias)
