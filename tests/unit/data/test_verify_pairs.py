"""Verification of the teacher by running: one right kernel among every kind of wrong one."""

import shutil
from dataclasses import replace

import pytest

from dice.data.synth import Pair
from dice.data.verify_pairs import CheckOptions, verify_group
from dice.toolchain.source import BuildOptions

PROBLEM = """
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return torch.relu(x) * self.weight

def get_inputs():
    return [torch.randn(5, 37)]

def get_init_inputs():
    return [37]
"""
KERNEL = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

__global__ void scaled_relu(const float* x, const float* w, float* out, int n, int features) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        out[i] = fmaxf(x[i], 0.0f) * w[i % features];
    }
}

torch::Tensor run(torch::Tensor x, torch::Tensor w) {
    auto out = torch::empty_like(x);
    int n = x.numel();
    scaled_relu<<<(n + 63) / 64, 64>>>(
        x.data_ptr<float>(), w.data_ptr<float>(), out.data_ptr<float>(), n, w.numel());
    return out;
}
"""
ext = load_inline(
    name="ext",
    cpp_sources="torch::Tensor run(torch::Tensor x, torch::Tensor w);",
    cuda_sources=source,
    functions=["run"],
)

class ModelNew(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(features))

    def forward(self, x):
        return ext.run(x.contiguous(), self.weight)
'''
RIGHT = Pair(
    family="test",
    schedule="plain",
    ops=("relu", "mul"),
    problem_code=PROBLEM,
    small_code=PROBLEM,
    kernel_code=KERNEL,
)
CHANGES = {
    "build": ("out[i] = fmaxf", "out[i] = undeclared(3) + fmaxf"),
    "values": ("fmaxf(x[i], 0.0f)", "fmaxf(x[i], 0.5f)"),
    # Weights are constructed as ones: only other weights tell that they are ignored.
    "values: ": (" * w[i % features];", " * 1.0f;"),
    "diagnostic": ("if (i < n)", "if (i < n + 9)"),
    "weights": ("self.weight = nn.Parameter", "self.scale = nn.Parameter"),
    "input_changed": ("ext.run(x.contiguous(), self.weight)", "ext.run(x.relu_(), self.weight)"),
    "shape": ("torch::empty_like(x)", "torch::empty({x.numel()}, x.options())"),
    "error": ("ext.run(x.contiguous(), self.weight)", "ext.run(x)"),
    "crash": (
        "ext.run(x.contiguous(), self.weight)",
        "__import__('os').kill(__import__('os').getpid(), 9)",
    ),
    "timeout": ("def forward(self, x):", "def forward(self, x):\n        while True: pass"),
    "import": ("import torch\n", "import torch\nimport no_such_module\n"),
}


@pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++")
def test_every_fault_costs_one_pair_and_has_its_reason() -> None:
    pairs = [RIGHT]
    for before, after in CHANGES.values():
        assert before in KERNEL
        pairs.append(replace(RIGHT, kernel_code=KERNEL.replace(before, after)))
    pairs.append(RIGHT)
    options = CheckOptions(pair_timeout_s=10.0, build=BuildOptions(check=True))
    first, *faults, last = verify_group(pairs, options)
    assert first is None
    assert last is None
    for kind, reason in zip(CHANGES, faults, strict=True):
        assert reason is not None, kind
        assert reason.startswith(kind.rstrip(": ")), (kind, reason)
