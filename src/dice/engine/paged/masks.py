"""Which tokens a position may take: sets of token ids as bits, in one table on the device.

Sequences refer to rows of the table; equal sets share a row. The table grows when it is full, and whoever has
recorded its address (CUDA graphs) has to ask `generation` whether that still holds.
"""

import numpy as np
import torch
from torch import Tensor

_ROWS = 16
"""To begin with."""


class TokenMasks:
    """`table` holds one set a row, int32 [rows, words]: bit i of word w is token 32 w + i."""

    def __init__(self, vocabulary: int, device: torch.device) -> None:
        self._words = -(-vocabulary // 32)
        self.table = torch.zeros(_ROWS, self._words, device=device, dtype=torch.int32)
        self.generation = 0
        """Changes when `table` is another tensor."""
        self._rows: dict[frozenset[int], int] = {}
        self._sets: list[frozenset[int] | None] = [None] * _ROWS
        self._users = [0] * _ROWS

    def hold(self, token_ids: frozenset[int]) -> int:
        """The row of this set, until it is released as often as it was held."""
        row = self._rows.get(token_ids)
        if row is None:
            row = self._free_row()
            self._rows[token_ids], self._sets[row] = row, token_ids
            self.table[row] = self._bits(token_ids).to(self.table.device)
        self._users[row] += 1
        return row

    def release(self, row: int) -> None:
        """One user less."""
        self._users[row] -= 1
        assert self._users[row] >= 0
        if not self._users[row]:
            token_ids = self._sets[row]
            assert token_ids is not None
            del self._rows[token_ids]
            self._sets[row] = None

    def _free_row(self) -> int:
        if None not in self._sets:
            more = len(self._sets)
            self.table = torch.cat([self.table, torch.zeros_like(self.table)])
            self.generation += 1
            self._sets += [None] * more
            self._users += [0] * more
        return self._sets.index(None)

    def _bits(self, token_ids: frozenset[int]) -> Tensor:
        flags = np.zeros(32 * self._words, dtype=np.uint8)
        flags[list(token_ids)] = 1
        return torch.from_numpy(np.packbits(flags, bitorder="little").view(np.int32))
