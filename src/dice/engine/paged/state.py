"""The decoding state of all slots, on the device, and the two kernels that use and advance it.

A slot holds one sequence, a lane is a place in a step's batch. Before a forward `gather` lays out each lane's
tokens: what follows its committed positions, up to the end of its current block. After it `advance` chooses
which drawn tokens to keep, writes them, and moves on: next denoising step, next block, or the end. The host is
asked nothing in between; the rules are those of `engine.remasking`, `engine.canvas` and `engine.scheduler`.

Shapes: R lanes, Q tokens of a lane in a step, B block size, S splits of the vocabulary, L positions.
"""

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from dice.engine.paged.sampler import Parts, mix

RUNNING, STOPPED, FULL, FREE = 0, 1, 2, 3
"""Values of `State.ended`."""
TO_WRITE = -1
"""In the canvas: a position that the model has still to write."""
STRATEGIES = {
    "sequential": 0,
    "low_confidence_static": 1,
    "low_confidence_dynamic": 2,
    "entropy_bounded": 3,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class State:
    """One row a slot; int32 unless said otherwise."""

    canvas: Tensor
    """Token ids [slots, L], `TO_WRITE` where the model has still to write."""
    written_step: Tensor
    """Denoising step at which the model wrote each position, -1 elsewhere; int16 [slots, L]."""
    logprobs: Tensor
    """Of what the model wrote, float32 [slots, L]."""
    next_block: Tensor
    """The first block from each on with something to write, -1 behind the last; [slots, L / B + 1]."""
    committed: Tensor
    """Positions whose keys and values are final [slots]."""
    block: Tensor
    """Index of the block being denoised [slots]."""
    step: Tensor
    """Denoising step within that block [slots]."""
    forwards: Tensor
    ended: Tensor
    stop_at: Tensor
    """Position of the stop token, -1 without one."""
    seed: Tensor
    strategy: Tensor
    denoising_steps: Tensor
    bound: Tensor
    """Of the strategy: log of the threshold, or nats; float32."""
    temperature: Tensor
    top_k: Tensor
    top_p: Tensor
    """The last three in the order of `sampling.SamplingParams`; temperature and top_p are float32."""
    mask_row: Tensor
    """Which set of allowed tokens each position has, -1 for all tokens [slots, L]."""
    table: Tensor
    """Page numbers [slots, most pages]."""

    @classmethod
    def empty(
        cls, slots: int, capacity: int, block_size: int, pages: int, device: torch.device
    ) -> "State":
        def ints(*shape: int, fill: int = 0, dtype: torch.dtype = torch.int32) -> Tensor:
            return torch.full((slots, *shape), fill, device=device, dtype=dtype)

        def floats(*shape: int) -> Tensor:
            return torch.zeros((slots, *shape), device=device, dtype=torch.float32)

        return cls(
            canvas=ints(capacity),
            written_step=ints(capacity, fill=-1, dtype=torch.int16),
            logprobs=floats(capacity),
            next_block=ints(capacity // block_size + 1, fill=-1),
            committed=ints(),
            block=ints(),
            step=ints(),
            forwards=ints(),
            ended=ints(fill=FREE),
            stop_at=ints(fill=-1),
            seed=ints(),
            strategy=ints(),
            denoising_steps=ints(fill=1),
            bound=floats(),
            temperature=floats(),
            top_k=ints(),
            top_p=floats(),
            mask_row=ints(capacity, fill=-1),
            table=ints(pages),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """What `gather` makes of the lanes: the packed tokens of a step, [R Q] or [R]; int32."""

    token_ids: Tensor
    positions: Tensor
    """-1 is no token."""
    rows: Tensor
    """Slot of each token."""
    tile_row: Tensor
    tile_token: Tensor
    tile_position: Tensor
    tile_length: Tensor
    sampled: Tensor
    """Index [R B] into the packed tokens of each position of the current blocks."""
    temperature: Tensor
    """[R B] float32; 0 also where nothing is to be drawn."""
    top_k: Tensor
    top_p: Tensor
    noise: Tensor
    mask_row: Tensor

    @classmethod
    def empty(cls, lanes: int, width: int, block_size: int, device: torch.device) -> "Layout":
        def ints(count: int) -> Tensor:
            return torch.zeros(count, device=device, dtype=torch.int32)

        def floats(count: int) -> Tensor:
            return torch.zeros(count, device=device, dtype=torch.float32)

        return cls(
            token_ids=ints(lanes * width),
            positions=ints(lanes * width),
            rows=ints(lanes * width),
            tile_row=ints(lanes),
            tile_token=ints(lanes),
            tile_position=ints(lanes),
            tile_length=ints(lanes),
            sampled=ints(lanes * block_size),
            temperature=floats(lanes * block_size),
            top_k=ints(lanes * block_size),
            top_p=floats(lanes * block_size),
            noise=ints(lanes * block_size),
            mask_row=ints(lanes * block_size),
        )


@triton.jit
def _gather(
    lanes_ptr,
    canvas_ptr,
    committed_ptr,
    block_ptr,
    step_ptr,
    ended_ptr,
    seed_ptr,
    temperature_ptr,
    top_k_ptr,
    top_p_ptr,
    mask_row_ptr,
    token_ids_ptr,
    positions_ptr,
    rows_ptr,
    tile_row_ptr,
    tile_token_ptr,
    tile_position_ptr,
    tile_length_ptr,
    sampled_ptr,
    out_temperature_ptr,
    out_top_k_ptr,
    out_top_p_ptr,
    noise_ptr,
    out_mask_row_ptr,
    capacity,
    mask_token_id,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    lane = tl.program_id(0)
    slot = tl.load(lanes_ptr + lane)
    running = slot >= 0
    slot = tl.maximum(slot, 0)
    running = running & (tl.load(ended_ptr + slot) == 0)
    committed = tl.load(committed_ptr + slot)
    first = tl.load(block_ptr + slot) * BLOCK
    length = tl.minimum(first + BLOCK - committed, WIDTH)
    length = tl.where(running, length, 0)
    w = tl.arange(0, WIDTH)
    inside = w < length
    position = committed + w
    base = slot.to(tl.int64) * capacity
    token = tl.load(canvas_ptr + base + position, mask=inside, other=0)
    token = tl.where(token < 0, mask_token_id, token)
    at = lane * WIDTH + w
    tl.store(token_ids_ptr + at, token)
    tl.store(positions_ptr + at, tl.where(inside, position, -1))
    tl.store(rows_ptr + at, tl.zeros([WIDTH], tl.int32) + slot)
    tl.store(tile_row_ptr + lane, slot)
    tl.store(tile_token_ptr + lane, lane * WIDTH)
    tl.store(tile_position_ptr + lane, committed)
    tl.store(tile_length_ptr + lane, length)
    b = tl.arange(0, BLOCK)
    whole = running & (committed + WIDTH >= first + BLOCK)
    index = tl.where(whole, first - committed, 0) + b
    tl.store(sampled_ptr + lane * BLOCK + b, lane * WIDTH + tl.minimum(index, WIDTH - 1))
    wanted = b < tl.where(running, BLOCK, 0)
    open_ = tl.load(canvas_ptr + base + first + b, mask=wanted, other=0) < 0
    temperature = tl.load(temperature_ptr + slot)
    here = lane * BLOCK + b
    tl.store(out_temperature_ptr + here, tl.where(whole & open_, temperature, 0.0))
    tl.store(out_top_k_ptr + here, tl.zeros([BLOCK], tl.int32) + tl.load(top_k_ptr + slot))
    tl.store(out_top_p_ptr + here, tl.zeros([BLOCK], tl.float32) + tl.load(top_p_ptr + slot))
    mask_row = tl.load(mask_row_ptr + base + first + b, mask=wanted, other=-1)
    tl.store(out_mask_row_ptr + here, tl.where(whole & open_, mask_row, -1))
    seed, step = tl.load(seed_ptr + slot), tl.load(step_ptr + slot)
    tl.store(
        noise_ptr + here,
        mix(mix(tl.zeros([BLOCK], tl.int32) + seed, first + b), tl.zeros([BLOCK], tl.int32) + step),
    )


def gather(
    lanes: Tensor, state: State, layout: Layout, *, block_size: int, mask_token_id: int
) -> None:
    """Fills `layout` for the slots in `lanes` (int32 [R], -1 is none)."""
    width = layout.token_ids.shape[0] // lanes.shape[0]
    _gather[(lanes.shape[0],)](
        lanes,
        state.canvas,
        state.committed,
        state.block,
        state.step,
        state.ended,
        state.seed,
        state.temperature,
        state.top_k,
        state.top_p,
        state.mask_row,
        layout.token_ids,
        layout.positions,
        layout.rows,
        layout.tile_row,
        layout.tile_token,
        layout.tile_position,
        layout.tile_length,
        layout.sampled,
        layout.temperature,
        layout.top_k,
        layout.top_p,
        layout.noise,
        layout.mask_row,
        state.canvas.stride(0),
        mask_token_id,
        WIDTH=width,
        BLOCK=block_size,
    )


@triton.jit
def _advance(
    lanes_ptr,
    canvas_ptr,
    written_step_ptr,
    logprobs_ptr,
    next_block_ptr,
    committed_ptr,
    block_ptr,
    step_ptr,
    forwards_ptr,
    ended_ptr,
    stop_at_ptr,
    strategy_ptr,
    denoising_steps_ptr,
    bound_ptr,
    temperature_ptr,
    mask_row_ptr,
    best_ptr,
    best_id_ptr,
    weight_ptr,
    mean_ptr,
    score_ptr,
    drawn_id_ptr,
    drawn_ptr,
    stops_ptr,
    capacity,
    blocks,
    WIDTH: tl.constexpr,
    BLOCK: tl.constexpr,
    SPLITS: tl.constexpr,
    STOPS: tl.constexpr,
    RESTRICTED: tl.constexpr,
):
    lane = tl.program_id(0)
    slot = tl.load(lanes_ptr + lane)
    running = slot >= 0
    slot = tl.maximum(slot, 0)
    running = running & (tl.load(ended_ptr + slot) == 0)
    if running:
        block = tl.load(block_ptr + slot)
        committed = tl.load(committed_ptr + slot)
        first = block * BLOCK
        tl.store(forwards_ptr + slot, tl.load(forwards_ptr + slot) + 1)
        tl.store(committed_ptr + slot, tl.minimum(first, committed + WIDTH))
        if committed + WIDTH >= first + BLOCK:
            b, s = tl.arange(0, BLOCK), tl.arange(0, SPLITS)
            part = (lane * BLOCK + b)[:, None] * SPLITS + s[None, :]
            best_BS = tl.load(best_ptr + part)
            best, which = tl.max(
                best_BS, 1, return_indices=True, return_indices_tie_break_left=True
            )
            scale = tl.exp(best_BS - best[:, None])
            weight = tl.sum(tl.load(weight_ptr + part) * scale, 1)
            mean = tl.sum(tl.load(mean_ptr + part) * scale, 1) / weight
            normaliser = tl.log(weight) + best
            picked = s[None, :] == which[:, None]
            token = tl.sum(tl.where(picked, tl.load(best_id_ptr + part), 0), 1)
            logit = best
            base = slot.to(tl.int64) * capacity + first
            # where the token is not simply the best one
            drawn = b >= tl.where(tl.load(temperature_ptr + slot) > 0, 0, BLOCK)
            if RESTRICTED:
                drawn = drawn | (tl.load(mask_row_ptr + base + b) >= 0)
            if tl.sum(drawn.to(tl.int32), 0) > 0:
                score_BS = tl.load(score_ptr + part)
                _, which = tl.max(
                    score_BS, 1, return_indices=True, return_indices_tie_break_left=True
                )
                picked = s[None, :] == which[:, None]
                drawn_id = tl.sum(tl.where(picked, tl.load(drawn_id_ptr + part), 0), 1)
                token = tl.where(drawn, drawn_id, token)
                drawn_logit = tl.sum(tl.where(picked, tl.load(drawn_ptr + part), 0.0), 1)
                logit = tl.where(drawn, drawn_logit, logit)
            logprob = logit - normaliser
            old = tl.load(canvas_ptr + base + b)
            open_ = old < 0
            wrote = tl.load(written_step_ptr + base + b) >= 0
            step = tl.load(step_ptr + slot)
            steps = tl.load(denoising_steps_ptr + slot)
            scheduled = BLOCK // steps + (step < BLOCK % steps).to(tl.int32)
            scheduled = tl.where(step < steps, scheduled, 1)
            bound = tl.load(bound_ptr + slot)
            strategy = tl.load(strategy_ptr + slot)
            # what comes first: the leftmost, the most probable, the one of least entropy
            key = tl.where(strategy == 0, -b.to(tl.float32), logprob)
            entropy = tl.where(open_, normaliser - mean, 0.0)
            key = tl.where(strategy == 3, -entropy, key)
            key = tl.where(open_, key, -1.0e30)
            ahead = (key[None, :] > key[:, None]) | (
                (key[None, :] == key[:, None]) & (b[None, :] < b[:, None])
            )
            ahead = ahead & open_[None, :]
            rank = tl.sum(ahead.to(tl.int32), 1)
            chosen = open_ & (rank < scheduled)
            if strategy == 2:
                sure = open_ & (logprob > bound)
                if tl.sum(sure.to(tl.int32), 0) >= scheduled:
                    chosen = sure
            if strategy == 3:
                total = entropy + tl.sum(tl.where(ahead, entropy[None, :], 0.0), 1)
                fits = tl.sum((open_ & (total <= bound)).to(tl.int32), 0)
                chosen = open_ & (rank < tl.maximum(fits, scheduled))
            tl.store(canvas_ptr + base + b, token, mask=chosen)
            tl.store(logprobs_ptr + base + b, logprob, mask=chosen)
            tl.store(
                written_step_ptr + base + b,
                (tl.zeros([BLOCK], tl.int32) + step).to(tl.int16),
                mask=chosen,
            )
            now = tl.where(chosen, token, old)
            wrote = wrote | chosen
            left = open_ & (chosen == 0)
            is_stop = tl.zeros([BLOCK], tl.int1)
            for index in tl.static_range(STOPS):
                is_stop = is_stop | (now == tl.load(stops_ptr + index))
            first_stop = tl.min(tl.where(wrote & is_stop, b, BLOCK), 0)
            first_left = tl.min(tl.where(left, b, BLOCK), 0)
            if first_stop < first_left:
                tl.store(ended_ptr + slot, 1)
                tl.store(stop_at_ptr + slot, first + first_stop)
            else:
                if first_left == BLOCK:
                    following = tl.load(next_block_ptr + slot.to(tl.int64) * blocks + block + 1)
                    if following < 0:
                        tl.store(ended_ptr + slot, 2)
                    else:
                        tl.store(block_ptr + slot, following)
                        tl.store(step_ptr + slot, 0)
                else:
                    tl.store(step_ptr + slot, step + 1)


def advance(
    lanes: Tensor,
    state: State,
    parts: Parts,
    stops: Tensor,
    *,
    width: int,
    block_size: int,
    restricted: bool = False,
) -> None:
    """After a forward of `width` tokens a lane: keep some of the tokens in `parts`, move on.

    `parts` has a row for each position of each lane's block; `stops` are int32 token ids; `restricted`
    where sets of allowed tokens are in use.
    """
    _advance[(lanes.shape[0],)](
        lanes,
        state.canvas,
        state.written_step,
        state.logprobs,
        state.next_block,
        state.committed,
        state.block,
        state.step,
        state.forwards,
        state.ended,
        state.stop_at,
        state.strategy,
        state.denoising_steps,
        state.bound,
        state.temperature,
        state.mask_row,
        parts.best,
        parts.best_id,
        parts.weight,
        parts.mean,
        parts.score,
        parts.drawn_id,
        parts.drawn,
        stops,
        state.canvas.stride(0),
        state.next_block.stride(0),
        WIDTH=width,
        BLOCK=block_size,
        SPLITS=parts.best.shape[1],
        STOPS=stops.shape[0],
        RESTRICTED=restricted,
    )
