"""Sequences on one device: slots and pages for them, prefill, steps, and what has become of them."""

from collections import deque
from dataclasses import dataclass

import torch
from torch import Tensor

from dice.engine.loop import ABORTED, Stepped, Written
from dice.engine.paged import state as states
from dice.engine.paged.attention import Tiles
from dice.engine.paged.masks import TokenMasks
from dice.engine.paged.model import PagedModel
from dice.engine.paged.pages import Grant, Pages
from dice.engine.paged.state import State
from dice.engine.paged.step import Step, Variant
from dice.engine.paged.transfer import read_sequence, write_sequence
from dice.engine.scheduler import Sequence
from dice.errors import ModelError
from dice.models.load import LoadedModel
from dice.models.memory import available_bytes
from dice.models.sdar.cache import cache_bytes

PAGE_SIZE = 64
_LANES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
_PREFILL_TOKENS = 8192
_TILE = 32
"""Tokens of a prefill tile."""
_SHARE = 0.9
"""Of the free memory that pages may take."""


@dataclass(slots=True, kw_only=True)
class Slot:
    """A sequence on the device."""

    sequence: Sequence
    pages: tuple[int, ...]
    masks: dict[int, int]
    """Rows of `TokenMasks` by position of the canvas."""
    age: int
    """Sequences that were admitted before."""
    admitted: int
    """Steps there had been when it was admitted."""
    committed: int
    """Positions whose keys and values were final..."""
    seen: int
    """...after so many steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """`State.ended` and `State.committed` as they were after some step, on their way to the host."""

    step: int
    flags: Tensor
    arrived: "torch.cuda.Event | None"


class PagedRunner:
    """A `loop.Decoder` on the device of a loaded model.

    Args:
        slots: sequences at a time.
        capacity: positions of the longest sequence.
        pages: of `PAGE_SIZE` positions; by default as many as the slots need at most, or as memory allows.
        fused: two blocks a lane always or never; by default as long as steps are small.

    A sequence takes pages as it grows. Where none is left the youngest gives up its own and waits; it goes on
    later where it was, with the same result.

    Raises:
        ModelError: the longest sequence does not fit even alone.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        slots: int,
        capacity: int,
        *,
        pages: int | None = None,
        fused: bool | None = None,
    ) -> None:
        size = loaded.block_size
        if size & (size - 1) or size > PAGE_SIZE:
            raise ValueError(f"block size {size} is no power of two up to {PAGE_SIZE}")
        self._loaded, self._size, self._fused = loaded, size, fused
        self._capacity = -(-capacity // PAGE_SIZE) * PAGE_SIZE
        most = self._capacity // PAGE_SIZE
        count = _affordable(loaded, 1 + slots * most) if pages is None else pages
        if count <= most:
            raise ModelError(
                f"a sequence of {capacity} positions takes {most} pages of the cache's {count - 1}; "
                "give it more, or allow fewer new tokens (max_new_tokens)"
            )
        self._pages = Pages(count, PAGE_SIZE)
        self._model = PagedModel(loaded.model, pages=count, page_size=PAGE_SIZE)
        self._device = loaded.model.lm_head.weight.device
        self._state = State.empty(slots, self._capacity, size, most, self._device)
        self._slots: list[Slot | None] = [None] * slots
        self._steps: dict[int, Step] = {}
        self._masks = TokenMasks(loaded.model.config.vocab_size, self._device)
        self._count = 0
        """Steps so far."""
        self._admitted = 0
        """Sequences so far, one that came back counted again."""
        self._seen: deque[_Snapshot] = deque()

    @property
    def running(self) -> list[Sequence]:
        return [slot.sequence for slot in self._slots if slot is not None]

    @torch.inference_mode()
    def admit(self, waiting: list[Sequence]) -> list[Sequence]:
        taken: list[Sequence] = []
        filling: list[tuple[int, int]] = []
        for sequence in waiting:
            prefix = sequence.prefix
            if None not in self._slots:
                break
            if prefix and any(self._slot(one).sequence.prefix == prefix for one, _ in filling):
                self._prefill(filling)  # so that this one can share its pages
                filling = []
            grant = self._grant(sequence)
            if grant is None:
                break
            if grant.copy is not None:
                self._model.copy_page(*grant.copy)
            index = self._put(sequence, grant)
            taken.append(sequence)
            if grant.cached < sequence.block_start:
                filling.append((index, grant.cached))
        self._prefill(filling)
        if taken:
            self._lay_out()
        return taken

    def _grant(self, sequence: Sequence) -> Grant | None:
        """Pages for what a sequence has and its next few blocks."""
        ahead = max(PAGE_SIZE, 2 * self._size)
        positions = min(len(sequence.canvas), sequence.block_start + ahead)
        grant = self._pages.grant(sequence.prefix, positions)
        if grant is None and not self.running:  # in the way is only what is remembered
            self._pages.forget()
            grant = self._pages.grant(sequence.prefix, positions)
            assert grant is not None
        return grant

    def _put(self, sequence: Sequence, grant: Grant) -> int:
        """Into a free slot."""
        start, allowed = sequence.canvas.prompt_length, sequence.params.allowed_token_ids or {}
        masks = {start + at: self._masks.hold(ids) for at, ids in allowed.items()}
        index = self._slots.index(None)
        self._slots[index] = Slot(
            sequence=sequence,
            pages=grant.pages,
            masks=masks,
            age=self._admitted,
            admitted=self._count,
            committed=sequence.block_start,
            seen=self._count,
        )
        self._admitted += 1
        write_sequence(
            self._state,
            index,
            sequence,
            grant.pages,
            committed=sequence.block_start,
            vocabulary=self._loaded.model.config.vocab_size,
            mask_rows=masks,
        )
        return index

    def _slot(self, index: int) -> Slot:
        slot = self._slots[index]
        assert slot is not None
        return slot

    def _prefill(self, filling: list[tuple[int, int]]) -> None:
        """Keys and values before the current blocks of slots, each from a position on, in chunks of whole blocks."""
        chunk: list[tuple[int, int, int]] = []
        room = _PREFILL_TOKENS
        for index, at in filling:
            end = self._slot(index).sequence.block_start
            while at < end:
                stop = min(end, at + room)
                chunk.append((index, at, stop))
                room -= stop - at
                at = stop
                if not room:
                    self._forward(chunk)
                    chunk, room = [], _PREFILL_TOKENS
        if chunk:
            self._forward(chunk)
        for index, _ in filling:
            self._pages.remember(self._slot(index).sequence.prefix, self._slot(index).pages)

    def _forward(self, chunk: list[tuple[int, int, int]]) -> None:
        """Runs of tokens (slot, start, stop), in the order of their positions."""
        token_ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        tiles: list[tuple[int, int, int, int]] = []
        for index, start, stop in chunk:
            for at in range(start, stop, _TILE):
                length = min(_TILE, stop - at)
                tiles.append((index, len(token_ids) + at - start, at, length))
            token_ids += self._slot(index).sequence.canvas.token_ids[start:stop]
            positions += range(start, stop)
            rows += [index] * (stop - start)
        row, token, position, length_T = (self._ints(list(one)) for one in zip(*tiles, strict=True))
        self._model.hidden(
            self._ints(token_ids),
            self._ints(positions),
            self._ints(rows),
            Tiles(row=row, token=token, position=position, length=length_T, size=_TILE),
            self._state.table,
            self._model.attention.buffers(len(token_ids), 1),
        )

    def _ints(self, values: list[int]) -> Tensor:
        return torch.tensor(values, device=self._device, dtype=torch.int32)

    # -- steps -----------------------------------------------------------------------------------

    @torch.inference_mode()
    def step(self, *, watched: bool = False) -> Stepped:
        """One forward of every running sequence.

        The host waits for the step before, at most; watched, it waits for this one.
        """
        preempted = self._grow()
        ended = [one for one in preempted if one.finish_reason is not None]
        written = []
        if self.running:
            self._launch()
            written = self._news() if watched else []
            ended += self._ended(behind=0 if watched else 1)
        left = [one for one in preempted if one.finish_reason is None]
        return Stepped(written=written, ended=ended, preempted=left)

    def _grow(self) -> list[Sequence]:
        """Pages for the next step, oldest first; the sequences that had to go for them, oldest first."""
        gone: list[Sequence] = []
        for index, slot in sorted(self._used(), key=lambda one: one[1].age):
            # each step until then commits, and the next one writes, at most two blocks
            reach = slot.committed + 2 * self._size * (self._count - slot.seen + 1)
            wanted = -(-min(reach, len(slot.sequence.canvas)) // PAGE_SIZE) - len(slot.pages)
            pages = None
            while wanted > 0 and self._slots[index] is slot and pages is None:
                pages = self._pages.take(wanted)
                if pages is None:
                    last, youngest = max(self._used(), key=lambda one: one[1].age)
                    read_sequence(self._state, last, youngest.sequence)
                    self._release(last, youngest)
                    gone.insert(0, youngest.sequence)
            if pages is not None:
                for offset, page in enumerate(pages, len(slot.pages)):
                    self._state.table[index, offset] = page
                slot.pages += pages
        if gone:
            self._lay_out()
        return gone

    def _used(self) -> list[tuple[int, Slot]]:
        return [(index, slot) for index, slot in enumerate(self._slots) if slot is not None]

    def _launch(self) -> None:
        self._count += 1
        self._step.run(self._variant)
        flags, arrived = torch.stack([self._state.ended, self._state.committed]), None
        if self._device.type == "cuda":
            pinned = torch.empty(flags.shape, dtype=torch.int32, pin_memory=True)
            flags = pinned.copy_(flags, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self._seen.append(_Snapshot(step=self._count, flags=flags, arrived=arrived))

    def _lay_out(self) -> None:
        """Give every running slot a lane of the smallest step that holds them."""
        used = [index for index, _ in self._used()]
        params = [sequence.params for sequence in self.running]
        self._variant = Variant(
            filtered=any(one.top_k is not None or one.top_p is not None for one in params),
            restricted=any(one.allowed_token_ids for one in params),
        )
        lanes = next((count for count in _LANES if count >= len(used)), len(used))
        if lanes not in self._steps:
            self._steps[lanes] = Step(
                self._loaded, self._model, self._state, self._masks, lanes, fused=self._fused
            )
        self._step = self._steps[lanes]
        chosen = [*used, *[-1] * (lanes - len(used))]
        self._step.lanes.copy_(torch.tensor(chosen, dtype=torch.int32))

    # -- results ---------------------------------------------------------------------------------

    def _ended(self, behind: int) -> list[Sequence]:
        """The sequences that have ended, their canvases filled, their slots free.

        Looks at what the device had done `behind` steps ago, so that it need not wait for the host.
        """
        found: dict[int, Slot] = {}
        while len(self._seen) > behind:
            seen = self._seen.popleft()
            if seen.arrived is not None:
                seen.arrived.synchronize()
            flags, committed = seen.flags.tolist()
            for index, slot in self._used():
                if slot.admitted < seen.step:
                    slot.committed, slot.seen = committed[index], seen.step
                    if flags[index] in (states.STOPPED, states.FULL):
                        found[index] = slot
        gone = list(found.items())
        for index, slot in gone:
            read_sequence(self._state, index, slot.sequence)
            self._release(index, slot)
        if gone:
            self._lay_out()
        return [slot.sequence for _, slot in gone]

    def _news(self) -> list[Written]:
        """Waits for the device; what was written since the last call, now in the canvases too."""
        found = []
        for index, slot in self._used():
            canvas = slot.sequence.canvas
            before = slot.sequence.block
            masked = [at for at in range(before * self._size, len(canvas)) if canvas.is_masked(at)]
            read_sequence(self._state, index, slot.sequence)
            positions = tuple(at for at in masked if not canvas.is_masked(at))
            if positions:
                step = canvas.steps[positions[0]]
                assert step is not None
                block = positions[0] // self._size
                written = Written(
                    sequence=slot.sequence, block=block, step=step, positions=positions
                )
                found.append(written)
        return found

    @torch.inference_mode()
    def abort(self, sequence: Sequence) -> None:
        for index, slot in self._used():
            if slot.sequence is sequence:
                read_sequence(self._state, index, sequence)
                sequence.finish_reason = sequence.finish_reason or ABORTED
                self._release(index, slot)
                self._lay_out()

    def _release(self, index: int, slot: Slot) -> None:
        self._pages.release(slot.pages)
        for row in slot.masks.values():
            self._masks.release(row)
        self._state.ended[index] = states.FREE
        self._slots[index] = None

    def weights_changed(self) -> None:
        """Forget what the old weights have computed. Call while nothing runs."""
        assert not self.running
        self._pages.forget()


def _affordable(loaded: LoadedModel, wanted: int) -> int:
    """So many pages, or what the device's free memory holds."""
    weight = loaded.model.lm_head.weight
    free = available_bytes(weight.device)
    page = cache_bytes(loaded.model.config, 1, PAGE_SIZE, weight.dtype)
    return wanted if free is None else min(wanted, int(_SHARE * free) // page)
