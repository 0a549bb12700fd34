"""From logits to drawn tokens in one pass over the vocabulary, in their own precision.

Each row is split among programs that keep a running maximum, sum and best draw; `state` puts the parts
together. A token is drawn by adding Gumbel noise to the tempered logits and taking the largest, which is a
draw from their softmax. The noise depends on the request's seed, its position and its step, so a draw does
not depend on what else is in the batch. Top-k and top-p are a threshold on the logits, found exactly by
bisecting their bit patterns. Where a row has a set of allowed tokens (`masks`), only the draw is
restricted to it (the largest of them at temperature 0); best logit, sum and entropy stay those of all.

Shapes: M rows, V vocabulary, S splits.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

_NONE = -1.0e30


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """What the splits of every row found; float32 [M, S], ids int32 [M, S]."""

    best: Tensor
    """Largest logit."""
    best_id: Tensor
    weight: Tensor
    """Sum of exp(logit - best)."""
    mean: Tensor
    """Sum of exp(logit - best) * logit."""
    score: Tensor
    """Largest tempered logit plus noise, of those allowed and above the threshold."""
    drawn_id: Tensor
    drawn: Tensor
    """Its logit."""

    @classmethod
    def empty(cls, rows: int, splits: int, device: torch.device) -> "Parts":
        def make(dtype: torch.dtype) -> Tensor:
            return torch.empty(rows, splits, device=device, dtype=dtype)

        return cls(
            best=make(torch.float32),
            best_id=make(torch.int32),
            weight=make(torch.float32),
            mean=make(torch.float32),
            score=make(torch.float32),
            drawn_id=make(torch.int32),
            drawn=make(torch.float32),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Masks:
    """Sets of allowed tokens (`masks.TokenMasks.table`) and each row's set, int32 [M], -1 for all tokens."""

    table: Tensor
    rows_M: Tensor


@triton.jit
def mix(a, b):
    """A well mixed number below 2^31 from two whole numbers (a finalizer of MurmurHash3)."""
    x = a.to(tl.uint32) * 0x9E3779B1 + b.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x85EBCA6B
    x = (x ^ (x >> 13)) * 0xC2B2AE35
    x = x ^ (x >> 16)
    return (x & 0x7FFFFFFF).to(tl.int32)


@triton.jit
def _allowed(v, inside, masks_ptr, mask_row, WORDS: tl.constexpr):
    """Which tokens a row's set holds; all where it has none."""
    word = masks_ptr + tl.maximum(mask_row, 0).to(tl.int64) * WORDS + v // 32
    bit = (tl.load(word, mask=inside, other=0) >> (v % 32)) & 1
    return (bit != 0) | (v >= tl.where(mask_row < 0, 0, 2147483647))


