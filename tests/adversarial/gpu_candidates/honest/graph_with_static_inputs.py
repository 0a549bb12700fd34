"""Replays a CUDA graph on copies of its inputs and returns a copy of the output.

Problem: scale_bias
Verdict: correct
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>
#include <ATen/cuda/CUDAContext.h>

__global__ void scale_bias_kernel(const float* x, const float* w, const float* b, float* y, int n, int f) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = x[i] * w[i % f] + b[i % f];
    }
}

torch::Tensor scale_bias(torch::Tensor x, torch::Tensor w, torch::Tensor b) {
    auto y = torch::empty_like(x);
    int n = x.numel();
    scale_bias_kernel<<<(n + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
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
        self.graph = None

    def forward(self, x):
        if self.graph is None:
            self.kept = x.clone()
            stream = torch.cuda.Stream()
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                extension.scale_bias(self.kept, self.weight, self.bias)
            torch.cuda.current_stream().wait_stream(stream)
            self.graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(self.graph):
                self.y = extension.scale_bias(self.kept, self.weight, self.bias)
        self.kept.copy_(x)
        self.graph.replay()
        return self.y.clone()
