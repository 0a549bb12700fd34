"""From rows of samples to the tensors of one forward pass; everything random here depends on (seed,
epoch, batch number) alone, so a resumed run sees what an uninterrupted one would.

Shape legend: B rows, L training tokens per row, T = 2L positions, N scored positions.
"""

import contextlib
import queue
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeVar

import torch
from torch import Tensor

from dice.data.store import SampleStore
from dice.train.layout import AttentionIds, PackedRows, attention_ids, pack_rows
from dice.train.noise import Noise, draw_noise

_SCORED_MULTIPLE = 2048
"""Scored positions are filled up to a multiple of this, so that few different shapes occur."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIds:
    """The ids that packing and noise need, and the block size they go with."""

    mask: int
    stop: int
    pad: int
    block_size: int


@dataclass(frozen=True, slots=True, kw_only=True)
class SftBatch:
    """One forward pass. `label_count` is what the loss divides by, this batch's share of it."""

    input_ids_BT: Tensor
    position_BT: Tensor
    attention: AttentionIds
    scored_N: Tensor
    """Flat indices into [B * T] of the masked positions, filled up with 0."""
    target_N: Tensor
    weight_N: Tensor
    """1/p; 0 where filled up."""
    label_count: int
    token_count: int
    """Training tokens, each counted once, padding left out."""

    def to(self, device: torch.device) -> "SftBatch":
        def move(tensor: Tensor) -> Tensor:
            if device.type == "cuda":
                tensor = tensor.pin_memory()
            return tensor.to(device, non_blocking=True)

        return SftBatch(
            input_ids_BT=move(self.input_ids_BT),
            position_BT=move(self.position_BT),
            attention=AttentionIds(
                sample_BT=move(self.attention.sample_BT),
                block_BT=move(self.attention.block_BT),
                copy_BT=move(self.attention.copy_BT),
            ),
            scored_N=move(self.scored_N),
            target_N=move(self.target_N),
            weight_N=move(self.weight_N),
            label_count=self.label_count,
            token_count=self.token_count,
        )


def noisy_batch(rows: PackedRows, noise: Noise, ids: TokenIds) -> SftBatch:
    """The [noisy | clean] batch of packed rows under one draw of noise."""
    noisy_BL = rows.token_ids_BL.masked_fill(noise.masked_BL, ids.mask)
    row_N, column_N = noise.masked_BL.nonzero(as_tuple=True)
    scored_N = row_N * (2 * rows.token_ids_BL.shape[1]) + column_N
    target_N = rows.token_ids_BL[noise.masked_BL]
    weight_N = 1.0 / noise.probability_BL[noise.masked_BL]
    missing = -len(scored_N) % _SCORED_MULTIPLE
    if len(scored_N) == 0:
        missing = _SCORED_MULTIPLE
    return SftBatch(
        input_ids_BT=torch.cat([noisy_BL, rows.token_ids_BL], dim=1),
        position_BT=torch.cat([rows.position_BL, rows.position_BL], dim=1).long(),
        attention=attention_ids(rows, ids.block_size),
        scored_N=torch.nn.functional.pad(scored_N, (0, missing)),
        target_N=torch.nn.functional.pad(target_N, (0, missing)),
        weight_N=torch.nn.functional.pad(weight_N, (0, missing)),
        label_count=rows.label_count,
        token_count=int((rows.sample_BL >= 0).sum()),
    )


def epoch_batches(
    store: SampleStore,
    rows: Sequence[Sequence[int]],
    ids: TokenIds,
    *,
    row_length: int,
    rows_per_batch: int,
    noise: Literal["sample", "block"],
    noise_eps: float,
    seed: int,
    epoch: int,
    first_batch: int = 0,
) -> Iterator[SftBatch]:
    """The batches of one epoch from `first_batch` on. The last one is filled up with empty rows."""
    generator = torch.Generator()
    for number in range(first_batch, batches_in(len(rows), rows_per_batch)):
        chosen = rows[number * rows_per_batch : (number + 1) * rows_per_batch]
        packed = pack_rows(
            store,
            chosen,
            row_length=row_length,
            block_size=ids.block_size,
            stop_id=ids.stop,
            pad_id=ids.pad,
            row_count=rows_per_batch,
        )
        generator.manual_seed(_mix(seed, epoch, number))
        draw = draw_noise(
            packed, level=noise, block_size=ids.block_size, eps=noise_eps, generator=generator
        )
        yield noisy_batch(packed, draw, ids)


def batches_in(rows: int, rows_per_batch: int) -> int:
    """Batches that `rows` rows make, the last one possibly partial."""
    return -(-rows // rows_per_batch)


def grouped(batches: Iterator[SftBatch], size: int) -> Iterator[list[SftBatch]]:
    """Lists of `size` batches, one per optimizer step; the last list holds what is left."""
    group: list[SftBatch] = []
    for batch in batches:
        group.append(batch)
        if len(group) == size:
            yield group
            group = []
    if group:
        yield group


def prefetch(items: Iterator[T], depth: int = 4) -> Iterator[T]:
    """`items`, made ahead of time by a thread. What it raises is raised here."""
    ready: queue.Queue[tuple[T | None, BaseException | None]] = queue.Queue(depth)
    stopped = threading.Event()

    def put(entry: tuple[T | None, BaseException | None]) -> None:
        while not stopped.is_set():
            with contextlib.suppress(queue.Full):
                ready.put(entry, timeout=0.1)
                return

    def produce() -> None:
        try:
            for item in items:
                put((item, None))
                if stopped.is_set():
                    return
            put((None, None))
        except BaseException as e:  # handed to the consumer, which raises it
            put((None, e))

    threading.Thread(target=produce, name="prefetch", daemon=True).start()
    try:
        while True:
            item, error = ready.get()
            if error is not None:
                raise error
            if item is None:
                return
            yield item
    finally:
        stopped.set()


def _mix(*numbers: int) -> int:
    """One 63-bit seed from several numbers."""
    state = 0x9E3779B97F4A7C15
    for number in numbers:
        state ^= number & 0xFFFFFFFFFFFFFFFF
        state = (state * 0xBF58476D1CE4E5B9) & 0xFFFFFFFFFFFFFFFF
        state ^= state >> 31
    return state >> 1
