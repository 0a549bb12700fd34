"""Keys and values of decoded sequences, in preallocated tensors.

A step packs the tokens of many sequences along one dimension and plans them as segments: runs of
consecutive positions of one cache row. Every layer then stores the segment's keys and values behind
the row's committed ones and attends to both. Nothing past `lengths[row]` survives a step unless it is
committed, so a denoising forward never changes what later forwards read.

Shapes: R rows, N packed tokens, H heads, K key-value heads, D head size, T capacity.
"""

from collections.abc import Sequence
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
        self.keys = torch.empty(shape, device=device, dtype=dtype)
        self.values = torch.empty(shape, device=device, dtype=dtype)
        self.lengths = [0] * rows
        self.capacity = capacity
        self._segments: Sequence[Segment] = ()
        self._planned_rows = self.planned_positions = torch.empty(0, dtype=torch.long)

    def plan(self, segments: Sequence[Segment]) -> None:
        """Sets the segments of the next forward. They cover its packed tokens in order."""
        rows: list[int] = []
        positions: list[int] = []
        for segment in segments:
            count = segment.stop - segment.start
            end = segment.position + count
            assert end <= self.capacity, f"row {segment.row}: {end} > capacity {self.capacity}"
            assert segment.start == len(rows)
            rows += [segment.row] * count
            positions += range(segment.position, end)
        self._segments = segments
        self._planned_rows = torch.tensor(rows, device=self.keys.device)
        self.planned_positions = torch.tensor(positions, device=self.keys.device)

    def attend(self, layer: int, q_1NHD: Tensor, k_1NKD: Tensor, v_1NKD: Tensor) -> Tensor:
        """Attention output [1, N, H, D] of one layer for the planned segments."""
        keys_RKTD, values_RKTD = self.keys[layer], self.values[layer]
        keys_RKTD[self._planned_rows, :, self.planned_positions] = k_1NKD[0]
        values_RKTD[self._planned_rows, :, self.planned_positions] = v_1NKD[0]
        kv_heads, (heads, head_dim) = keys_RKTD.shape[1], q_1NHD.shape[2:]
        q_1HND = q_1NHD.transpose(1, 2)
        outputs = []
        for segment in self._segments:
            start, stop, mask = segment.start, segment.stop, segment.mask
            at, seen = slice(segment.row, segment.row + 1), segment.position + stop - start
            q_1HLD = q_1HND[:, :, start:stop]
            if heads != kv_heads:  # a group's queries share keys: fold them into the length
                q_1HLD = q_1HLD.reshape(1, kv_heads, -1, head_dim)
                mask = None if mask is None else mask.repeat(heads // kv_heads, 1)
            out = F.scaled_dot_product_attention(
                q_1HLD, keys_RKTD[at, :, :seen], values_RKTD[at, :, :seen], attn_mask=mask
            )
            outputs.append(out.reshape(1, heads, stop - start, head_dim))
        return torch.cat(outputs, dim=2).transpose(1, 2)

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
