"""Loads four floats at a time and finishes the tail one by one.

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
    int i = (blockIdx.x * blockDim.x + threadIdx.x) * 4;
    if (i + 3 < n) {
        float4 v = *reinterpret_cast<const float4*>(x + i);
        v.x = v.x * w[i % f] + b[i % f];
        v.y = v.y * w[(i + 1) % f] + b[(i + 1) % f];
        v.z = v.z * w[(i + 2) % f] + b[(i + 2) % f];
        v.w = v.w * w[(i + 3) % f] + b[(i + 3) % f];
        *reinterpret_cast<float4*>(y + i) = v;
    } else {
        for (int k = i; k < n; k++) {
            y[k] = x[k] * w[k % f] + b[k % f];
        }
    }
}

torch::Tensor scale_bias(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    int blocks = ((n + 3) / 4 + 127) / 128;
    scale_bias_kernel<<<blocks, 128>>>(
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
        return extension.scale_bias(x.contiguous(), self.weight, self.bias)
