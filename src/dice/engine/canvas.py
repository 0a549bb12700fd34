"""The token canvas of one sequence: what is given, what the model writes, what is still masked.

Blocks are counted from position 0, the prompt included. Forced tokens (prompt, infilling prefix and
suffix) are never changed.
"""

from collections.abc import Sequence


class Canvas:
    """Positions 0..length of a sequence, whole blocks only.

    `template` describes what follows the prompt: a token id where it is forced, `None` where the model
    writes. A template that ends with `None` is extended to the end of its block; behind a forced end
    the rest of the block stays masked.
    """

    def __init__(
        self,
        prompt_ids: Sequence[int],
        template: Sequence[int | None],
        *,
        block_size: int,
        mask_token_id: int,
    ) -> None:
        assert template
        self.block_size = block_size
        self.mask_token_id = mask_token_id
        self.prompt_length = len(prompt_ids)
        used = len(prompt_ids) + len(template)
        padding = -used % block_size
        self.free = [False] * len(prompt_ids) + [token is None for token in template]
        self.free += [template[-1] is None] * padding
        self.token_ids = list(prompt_ids)
        self.token_ids += [mask_token_id if token is None else token for token in template]
        self.token_ids += [mask_token_id] * padding
        self.steps: list[int | None] = [None] * len(self.token_ids)
        self.logprobs: list[float | None] = [None] * len(self.token_ids)
        last_free = max((at for at, free in enumerate(self.free) if free), default=-1)
        self.free_stop = last_free + 1
        """Behind the last position that the model writes."""
        self.suffix_ids = tuple(self.token_ids[last_free + 1 : used]) if last_free >= 0 else ()

    def __len__(self) -> int:
        return len(self.token_ids)

    def is_masked(self, position: int) -> bool:
        """Whether the model has still to write this position."""
        return self.free[position] and self.token_ids[position] == self.mask_token_id

    def masked(self, block: int) -> list[int]:
        """Positions of a block that the model has still to write."""
        start = block * self.block_size
        return [at for at in range(start, start + self.block_size) if self.is_masked(at)]

    def first_masked(self) -> int:
        """The first position that the model has still to write, else behind the last that it writes."""
        masked = (at for at in range(self.free_stop) if self.is_masked(at))
        return next(masked, self.free_stop)

    def next_masked_block(self, block: int) -> int | None:
        """The first block from `block` on with something to write."""
        for index in range(block, -(-self.free_stop // self.block_size)):
            if self.masked(index):
                return index
        return None

    def write(self, position: int, token_id: int, step: int, logprob: float) -> None:
        """Unmasks a position for good."""
        assert self.is_masked(position)
        assert token_id != self.mask_token_id
        self.token_ids[position] = token_id
        self.steps[position] = step
        self.logprobs[position] = logprob

    def stop_position(self, block: int, stop_token_ids: frozenset[int]) -> int | None:
        """Where the sequence ends: a stop token the model wrote in this block, nothing before it masked.

        Earlier blocks are known to hold none.
        """
        start = block * self.block_size
        for position in range(start, start + self.block_size):
            if self.is_masked(position):
                return None
            if self.free[position] and self.token_ids[position] in stop_token_ids:
                return position
        return None
