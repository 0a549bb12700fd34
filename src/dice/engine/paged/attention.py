"""Block-causal attention over paged keys and values.

Queries come in tiles: a run of tokens of one row. A query at position p sees the keys below the end of its
block. Long contexts are split among programs, whose partial results a second kernel combines.

Shapes: N packed tokens, T tiles, H heads, K key-value heads, G = H / K, D head size, S splits.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_LOG2E = 1.4426950408889634


@dataclass(frozen=True, slots=True, kw_only=True)
class Tiles:
    """Runs of at most `size` packed tokens of one row, int32 tensors [T]; a length of 0 is no tile."""

    row: Tensor
    """In the page table."""
    token: Tensor
    """First packed token."""
    position: Tensor
    """Of that token in its sequence."""
    length: Tensor
    size: int


@triton.jit
def _attend(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    partial_ptr,
    lse_ptr,
    table_ptr,
    tile_row,
    tile_token,
    tile_position,
    tile_length,
    table_stride,
    scale,
    KV_HEADS: tl.constexpr,
    GROUPS: tl.constexpr,
    D: tl.constexpr,
    BLOCK: tl.constexpr,
    PAGE: tl.constexpr,
    ROWS: tl.constexpr,
    SPLITS: tl.constexpr,
):
    tile, head, split = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    length = tl.load(tile_length + tile)
    if length > 0:
        row = tl.load(tile_row + tile)
        token = tl.load(tile_token + tile)
        first = tl.load(tile_position + tile)
        m = tl.arange(0, ROWS)
        d = tl.arange(0, D)
        t = tl.arange(0, PAGE)
        offset = m // GROUPS
        live = offset < length
        seen = ((first + offset) // BLOCK + 1) * BLOCK
        query = ((token + offset) * KV_HEADS + head) * GROUPS + m % GROUPS
        query = query.to(tl.int64)
        q = tl.load(q_ptr + query[:, None] * D + d[None, :], mask=live[:, None], other=0.0)
        total = ((first + length - 1) // BLOCK + 1) * BLOCK
        pages = (total + PAGE - 1) // PAGE
        share = (pages + SPLITS - 1) // SPLITS
        start = split * share
        stop = tl.minimum(start + share, pages)
        best = tl.full([ROWS], -1.0e30, tl.float32)
        weight = tl.zeros([ROWS], tl.float32)
        out = tl.zeros([ROWS, D], tl.float32)
        for index in range(start, stop):
            page = tl.load(table_ptr + row * table_stride + index).to(tl.int64)
            key = (page * PAGE + t) * KV_HEADS + head
            k = tl.load(k_ptr + key[:, None] * D + d[None, :])
            score = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
            visible = (index * PAGE + t)[None, :] < seen[:, None]
            score = tl.where(visible, score, -1.0e30)
            new = tl.maximum(best, tl.max(score, 1))
            p = tl.where(visible, tl.exp2(score - new[:, None]), 0.0)
            shrink = tl.exp2(best - new)
            v = tl.load(v_ptr + key[:, None] * D + d[None, :])
            out = out * shrink[:, None]
            out += tl.dot(p.to(v.dtype), v, input_precision="ieee")
            weight = weight * shrink + tl.sum(p, 1)
            best = new
        if SPLITS == 1:
            out = out / weight[:, None]
            target = out_ptr + query[:, None] * D + d[None, :]
            tl.store(target, out.to(out_ptr.dtype.element_ty), mask=live[:, None])
        else:
            out = out / tl.maximum(weight, 1.0e-30)[:, None]
            part = query * SPLITS + split
            tl.store(partial_ptr + part[:, None] * D + d[None, :], out, mask=live[:, None])
            lse = tl.where(weight > 0, best + tl.log2(tl.maximum(weight, 1.0e-30)), -1.0e30)
            tl.store(lse_ptr + part, lse, mask=live)


@triton.jit
def _combine(
    partial_ptr,
    lse_ptr,
    out_ptr,
    position_ptr,
    HEADS: tl.constexpr,
    D: tl.constexpr,
    SPLITS: tl.constexpr,
):
    query = tl.program_id(0).to(tl.int64)
    if tl.load(position_ptr + query // HEADS) >= 0:
        s, d = tl.arange(0, SPLITS), tl.arange(0, D)
        lse = tl.load(lse_ptr + query * SPLITS + s)
        share = tl.exp2(lse - tl.max(lse, 0))
        share = share / tl.sum(share, 0)
        part = tl.load(partial_ptr + (query * SPLITS + s)[:, None] * D + d[None, :])
        out = tl.sum(part * share[:, None], 0)
        tl.store(out_ptr + query * D + d, out.to(out_ptr.dtype.element_ty))


class PagedAttention:
    """Attention of at most `tokens` packed tokens; owns the buffers of split calls."""

    def __init__(
        self,
        *,
        heads: int,
        kv_heads: int,
        head_dim: int,
        block_size: int,
        page_size: int,
        device: torch.device,
        dtype: torch.dtype,
    ) -> None:
        self._heads, self._kv_heads, self._head_dim = heads, kv_heads, head_dim
        self._block_size, self._page_size = block_size, page_size
        self._device, self._dtype = device, dtype
        self._groups = heads // kv_heads

    def buffers(self, tokens: int, splits: int) -> tuple[Tensor, Tensor, Tensor]:
        """The output [N, H, D]; partial results [N, H, S, D] and their log-sum-exps [N, H, S]."""
        shape = (tokens, self._heads, splits) if splits > 1 else (1, 1, 1)
        return (
            # zeros, because rows of no token go through the rest of the model too
            torch.zeros(
                tokens, self._heads, self._head_dim, device=self._device, dtype=self._dtype
            ),
            torch.empty(*shape, self._head_dim, device=self._device, dtype=torch.float32),
            torch.empty(*shape, device=self._device, dtype=torch.float32),
        )

    def __call__(
        self,
        q_NHD: Tensor,
        keys: Tensor,
        values: Tensor,
        table: Tensor,
        tiles: Tiles,
        positions_N: Tensor,
        buffers: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        """Outputs [N, H, D], in the buffer; rows of tokens without a tile (position -1) stay as they are.

        Args:
            keys: one layer's [pages, page size, K, D], like `values`; the queries' own included.
            table: page numbers [rows, most pages], int32.
        """
        out_NHD, partial, lse = buffers
        splits = lse.shape[-1]
        grid = (tiles.row.shape[0], self._kv_heads, splits)
        _attend[grid](
            q_NHD,
            keys,
            values,
            out_NHD,
            partial,
            lse,
            table,
            tiles.row,
            tiles.token,
            tiles.position,
            tiles.length,
            table.stride(0),
            self._head_dim**-0.5 * _LOG2E,
            KV_HEADS=self._kv_heads,
            GROUPS=self._groups,
            D=self._head_dim,
            BLOCK=self._block_size,
            PAGE=self._page_size,
            ROWS=max(16, triton.next_power_of_2(tiles.size * self._groups)),
            SPLITS=splits,
        )
        if splits > 1:
            _combine[(q_NHD.shape[0] * self._heads,)](
                partial,
                lse,
                out_NHD,
                positions_N,
                HEADS=self._heads,
                D=self._head_dim,
                SPLITS=splits,
            )
        return out_NHD
