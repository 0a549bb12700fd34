"""Tiles in shared memory with edges that do not divide.

Problem: matmul
Verdict: correct
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

#define TILE 16

__global__ void multiply_kernel(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[TILE][TILE], right[TILE][TILE];
    int row = blockIdx.y * TILE + threadIdx.y, column = blockIdx.x * TILE + threadIdx.x;
    float sum = 0.0f;
    for (int start = 0; start < k; start += TILE) {
        int ka = start + threadIdx.x, kb = start + threadIdx.y;
        left[threadIdx.y][threadIdx.x] = row < m && ka < k ? a[row * k + ka] : 0.0f;
        right[threadIdx.y][threadIdx.x] = column < n && kb < k ? b[kb * n + column] : 0.0f;
        __syncthreads();
        for (int i = 0; i < TILE; i++) {
            sum += left[threadIdx.y][i] * right[i][threadIdx.x];
        }
        __syncthreads();
    }
    if (row < m && column < n) {
        c[row * n + column] = sum;
    }
}

torch::Tensor multiply(torch::Tensor a, torch::Tensor b) {
    int m = a.size(0), k = a.size(1), n = b.size(1);
    auto c = torch::empty({m, n}, a.options());
    dim3 grid((n + TILE - 1) / TILE, (m + TILE - 1) / TILE), block(TILE, TILE);
    multiply_kernel<<<grid, block>>>(a.data_ptr<float>(), b.data_ptr<float>(), c.data_ptr<float>(), m, n, k);
    return c;
}
"""
CPP = "torch::Tensor multiply(torch::Tensor a, torch::Tensor b);"
extension = load_inline(name="multiply", cpp_sources=CPP, cuda_sources=CUDA, functions=["multiply"])


class ModelNew(nn.Module):
    def forward(self, a, b):
        return extension.multiply(a.contiguous(), b.contiguous())
