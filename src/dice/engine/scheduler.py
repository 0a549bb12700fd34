"""Which sequences are being decoded: admission to cache rows, and retirement when they end."""

import random
from dataclasses import dataclass, field

from dice.engine.canvas import Canvas
from dice.engine.sampling import Law, SamplingParams


@dataclass(slots=True, kw_only=True)
class Sequence:
    """One request while it is decoded."""

    request: int
    """Index of the prompt it answers."""
    canvas: Canvas
    params: SamplingParams
    law: Law = field(init=False)
    rng: random.Random = field(init=False)
    prefix: tuple[int, ...] = ()
    """Tokens of the whole blocks that are given; what `Runner.prefill` computes."""
    row: int = -1
    """Its row in the cache, once admitted."""
    block: int = 0
    """The block being denoised; every block before it is final."""
    step: int = 0
    """0-based denoising step within that block."""
    forwards: int = 0
    stop_at: int | None = None
    """Position of the stop token that ended it."""
    finish_reason: str | None = None

    def __post_init__(self) -> None:
        params = self.params
        self.law = Law(params.temperature, params.top_k, params.top_p)
        self.rng = random.Random(params.seed)
        first = self.canvas.next_masked_block(0)
        assert first is not None, "a canvas without anything to write"
        self.block = first
        self.prefix = tuple(self.canvas.token_ids[: self.block_start])

    @property
    def block_start(self) -> int:
        return self.block * self.canvas.block_size

    def allowed(self, position: int) -> frozenset[int] | None:
        """The tokens that may be written at a position of the canvas; None for all."""
        sets = self.params.allowed_token_ids
        return None if sets is None else sets.get(position - self.canvas.prompt_length)

    def advance(self, stop_token_ids: frozenset[int], *, block_done: bool) -> None:
        """After a forward and its writes: next step, next block with something to write, or the end."""
        self.forwards += 1
        self.step += 1
        self.stop_at = self.canvas.stop_position(self.block, stop_token_ids)
        if self.stop_at is not None:
            self.finish_reason = "stop"
        elif block_done:
            following = self.canvas.next_masked_block(self.block + 1)
            if following is None:
                self.finish_reason = "length"
            else:
                self.block, self.step = following, 0


class Scheduler:
    """First come, first served, at most `rows` sequences at a time."""

    def __init__(self, rows: int) -> None:
        self.running: list[Sequence] = []
        self._free_rows = list(reversed(range(rows)))

    def admit(self, waiting: list[Sequence]) -> list[Sequence]:
        """Moves sequences from the front of `waiting` into free rows and returns them."""
        admitted = waiting[: len(self._free_rows)]
        for sequence in admitted:
            sequence.row = self._free_rows.pop()
        self.running = [*self.running, *admitted]
        return admitted

    def retire(self) -> list[Sequence]:
        """Takes finished sequences out; their rows are free again."""
        finished = [one for one in self.running if one.finish_reason is not None]
        if finished:
            self.remove(finished)
        return finished

    def remove(self, sequences: list[Sequence]) -> None:
        """Takes these out, finished or not."""
        rows = {one.row for one in sequences}
        self.running = [one for one in self.running if one.row not in rows]
        self._free_rows += rows