@triton.jit
def _scan(
    logits_ptr,
    best_ptr,
    best_id_ptr,
    weight_ptr,
    mean_ptr,
    score_ptr,
    drawn_id_ptr,
    drawn_ptr,
    temperature_ptr,
    threshold_ptr,
    noise_ptr,
    masks_ptr,
    mask_row_ptr,
    mask_token_id,
    V: tl.constexpr,
    SPLITS: tl.constexpr,
    CHUNK: tl.constexpr,
    RESTRICTED: tl.constexpr,
):
    row, split = tl.program_id(0), tl.program_id(1)
    temperature = tl.load(temperature_ptr + row)
    threshold = tl.load(threshold_ptr + row)
    noise_seed = tl.load(noise_ptr + row)
    drawing = temperature > 0
    if RESTRICTED:
        mask_row = tl.load(mask_row_ptr + row)
        drawing = drawing | (mask_row >= 0)
    share = (V + SPLITS - 1) // SPLITS
    start = split * share
    stop = tl.minimum(start + share, V)
    base = logits_ptr + row.to(tl.int64) * V
    best, best_id, weight, mean = -1.0e30, 0, 0.0, 0.0
    score, drawn_id, drawn = -1.0e30, 0, -1.0e30
    lane = tl.arange(0, CHUNK)
    for at in range(start, stop, CHUNK):
        v = at + lane
        usable = (v < stop) & (v != mask_token_id)
        logit = tl.load(base + v, mask=usable, other=-1.0e30).to(tl.float32)
        top, index = tl.max(logit, 0, return_indices=True, return_indices_tie_break_left=True)
        new = tl.maximum(best, top)
        p = tl.where(usable, tl.exp(logit - new), 0.0)
        shrink = tl.exp(best - new)
        weight = weight * shrink + tl.sum(p, 0)
        mean = mean * shrink + tl.sum(tl.where(usable, p * logit, 0.0), 0)
        best_id = tl.where(top > best, at + index, best_id)
        best = new
        if drawing:
            kept = usable & (logit >= threshold)
            if RESTRICTED:
                kept = kept & _allowed(v, usable, masks_ptr, mask_row, (V + 31) // 32)
            noisy = logit
            if temperature > 0:
                u = tl.rand(noise_seed, v)
                gumbel = -tl.log(-tl.log(tl.maximum(u, 1.0e-20)) + 1.0e-20)
                noisy = logit / temperature + gumbel
            noisy = tl.where(kept, noisy, -1.0e30)
            high, where = tl.max(noisy, 0, return_indices=True, return_indices_tie_break_left=True)
            chosen = tl.max(tl.where(lane == where, logit, -1.0e30), 0)
            drawn_id = tl.where(high > score, at + where, drawn_id)
            drawn = tl.where(high > score, chosen, drawn)
            score = tl.maximum(score, high)
    part = row * SPLITS + split
    tl.store(best_ptr + part, best)
    tl.store(best_id_ptr + part, best_id)
    tl.store(weight_ptr + part, weight)
    tl.store(mean_ptr + part, mean)
    tl.store(score_ptr + part, score)
    tl.store(drawn_id_ptr + part, drawn_id)
    tl.store(drawn_ptr + part, drawn)


def scan(
    logits_MV: Tensor,
    parts: Parts,
    *,
    temperature_M: Tensor,
    threshold_M: Tensor,
    noise_M: Tensor,
    mask_token_id: int,
    masks: Masks | None = None,
    chunk: int = 1024,
) -> None:
    """Fills `parts`. Without a temperature or a mask nothing is drawn; `noise` are int32 seeds of the rows."""
    rows, vocabulary = logits_MV.shape
    splits = parts.best.shape[1]
    _scan[(rows, splits)](
        logits_MV,
        parts.best,
        parts.best_id,
        parts.weight,
        parts.mean,
        parts.score,
        parts.drawn_id,
        parts.drawn,
        temperature_M,
        threshold_M,
        noise_M,
        noise_M if masks is None else masks.table,
        noise_M if masks is None else masks.rows_M,
        mask_token_id,
        V=vocabulary,
        SPLITS=splits,
        CHUNK=min(chunk, triton.next_power_of_2(triton.cdiv(vocabulary, splits))),
        RESTRICTED=masks is not None,
    )


@triton.jit
def _ordered(logit):
    """Whole numbers in the order of the floats."""
    bits = logit.to(tl.int32, bitcast=True)
    return tl.where(bits >= 0, bits, bits ^ 0x7FFFFFFF)


@triton.jit
def _threshold(
    logits_ptr,
    threshold_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    masks_ptr,
    mask_row_ptr,
    mask_token_id,
    V: tl.constexpr,
    CHUNK: tl.constexpr,
    RESTRICTED: tl.constexpr,
):
    row = tl.program_id(0)
    temperature = tl.load(temperature_ptr + row)
    top_k = tl.load(top_k_ptr + row)
    top_p = tl.load(top_p_ptr + row)
    base = logits_ptr + row.to(tl.int64) * V
    lane = tl.arange(0, CHUNK)
    cut = -1.0e30
    if RESTRICTED:
        mask_row = tl.load(mask_row_ptr + row)
    if (temperature > 0) & ((top_k < V) | (top_p < 1.0)):
        best = -1.0e30
        for at in range(0, V, CHUNK):
            v = at + lane
            usable = (v < V) & (v != mask_token_id)
            if RESTRICTED:
                usable = usable & _allowed(v, usable, masks_ptr, mask_row, (V + 31) // 32)
            logit = tl.load(base + v, mask=usable, other=-1.0e30).to(tl.float32)
            best = tl.maximum(best, tl.max(logit, 0))
        # the k-th largest logit: the largest number that at least k logits reach
        low = tl.full([], -2147483647, tl.int64)
        high = tl.full([], 2147483647, tl.int64)
        if top_k < V:
            for _ in range(32):
                middle = low + (high - low + 1) // 2
                count = 0
                for at in range(0, V, CHUNK):
                    v = at + lane
                    usable = (v < V) & (v != mask_token_id)
                    if RESTRICTED:
                        usable = usable & _allowed(v, usable, masks_ptr, mask_row, (V + 31) // 32)
                    logit = tl.load(base + v, mask=usable, other=-1.0e30).to(tl.float32)
                    count += tl.sum(
                        (usable & (_ordered(logit).to(tl.int64) >= middle)).to(tl.int32), 0
                    )
                low = tl.where(count >= top_k, middle, low)
                high = tl.where(count >= top_k, high, middle - 1)
        kept = low
        total = 0.0
        for at in range(0, V, CHUNK):
            v = at + lane
            usable = (v < V) & (v != mask_token_id)
            if RESTRICTED:
                usable = usable & _allowed(v, usable, masks_ptr, mask_row, (V + 31) // 32)
            logit = tl.load(base + v, mask=usable, other=-1.0e30).to(tl.float32)
            inside = usable & (_ordered(logit).to(tl.int64) >= kept)
            total += tl.sum(tl.where(inside, tl.exp((logit - best) / temperature), 0.0), 0)
        if top_p < 1.0:
            # a token stays while those above it weigh less than top_p: the least number above which
            # the weight is below it
            high = tl.full([], 2147483647, tl.int64)
            for _ in range(33):
                middle = low + (high - low) // 2
                above = 0.0
                for at in range(0, V, CHUNK):
                    v = at + lane
                    usable = (v < V) & (v != mask_token_id)
                    if RESTRICTED:
                        usable = usable & _allowed(v, usable, masks_ptr, mask_row, (V + 31) // 32)
                    logit = tl.load(base + v, mask=usable, other=-1.0e30).to(tl.float32)
                    inside = usable & (_ordered(logit).to(tl.int64) > middle)
                    above += tl.sum(tl.where(inside, tl.exp((logit - best) / temperature), 0.0), 0)
                enough = above < top_p * total
                high = tl.where(enough, middle, high)
                low = tl.where(enough, low, tl.minimum(middle + 1, high))
            kept = tl.maximum(kept, high)
        # the least logit that stays
        least = 1.0e30
        for at in range(0, V, CHUNK):
            v = at + lane
            usable = (v < V) & (v != mask_token_id)
            if RESTRICTED:
                usable = usable & _allowed(v, usable, masks_ptr, mask_row, (V + 31) // 32)
            logit = tl.load(base + v, mask=usable, other=1.0e30).to(tl.float32)
            inside = usable & (_ordered(logit).to(tl.int64) >= kept)
            least = tl.minimum(least, tl.min(tl.where(inside, logit, 1.0e30), 0))
        cut = least
    tl.store(threshold_ptr + row, cut)


def find_thresholds(
    logits_MV: Tensor,
    threshold_M: Tensor,
    *,
    temperature_M: Tensor,
    top_k_M: Tensor,
    top_p_M: Tensor,
    mask_token_id: int,
    masks: Masks | None = None,
    chunk: int = 4096,
) -> None:
    """Fills `threshold_M` with the least logit that top-k and top-p leave of what is allowed; ties stay.

    A `top_k` of V or more and a `top_p` of 1 leave everything. As in `engine.sampling`, top-p counts the
    weight of the tempered softmax over what top-k has left.
    """
    rows, vocabulary = logits_MV.shape
    _threshold[(rows,)](
        logits_MV,
        threshold_M,
        temperature_M,
        top_k_M,
        top_p_M,
        top_k_M if masks is None else masks.table,
        top_k_M if masks is None else masks.rows_M,
        mask_token_id,
        V=vocabulary,
        CHUNK=min(chunk, triton.next_power_of_2(vocabulary)),
        RESTRICTED=masks is not None,
    )
