"""The attention mask of a batch, as FlexAttention's BlockMask on CUDA or as a dense boolean mask."""

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention.flex_attention import BlockMask, create_block_mask

from dice.train.layout import AttentionIds, dense_mask, visible_function


def build_mask(ids: AttentionIds, attention: str, *, compile: bool) -> Tensor | BlockMask:
    """The mask of one batch, `attention` being "flex" or "sdpa". A dense mask of B rows takes B * T * T
    bytes; the BlockMask, built anew for each batch, skips every 128 x 128 tile that nothing is visible in."""
    if attention == "sdpa":
        return dense_mask(ids)
    rows, length = ids.sample_BT.shape
    create = _compiled_create() if compile else create_block_mask
    mask: BlockMask = create(
        visible_function(ids), rows, None, length, length, device=str(ids.sample_BT.device)
    )
    return mask


@functools.cache
def _compiled_create() -> Callable[..., Any]:
    return torch.compile(create_block_mask, dynamic=False)
