"""Which inputs are tried: the problem's own at several seeds, and variations that upset wrong kernels.

A variation changes floating-point tensors only (labels and indices stay valid) and is used only where
the reference stays finite and well conditioned on it; else the problem's own distribution is used again.
"""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dice.verify import trees
from dice.verify.trees import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class InputSet:
    """`variations` are tried in order; the first that the problem permits is used."""

    seed: int
    variations: tuple[str, ...]


def plan(code: str, seed: int | None, count: int) -> tuple[InputSet, ...]:
    """`count` input sets: the problem's own, then each kind of variation in turn."""
    kinds: list[tuple[str, ...]] = [
        ("plain",),
        ("negated", "shifted", "plain"),
        ("large x32", "large x8", "large x2", "plain"),
        ("small", "plain"),
        ("a row of zeros", "zeros mixed in", "plain"),
        ("rows lowered", "plain"),
    ]
    return tuple(
        InputSet(seed=derive_seed(code, seed, index), variations=kinds[index % len(kinds)])
        for index in range(count)
    )


def derive_seed(code: str, seed: int | None, index: int) -> int:
    digest = hashlib.sha256(f"{seed}:{index}:{code}".encode()).digest()
    return int.from_bytes(digest[:6], "little")


def vary(inputs: Tree, variation: str) -> Tree:
    """The inputs under a variation; draws from torch's generator."""
    return trees.map_tensors(inputs, lambda tensor: _vary_tensor(tensor, variation))


def _vary_tensor(tensor: torch.Tensor, variation: str) -> torch.Tensor:
    if not tensor.is_floating_point() or tensor.numel() == 0:
        return tensor
    return _VARIATIONS[variation](tensor)


def _shifted(tensor: torch.Tensor) -> torch.Tensor:
    return tensor - tensor.mean()


def _zeros_mixed_in(tensor: torch.Tensor) -> torch.Tensor:
    draw = torch.rand(tensor.shape, device=tensor.device)
    signed = torch.where(draw < 0.4, -tensor, tensor) if bool((tensor < 0).any()) else tensor
    return torch.where(draw < 0.25, torch.zeros_like(tensor), signed)


def _row_of_zeros(tensor: torch.Tensor) -> torch.Tensor:
    """Zeros mixed in, and nothing else in the last row: what is divided by a row's norm there is 0/0.

    The same row of every tensor, so that two of them agree there.
    """
    mixed = _zeros_mixed_in(tensor)
    if tensor.dim() > 1 and len(tensor) > 1:
        mixed[-1] = 0
    return mixed


def _rows_lowered(tensor: torch.Tensor) -> torch.Tensor:
    """Every second row far below zero: a maximum that starts at zero, a softmax without its maximum.

    So far that exp() is zero there also after a scale such as an attention's, and so far apart that a
    right softmax has one large element, whatever the rounding.

    The other rows keep the scale of the output up, so that the tail of an exponential need not be exact.
    A tensor without negative values is shifted instead: sums whose terms all have one sign hide errors.
    """
    if not bool((tensor < 0).any()):
        return _shifted(tensor)
    lowered = tensor.clone()
    rows = lowered[0] if tensor.dim() > 2 and len(tensor) == 1 else lowered
    if rows.dim() < 2:
        return tensor
    rows[1::2] = -1000 * (1 + rows[1::2].abs())
    return lowered


_VARIATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda tensor: tensor,
    "negated": lambda tensor: -1.5 * tensor,
    "shifted": _shifted,
    "large x32": lambda tensor: 32 * tensor,
    "large x8": lambda tensor: 8 * tensor,
    "large x2": lambda tensor: 2 * tensor,
    "zeros mixed in": _zeros_mixed_in,
    "a row of zeros": _row_of_zeros,
    "rows lowered": _rows_lowered,
    "small": lambda tensor: tensor / 64,
}
