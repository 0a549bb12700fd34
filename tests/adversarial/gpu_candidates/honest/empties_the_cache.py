"""Gives cached memory back before it starts.

Problem: scale_bias
Verdict: correct
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void scale_bias_kernel(const float* x, const float* w, const float* b, float* y, int n, int f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i] * w[i % f] + b[i % f];
    }
}

torch::Tensor scale_bias(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale_bias_kernel<<<(n + 255) / 256, 256>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), b.data_ptr<float>(), y.data_ptr<float>(), n, w.numel());
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
        torch.cuda.empty_cache()
        return extension.scale_bias(x.contiguous(), self.weight, self.bias)
