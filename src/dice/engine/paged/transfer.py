"""One sequence's state: written to the device when it is admitted, read back when somebody looks."""

import math

import torch
from torch import Tensor

from dice.engine.paged import state as states
from dice.engine.paged.state import State
from dice.engine.scheduler import Sequence


def write_sequence(
    state: State,
    slot: int,
    sequence: Sequence,
    pages: tuple[int, ...],
    *,
    committed: int,
    vocabulary: int,
    mask_rows: dict[int, int],
) -> None:
    """Put a sequence into a slot, begun or not; the keys and values of its first `committed` positions are there.

    `mask_rows` are rows of the table of masks by position of the canvas.
    """
    canvas, params = sequence.canvas, sequence.params
    size = canvas.block_size
    blocks = len(canvas) // size
    ids = [
        states.TO_WRITE if canvas.is_masked(at) else token
        for at, token in enumerate(canvas.token_ids)
    ]
    following = [canvas.next_masked_block(block) for block in range(blocks)]
    row = torch.full((state.canvas.shape[1],), canvas.mask_token_id, dtype=torch.int32)
    row[: len(ids)] = torch.tensor(ids, dtype=torch.int32)
    state.canvas[slot] = row.to(state.canvas.device)
    chain = torch.full((state.next_block.shape[1],), -1, dtype=torch.int32)
    chain[:blocks] = torch.tensor(
        [-1 if one is None else one for one in following], dtype=torch.int32
    )
    state.next_block[slot] = chain.to(state.canvas.device)
    table = torch.zeros(state.table.shape[1], dtype=torch.int32)
    table[: len(pages)] = torch.tensor(pages, dtype=torch.int32)
    state.table[slot] = table.to(state.canvas.device)
    steps = torch.full((state.written_step.shape[1],), -1, dtype=torch.int16)
    steps[: len(ids)] = torch.tensor([-1 if one is None else one for one in canvas.steps])
    state.written_step[slot] = steps.to(state.written_step.device)
    logprobs = torch.zeros(state.logprobs.shape[1])
    logprobs[: len(ids)] = torch.tensor([one or 0.0 for one in canvas.logprobs])
    state.logprobs[slot] = logprobs.to(state.logprobs.device)
    state.mask_row[slot] = -1
    if mask_rows:
        at = torch.tensor(list(mask_rows), device=state.mask_row.device)
        values_A = torch.tensor(list(mask_rows.values()), dtype=torch.int32)
        state.mask_row[slot, at] = values_A.to(state.mask_row.device)
    bound = params.bound
    if params.remasking_strategy == "low_confidence_dynamic":
        bound = math.log(bound) if bound > 0 else -math.inf
    values: list[tuple[Tensor, float]] = [
        (state.committed, committed),
        (state.block, sequence.block),
        (state.step, sequence.step),
        (state.forwards, sequence.forwards),
        (state.ended, states.RUNNING),
        (state.stop_at, -1),
        (state.seed, _seed32(params.seed)),
        (state.strategy, states.STRATEGIES[params.remasking_strategy]),
        (state.denoising_steps, params.denoising_steps or size),
        (state.bound, bound),
        (state.temperature, params.temperature),
        (state.top_k, params.top_k or vocabulary),
        (state.top_p, 1.0 if params.top_p is None else params.top_p),
    ]
    for tensor, value in values:
        tensor[slot] = value


def read_sequence(state: State, slot: int, sequence: Sequence) -> None:
    """Bring a sequence up to date with its slot."""
    canvas = sequence.canvas
    length = len(canvas)
    ids = state.canvas[slot, :length].tolist()
    steps = state.written_step[slot, :length].tolist()
    logprobs = state.logprobs[slot, :length].tolist()
    for at, step in enumerate(steps):
        if step >= 0 and canvas.is_masked(at):
            canvas.write(at, ids[at], step, logprobs[at])
    sequence.block = int(state.block[slot])
    sequence.step = int(state.step[slot])
    sequence.forwards = int(state.forwards[slot])
    stop_at = int(state.stop_at[slot])
    sequence.stop_at = stop_at if stop_at >= 0 else None
    reasons = {states.STOPPED: "stop", states.FULL: "length"}
    sequence.finish_reason = reasons.get(int(state.ended[slot]))


def _seed32(seed: int) -> int:
    """Any whole number as an int32."""
    folded = (seed ^ (seed >> 32)) & 0xFFFFFFFF
    return folded - (1 << 32) if folded >= 1 << 31 else folded
