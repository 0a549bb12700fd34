"""The small operations of a layer, fused: norms with the residual, q/k norms with rotation and storing, SwiGLU.

As in `models.sdar`, norms and rotations are computed in float32 and rounded where the plain model rounds.

Shapes: N packed tokens, C hidden size, H heads, K key-value heads, D head size, I intermediate size.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def _add_norm(
    x_ptr,
    residual_ptr,
    weight_ptr,
    out_ptr,
    eps,
    C: tl.constexpr,
    WIDTH: tl.constexpr,
    ADD: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    c = tl.arange(0, WIDTH)
    inside = c < C
    x = tl.load(residual_ptr + token * C + c, mask=inside, other=0.0)
    if ADD:
        x = x + tl.load(x_ptr + token * C + c, mask=inside, other=0.0)
        tl.store(residual_ptr + token * C + c, x, mask=inside)
    wide = x.to(tl.float32)
    scale = tl.rsqrt(tl.sum(wide * wide, 0) / C + eps)
    weight = tl.load(weight_ptr + c, mask=inside, other=0.0).to(tl.float32)
    tl.store(out_ptr + token * C + c, (wide * scale * weight).to(x.dtype), mask=inside)


def add_norm(x_NC: Tensor | None, residual_NC: Tensor, weight_C: Tensor, eps: float) -> Tensor:
    """Adds `x` to the residual in place, and returns the residual's root-mean-square norm."""
    out_NC = torch.empty_like(residual_NC)
    tokens, width = residual_NC.shape
    _add_norm[(tokens,)](
        residual_NC if x_NC is None else x_NC,
        residual_NC,
        weight_C,
        out_NC,
        eps,
        C=width,
        WIDTH=triton.next_power_of_2(width),
        ADD=x_NC is not None,
    )
    return out_NC


@triton.jit
def _rotate_store(
    qkv_ptr,
    q_ptr,
    k_ptr,
    v_ptr,
    q_weight_ptr,
    k_weight_ptr,
    cos_ptr,
    sin_ptr,
    position_ptr,
    row_ptr,
    table_ptr,
    table_stride,
    eps,
    HEADS: tl.constexpr,
    KV_HEADS: tl.constexpr,
    D: tl.constexpr,
    PAGE: tl.constexpr,
):
    token = tl.program_id(0).to(tl.int64)
    head = tl.program_id(1)
    position = tl.load(position_ptr + token)
    if position >= 0:
        HALF: tl.constexpr = D // 2
        h = tl.arange(0, HALF)
        source = qkv_ptr + (token * (HEADS + 2 * KV_HEADS) + head) * D
        low, high = tl.load(source + h), tl.load(source + HALF + h)
        row = tl.load(row_ptr + token)
        page = tl.load(table_ptr + row * table_stride + position // PAGE).to(tl.int64)
        slot = page * PAGE + position % PAGE
        if head >= HEADS + KV_HEADS:
            target = v_ptr + (slot * KV_HEADS + head - HEADS - KV_HEADS) * D
            tl.store(target + h, low)
            tl.store(target + HALF + h, high)
        else:
            is_query = head < HEADS
            weight_ptr = q_weight_ptr
            target = q_ptr + (token * HEADS + head) * D
            if not is_query:
                weight_ptr = k_weight_ptr
                target = k_ptr + (slot * KV_HEADS + head - HEADS) * D
            a, b = low.to(tl.float32), high.to(tl.float32)
            scale = tl.rsqrt((tl.sum(a * a, 0) + tl.sum(b * b, 0)) / D + eps)
            a = a * scale * tl.load(weight_ptr + h).to(tl.float32)
            b = b * scale * tl.load(weight_ptr + HALF + h).to(tl.float32)
            a, b = a.to(low.dtype).to(tl.float32), b.to(low.dtype).to(tl.float32)
            cos = tl.load(cos_ptr + position * HALF + h)
            sin = tl.load(sin_ptr + position * HALF + h)
            tl.store(target + h, (a * cos - b * sin).to(low.dtype))
            tl.store(target + HALF + h, (b * cos + a * sin).to(low.dtype))


def rotate_store(
    qkv: Tensor,
    keys: Tensor,
    values: Tensor,
    norms: tuple[Tensor, Tensor],
    rotary: tuple[Tensor, Tensor],
    positions_N: Tensor,
    rows_N: Tensor,
    table: Tensor,
    *,
    heads: int,
    eps: float,
) -> Tensor:
    """Normed and rotated queries [N, H, D]; keys and values of the tokens go into their pages.

    Args:
        qkv: [N, (H + 2 K) D].
        keys: one layer's [pages, page size, K, D], like `values`.
        norms: weights [D] of queries and keys.
        rotary: cosine and sine [positions, D / 2], float32.
        positions_N: -1 is no token.
    """
    page_size, kv_heads, head_dim = keys.shape[1:]
    q_NHD = torch.zeros(qkv.shape[0], heads, head_dim, device=qkv.device, dtype=qkv.dtype)
    _rotate_store[(qkv.shape[0], heads + 2 * kv_heads)](
        qkv,
        q_NHD,
        keys,
        values,
        *norms,
        *rotary,
        positions_N,
        rows_N,
        table,
        table.stride(0),
        eps,
        HEADS=heads,
        KV_HEADS=kv_heads,
        D=head_dim,
        PAGE=page_size,
    )
    return q_NHD


@triton.jit
def _silu_mul(x_ptr, out_ptr, SIZE: tl.constexpr, WIDTH: tl.constexpr):
    token = tl.program_id(0).to(tl.int64)
    i = tl.program_id(1) * WIDTH + tl.arange(0, WIDTH)
    inside = i < SIZE
    gate = tl.load(x_ptr + token * 2 * SIZE + i, mask=inside, other=0.0)
    up = tl.load(x_ptr + token * 2 * SIZE + SIZE + i, mask=inside, other=0.0)
    wide = gate.to(tl.float32)
    active = (wide / (1 + tl.exp(-wide))).to(gate.dtype)
    tl.store(out_ptr + token * SIZE + i, active * up, mask=inside)


def silu_mul(gate_up: Tensor) -> Tensor:
    """[N, 2 I], gate and up side by side, to [N, I]."""
    tokens, size = gate_up.shape[0], gate_up.shape[1] // 2
    out = torch.empty(tokens, size, device=gate_up.device, dtype=gate_up.dtype)
    _silu_mul[(tokens, triton.cdiv(size, 1024))](gate_up, out, SIZE=size, WIDTH=1024)
    return out
