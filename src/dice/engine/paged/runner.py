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
from dice.engine.paged.pages import Pages
from dice.engine.paged.state import State
from dice.engine.paged.step import Step, Variant
from dice.engine.paged.transfer import read_sequence, write_sequence
from dice.engine.scheduler import Sequence
from dice.errors import ModelError
from dice.models.load import LoadedModel

PAGE_SIZE = 64
_LANES = (1, 2, 4, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 160, 192, 224, 256)
_PREFILL_TOKENS = 8192
_TILE = 32
"""Tokens of a prefill tile."""


@dataclass(slots=True, kw_only=True)
class Slot:
    """A sequence on the device."""

    sequence: Sequence
    pages: tuple[int, ...]
    masks: dict[int, int]
    """Rows of `TokenMasks` by position of the canvas."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Snapshot:
    """`State.ended` as it was after some step, on its way to the host."""

    step: int
    flags: Tensor
    arrived: "torch.cuda.Event | None"


class PagedRunner:
    """A `loop.Decoder` on the device of a loaded model.

    Args:
        slots: sequences at a time.
        capacity: positions of the longest sequence.
        pages: of `PAGE_SIZE` positions; by default as many as the slots need at most.
        fused: two blocks a lane always or never; by default as long as steps are small.
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
        count = 1 + slots * most if pages is None else pages
        self._pages = Pages(count, PAGE_SIZE)
        self._model = PagedModel(loaded.model, pages=count, page_size=PAGE_SIZE)
        self._device = loaded.model.lm_head.weight.device
        self._state = State.empty(slots, self._capacity, size, most, self._device)
        self._slots: list[Slot | None] = [None] * slots
        self._steps: dict[int, Step] = {}
        self._masks = TokenMasks(loaded.model.config.vocab_size, self._device)
        self._count = 0
        """Steps so far."""
        self._admitted_at = [0] * slots
        self._seen: deque[_Snapshot] = deque()

    @property
    def running(self) -> list[Sequence]:
        return [slot.sequence for slot in self._slots if slot is not None]

    @torch.inference_mode()
    def admit(self, waiting: list[Sequence]) -> list[Sequence]:
        taken: list[Sequence] = []
        filling: list[tuple[int, Slot]] = []
        for sequence in waiting:
            if None not in self._slots:
                break
            if any(slot.sequence.prefix == sequence.prefix for _, slot in filling):
                self._prefill(filling)  # so that this one can share its pages
                filling = []
            grant = self._pages.grant(sequence.prefix, len(sequence.canvas))
            if grant is None:
                break
            if grant.copy is not None:
                self._model.copy_page(*grant.copy)
            start, allowed = sequence.canvas.prompt_length, sequence.params.allowed_token_ids or {}
            masks = {start + at: self._masks.hold(ids) for at, ids in allowed.items()}
            index = self._slots.index(None)
            slot = Slot(sequence=sequence, pages=grant.pages, masks=masks)
            self._slots[index] = slot
            self._admitted_at[index] = self._count
            write_sequence(
                self._state,
                index,
                sequence,
                grant.pages,
                committed=grant.cached,
                vocabulary=self._loaded.model.config.vocab_size,
                mask_rows=masks,
            )
            taken.append(sequence)
            if not grant.cached:
                filling.append((index, slot))
        self._prefill(filling)
        if taken:
            self._lay_out()
        elif waiting and not self.running:
            raise ModelError(
                f"a sequence of {len(waiting[0].canvas)} positions does not fit into the cache's pages; "
                "give it more, or allow fewer new tokens (max_new_tokens)"
            )
        return taken

    def _prefill(self, filling: list[tuple[int, Slot]]) -> None:
        """Keys and values of prefixes that no page holds yet, in chunks of whole blocks."""
        chunk: list[tuple[int, int, int]] = []
        room = _PREFILL_TOKENS
        for index, slot in filling:
            at, end = 0, len(slot.sequence.prefix)
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
        for index, slot in filling:
            self._state.committed[index] = len(slot.sequence.prefix)
            self._pages.remember(slot.sequence.prefix, slot.pages)

    def _forward(self, chunk: list[tuple[int, int, int]]) -> None:
        """Runs of tokens (slot, start, stop), in the order of their positions."""
        token_ids: list[int] = []
        positions: list[int] = []
        rows: list[int] = []
        tiles: list[tuple[int, int, int, int]] = []
        for index, start, stop in chunk:
            slot = self._slots[index]
            assert slot is not None
            for at in range(start, stop, _TILE):
                length = min(_TILE, stop - at)
                tiles.append((index, len(token_ids) + at - start, at, length))
            token_ids += slot.sequence.prefix[start:stop]
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
        self._launch()
        written = self._news() if watched else []
        return Stepped(written=written, ended=self._ended(behind=0 if watched else 1))

    def _launch(self) -> None:
        self._count += 1
        self._step.run(self._variant)
        flags, arrived = self._state.ended.clone(), None
        if self._device.type == "cuda":
            pinned = torch.empty(len(self._slots), dtype=torch.int32, pin_memory=True)
            flags = pinned.copy_(flags, non_blocking=True)
            arrived = torch.cuda.Event()  # type: ignore[no-untyped-call]
            arrived.record()
        self._seen.append(_Snapshot(step=self._count, flags=flags, arrived=arrived))

    def _lay_out(self) -> None:
        """Give every running slot a lane of the smallest step that holds them."""
        used = [index for index, slot in enumerate(self._slots) if slot is not None]
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
            for index, flag in enumerate(seen.flags.tolist()):
                slot = self._slots[index]
                fresh = self._admitted_at[index] < seen.step
                if slot is not None and fresh and flag in (states.STOPPED, states.FULL):
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
        for index, slot in enumerate(self._slots):
            if slot is None:
                continue
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
        for index, slot in enumerate(self._slots):
            if slot is not None and slot.sequence is sequence:
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
