"""Dropout in training mode: the reference itself is random."""

import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x, p=0.5, training=True)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(40, 50)]


def get_init_inputs() -> list[int]:
    return []
