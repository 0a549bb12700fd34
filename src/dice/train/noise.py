"""SDAR's forward process: which label positions are hidden, and with what probability.

t ~ U(0, 1) per sample or per diffusion block, p = (1 - eps) t + eps, and each label position is masked
independently with p. Prompt and padding are never masked. (DESIGN section 5.)
"""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from dice.train.layout import PackedRows


@dataclass(frozen=True, slots=True, kw_only=True)
class Noise:
    """One draw for packed rows; [B, L] each."""

    masked_BL: Tensor
    """True where the noisy copy shows the mask token."""
    probability_BL: Tensor
    """p of every position's group, float32."""


def draw_noise(
    rows: PackedRows,
    *,
    level: Literal["sample", "block"],
    block_size: int,
    eps: float,
    generator: torch.Generator,
) -> Noise:
    """Draw one noise level per sample or per block of it, and the mask."""
    sample_BL, group_BL = rows.sample_BL, rows.sample_BL
    starts_BL = torch.ones_like(sample_BL, dtype=torch.bool)
    starts_BL[:, 1:] = sample_BL[:, 1:] != sample_BL[:, :-1]
    if level == "block":
        group_BL = rows.position_BL // block_size
        starts_BL[:, 1:] |= group_BL[:, 1:] != group_BL[:, :-1]
    group_BL = (starts_BL.flatten().cumsum(0) - 1).view_as(sample_BL)
    t = torch.rand(int(group_BL[-1, -1]) + 1, generator=generator)
    probability_BL = ((1.0 - eps) * t + eps)[group_BL]
    drawn_BL = torch.rand(sample_BL.shape, generator=generator) < probability_BL
    return Noise(masked_BL=drawn_BL & rows.label_BL, probability_BL=probability_BL)
