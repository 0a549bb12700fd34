"""Multiply by a weight and add a bias, per feature."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def __init__(self, features: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.randn(features))
        self.bias = nn.Parameter(torch.randn(features))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * self.weight + self.bias


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(48, 70)]


def get_init_inputs() -> list[int]:
    return [70]
