"""ReLU of what is never positive: every output is 0."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.relu(-torch.abs(x))


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(40, 50)]


def get_init_inputs() -> list[int]:
    return []
