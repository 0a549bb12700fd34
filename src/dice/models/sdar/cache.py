"""Keys and values of decoded sequences, in preallocated tensors.

A step packs the tokens of many sequences along one dimension and plans them as segments: runs of
consecutive positions of one cache row. Every layer then stores the segment's keys and values behind
the row's committed ones and attends to both. Nothing past `lengths[row]` survives a step unless it is
committed, so a denoising forward never changes what later forwards read.

Shapes: N packed tokens, H heads, K key-value heads, D head size, T capacity.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dice.models.sdar.configuration_sdar import SdarConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Packed tokens `start:stop` of a step: positions `position`.. of cache row `row`.

    Every token sees the row's positions below `position` and, among its segment's, those that `mask`
    allows: [stop - start, position + stop - start] boolean, `None` for all.
    """

    row: int
    start: int
    stop: int
    position: int
    mask: Tensor | None = None


class KVCache:
    """`rows` sequences of at most `capacity` positions."""

    def __init__(
        self,
        config: SdarConfig,
        rows: int,
        capacity: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        shape = (
            config.num_hidden_layers,
            rows,
            config.num_key_value_heads,
            capacity,
            config.head_dim,
        )
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.lengths = [0] * rows
        self.capacity = capacity
        self._segments: tuple[Segment, ...] = ()

    def plan(self, segments: tuple[Segment, ...]) -> None:
        """Sets the segments of the next forward. They cover its packed tokens in order."""
        for segment in segments:
            end = segment.position + segment.stop - segment.start
            assert end <= self.capacity, f"row {segment.row}: {end} > capacity {self.capacity}"
        self._segments = segments

    def attend(self, layer: int, q_1NHD: Tensor, k_1NKD: Tensor, v_1NKD: Tensor) -> Tensor:
        """Attention output [1, N, H, D] of one layer for the planned segments."""
        keys, values = self.keys[layer], self.values[layer]
        kv_heads, head_dim = keys.shape[1], keys.shape[3]
        heads = q_1NHD.shape[2]
        out_1NHD = torch.empty_like(q_1NHD)
        for segment in self._segments:
            count = segment.stop - segment.start
            end = segment.position + count
            row_keys, row_values = keys[segment.row], values[segment.row]
            row_keys[:, segment.position : end] = k_1NKD[0, segment.start : segment.stop].transpose(
                0, 1
            )
            row_values[:, segment.position : end] = v_1NKD[
                0, segment.start : segment.stop
            ].transpose(0, 1)
            q_HLD = q_1NHD[0, segment.start : segment.stop].transpose(0, 1)
            mask = segment.mask
            if heads != kv_heads:
                q_HLD = q_HLD.reshape(kv_heads, -1, head_dim)
                mask = None if mask is None else mask.repeat(heads // kv_heads, 1)
            out = F.scaled_dot_product_attention(
                q_HLD[None], row_keys[None, :, :end], row_values[None, :, :end], attn_mask=mask
            )
            out_1NHD[0, segment.start : segment.stop] = out.reshape(
                heads, count, head_dim
            ).transpose(0, 1)
        return out_1NHD

    def commit(self, row: int, length: int) -> None:
        """Keeps the row's first `length` positions for good."""
        assert self.lengths[row] <= length <= self.capacity
        self.lengths[row] = length

    def share_prefix(self, source: int, target: int, length: int) -> None:
        """Copies the first `length` committed positions of row `source` into row `target`."""
        assert length <= self.lengths[source]
        self.keys[:, target, :, :length] = self.keys[:, source, :, :length]
        self.values[:, target, :, :length] = self.values[:, source, :, :length]
        self.lengths[target] = length

    def clear(self, row: int) -> None:
        """Frees a row for another sequence."""
        self.lengths[row] = 0
