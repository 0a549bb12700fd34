"""Keys and values of decoded sequences, in preallocated tensors.

A step packs the tokens of many sequences along one dimension and plans them as segments: runs of whole
blocks of one cache row. Every layer then stores the segment's keys and values behind the row's
committed ones and attends block-causally to both. Nothing past `lengths[row]` survives a step unless
it is committed, so a denoising forward never changes what later forwards read.

Two ways to attend, same result: one call per segment over exactly the positions it sees (no padding, no
mask: what a CPU wants), or one masked call over all rows (few kernel launches: what a GPU wants).

Shapes: R rows, N packed tokens, M most tokens of a row in the step, H heads, K key-value heads,
G = H / K, D head size, T positions.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dice.models.sdar.configuration_sdar import SdarConfig

_MOST_SPLIT_BLOCKS = 4
"""Segments of more blocks are attended to in one masked call instead of block by block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """Packed tokens `start:stop` of a step: whole blocks of cache row `row` from `position` on.

    A row has at most one segment per step, and its positions below `position` are committed.
    """

    row: int
    start: int
    stop: int
    position: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Call:
    """One attention call: packed queries, and how many positions of the row they see."""

    row: int
    start: int
    stop: int
    seen: int
    mask_GLT: Tensor | None


def cache_bytes(config: SdarConfig, rows: int, capacity: int, dtype: torch.dtype) -> int:
    """What a `KVCache` of this size allocates."""
    return 2 * torch.Size(_shape(config, rows, capacity)).numel() * dtype.itemsize


def _shape(config: SdarConfig, rows: int, capacity: int) -> tuple[int, ...]:
    return (
        config.num_hidden_layers,
        rows,
        config.num_key_value_heads,
        capacity,
        config.head_dim,
    )


class KVCache:
    """`rows` sequences of at most `capacity` positions.

    `batched` picks the way to attend; `None` is batched on anything but a CPU.
    """

    def __init__(
        self,
        config: SdarConfig,
        rows: int,
        capacity: int,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        batched: bool | None = None,
    ) -> None:
        self.block_size = config.block_size
        self._groups = config.num_attention_heads // config.num_key_value_heads
        shape = _shape(config, rows, capacity)
        # Zeros, because masked positions still enter products: what lies there must be finite.
        self.keys = torch.zeros(shape, device=device, dtype=dtype)
        self.values = torch.zeros(shape, device=device, dtype=dtype)
        self.lengths = [0] * rows
        self.capacity = capacity
        self.batched = torch.device(device).type != "cpu" if batched is None else batched
        self.planned_positions = torch.empty(0, dtype=torch.long)
        """Position ids [N] of the planned step."""
        self._rows_N = self._offsets_N = self.planned_positions
        self._calls: list[_Call] = []
        self._mask_R1MT: Tensor | None = None

    def plan(self, segments: Sequence[Segment]) -> None:
        """Sets the segments of the next forward. They cover its packed tokens in order."""
        rows: list[int] = []
        positions: list[int] = []
        offsets: list[int] = []
        for segment in segments:
            count = segment.stop - segment.start
            end = segment.position + count
            assert end <= self.capacity, f"row {segment.row}: {end} > capacity {self.capacity}"
            assert segment.start == len(rows)
            assert segment.position % self.block_size == 0 == count % self.block_size
            rows += [segment.row] * count
            positions += range(segment.position, end)
            offsets += range(count)
        device = self.keys.device
        self._rows_N = torch.tensor(rows, device=device)
        self.planned_positions = torch.tensor(positions, device=device)
        self._calls, self._mask_R1MT = [], None
        longest = max(offsets) + 1
        if self.batched and longest <= _MOST_SPLIT_BLOCKS * self.block_size:
            self._offsets_N = torch.tensor(offsets, device=device)
            self._mask_R1MT = self._plan_batched(longest, max(positions) + 1)
        else:
            for segment in segments:
                self._calls += self._plan_calls(segment)

    def _plan_batched(self, longest: int, total: int) -> Tensor:
        # Rows and slots without a token see position 0, so that no softmax is empty.
        size = self.block_size
        seen_RM = torch.ones(len(self.lengths), longest, device=self.keys.device, dtype=torch.long)
        seen_RM[self._rows_N, self._offsets_N] = (self.planned_positions // size + 1) * size
        key_T = torch.arange(total, device=self.keys.device)
        return (key_T < seen_RM[..., None])[:, None].repeat(1, 1, self._groups, 1)

    def _plan_calls(self, segment: Segment) -> list[_Call]:
        size, count = self.block_size, segment.stop - segment.start
        if count <= _MOST_SPLIT_BLOCKS * size:
            return [
                _Call(
                    row=segment.row,
                    start=segment.start + offset,
                    stop=segment.start + offset + size,
                    seen=segment.position + offset + size,
                    mask_GLT=None,
                )
                for offset in range(0, count, size)
            ]
        seen = segment.position + count
        key_T = torch.arange(seen, device=self.keys.device)
        seen_L = (key_T[segment.position :] // size + 1) * size
        return [
            _Call(
                row=segment.row,
                start=segment.start,
                stop=segment.stop,
                seen=seen,
                mask_GLT=(key_T < seen_L[:, None]).repeat(self._groups, 1),
            )
        ]

    def attend(self, layer: int, q_1NHD: Tensor, k_1NKD: Tensor, v_1NKD: Tensor) -> Tensor:
        """Attention output [1, N, H, D] of one layer for the planned segments."""
        keys_RKTD, values_RKTD = self.keys[layer], self.values[layer]
        keys_RKTD[self._rows_N, :, self.planned_positions] = k_1NKD[0]
        values_RKTD[self._rows_N, :, self.planned_positions] = v_1NKD[0]
        if self._mask_R1MT is not None:
            return self._attend_batched(q_1NHD, keys_RKTD, values_RKTD, self._mask_R1MT)
        kv_heads, (heads, head_dim) = keys_RKTD.shape[1], q_1NHD.shape[2:]
        q_1HND = q_1NHD.transpose(1, 2)
        outputs = []
        for call in self._calls:
            q_1HLD = q_1HND[:, :, call.start : call.stop]
            if self._groups > 1:  # a group's queries share keys: fold them into the length
                q_1HLD = q_1HLD.reshape(1, kv_heads, -1, head_dim)
            at = slice(call.row, call.row + 1)
            out = F.scaled_dot_product_attention(
                q_1HLD,
                keys_RKTD[at, :, : call.seen],
                values_RKTD[at, :, : call.seen],
                attn_mask=call.mask_GLT,
            )
            outputs.append(out.reshape(1, heads, -1, head_dim))
        return torch.cat(outputs, dim=2).transpose(1, 2)

    def _attend_batched(
        self, q_1NHD: Tensor, keys_RKTD: Tensor, values_RKTD: Tensor, mask_R1MT: Tensor
    ) -> Tensor:
        rows, kv_heads, _, head_dim = keys_RKTD.shape
        slots, total = mask_R1MT.shape[2] // self._groups, mask_R1MT.shape[3]
        q_RHMD = q_1NHD.new_zeros(rows, q_1NHD.shape[2], slots, head_dim)
        q_RHMD[self._rows_N, :, self._offsets_N] = q_1NHD[0]
        out = F.scaled_dot_product_attention(
            q_RHMD.view(rows, kv_heads, -1, head_dim),
            keys_RKTD[:, :, :total],
            values_RKTD[:, :, :total],
            attn_mask=mask_R1MT,
        )
        return out.reshape(q_RHMD.shape)[self._rows_N, :, self._offsets_N][None]

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
