"""Sum of every row, at a size that a CPU has to reduce."""

import torch
import torch.nn as nn

ROWS = 4096
COLUMNS = 8192


class Model(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sum(x, dim=1)


def get_inputs() -> list[torch.Tensor]:
    return [torch.rand(ROWS, COLUMNS)]


def get_init_inputs() -> list[int]:
    return []
