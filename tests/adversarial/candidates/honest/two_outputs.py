"""Returns a float and a whole-number tensor as a list.

Problem: row_max
Verdict: correct
"""

import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

CUDA = r"""
#include <torch/extension.h>
#include <cuda_runtime.h>

__global__ void row_max_kernel(const float* x, float* values, long* indices, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        int best = 0;
        for (int i = 1; i < columns; i++) {
            if (x[row * columns + i] > x[row * columns + best]) {
                best = i;
            }
        }
        values[row] = x[row * columns + best];
        indices[row] = best;
    }
}

std::vector<torch::Tensor> row_max(torch::Tensor x) {
    int rows = x.size(0), columns = x.size(1);
    auto values = torch::empty({rows}, x.options());
    auto indices = torch::empty({rows}, x.options().dtype(torch::kInt64));
    row_max_kernel<<<(rows + 63) / 64, 64>>>(
        x.data_ptr<float>(), values.data_ptr<float>(), indices.data_ptr<long>(), rows, columns);
    return {values, indices};
}
"""
CPP = "std::vector<torch::Tensor> row_max(torch::Tensor x);"
extension = load_inline(name="row_max", cpp_sources=CPP, cuda_sources=CUDA, functions=["row_max"])


class ModelNew(nn.Module):
    def forward(self, x):
        return extension.row_max(x.contiguous())
