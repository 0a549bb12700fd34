"""The tail of a transformer's first MLP layer: add the bias, then GELU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

TOKENS, HIDDEN = 4096, 3072


class Model(nn.Module):
    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.bias = nn.Parameter(torch.randn(hidden) * 0.02)

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return F.gelu(hidden_states + self.bias)


def get_inputs() -> list[torch.Tensor]:
    return [torch.randn(TOKENS, HIDDEN)]


def get_init_inputs() -> list[int]:
    return [HIDDEN]
