"""Several samples in rows of one length, and who attends to whom.

A row of L training tokens is given to the model as 2L positions, [noisy copy | clean copy]. Attention is
decided by three ids per position, so the order inside a row changes nothing:

- `sample`: which sample; nothing crosses samples. Padding is sample -1.
- `block`: the diffusion block, position id // block size, counted from position 0 of the *sample*,
  prompt included (DESIGN section 3).
- `copy`: 0 in the clean copy, 1, 2, ... in noisy ones.

A noisy position sees its own block of its own copy and clean blocks of lower index; a clean position sees
clean blocks up to and including its own.

A sample's last block is filled up with the stop token, as labels: decoding always sees whole blocks, so a
block cut short at the stop token would tell the model where the text ends, and states with masks behind
the stop token would never be trained.

Shape legend: B rows, L training tokens per row, T = 2L positions.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

import torch
from torch import Tensor

from dice.data.store import SampleStore

CLEAN, NOISY = 0, 1
PADDING_SAMPLE = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedRows:
    """Rows of samples, before any noise. All tensors are [B, L] on the CPU."""

    token_ids_BL: Tensor
    sample_BL: Tensor
    """Number of the sample within its row; `PADDING_SAMPLE` where there is none."""
    position_BL: Tensor
    """Counted from 0 in each sample, prompt included."""
    label_BL: Tensor
    """True where the token is to be learnt: after the prompt, the stop token included."""

    @property
    def label_count(self) -> int:
        return int(self.label_BL.sum())


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionIds:
    """The three ids that decide attention; [B, T] each."""

    sample_BT: Tensor
    block_BT: Tensor
    copy_BT: Tensor

    def to(self, device: torch.device) -> "AttentionIds":
        return AttentionIds(
            sample_BT=self.sample_BT.to(device, non_blocking=True),
            block_BT=self.block_BT.to(device, non_blocking=True),
            copy_BT=self.copy_BT.to(device, non_blocking=True),
        )


def filled_length(length: int, block_size: int) -> int:
    """Positions a sample takes: its length, rounded up to whole blocks."""
    return -(-length // block_size) * block_size


def assign_rows(lengths: Sequence[int], row_length: int, order: Sequence[int]) -> list[list[int]]:
    """Distribute samples, in `order`, over rows of `row_length` positions: best fit among the rows still
    open. Samples that are longer than a row are left out.

    Returns:
        For each row the indices of its samples.
    """
    open_rows: list[list[int]] = []
    room: list[int] = []
    closed: list[list[int]] = []
    for index in order:
        length = lengths[index]
        if length > row_length:
            continue
        fits = [r for r, left in enumerate(room) if left >= length]
        if fits:
            row = min(fits, key=room.__getitem__)
        else:
            if len(room) == _OPEN_ROWS:
                fullest = min(range(len(room)), key=room.__getitem__)
                room.pop(fullest)
                closed.append(open_rows.pop(fullest))
            open_rows.append([])
            room.append(row_length)
            row = len(room) - 1
        open_rows[row].append(index)
        room[row] -= length
    return closed + open_rows


_OPEN_ROWS = 32


def pack_rows(
    store: SampleStore,
    rows: Sequence[Sequence[int]],
    *,
    row_length: int,
    block_size: int,
    stop_id: int,
    pad_id: int,
    row_count: int | None = None,
) -> PackedRows:
    """Lay the samples of each row end to end. With `row_count`, empty rows make up the number."""
    shape = (row_count or len(rows), row_length)
    token_ids = torch.full(shape, pad_id, dtype=torch.long)
    sample = torch.full(shape, PADDING_SAMPLE, dtype=torch.int32)
    position = torch.arange(row_length, dtype=torch.int32).repeat(shape[0], 1)
    label = torch.zeros(shape, dtype=torch.bool)
    for r, indices in enumerate(rows):
        start = 0
        for number, index in enumerate(indices):
            ids = store.tokens[store.offsets[index] : store.offsets[index + 1]]
            end = start + filled_length(len(ids), block_size)
            assert end <= row_length
            token_ids[r, start:end] = stop_id
            token_ids[r, start : start + len(ids)] = torch.from_numpy(ids)
            sample[r, start:end] = number
            position[r, start:end] = torch.arange(end - start, dtype=torch.int32)
            label[r, start + int(store.prompt_lengths[index]) : end] = True
            start = end
        position[r, start:] = torch.arange(row_length - start, dtype=torch.int32)
    return PackedRows(
        token_ids_BL=token_ids, sample_BL=sample, position_BL=position, label_BL=label
    )


def epoch_rows(
    store: SampleStore, *, row_length: int, block_size: int, seed: int, epoch: int
) -> list[list[int]]:
    """One epoch's rows in training order, a function of (`seed`, `epoch`) alone."""
    rng = Random(f"rows:{seed}:{epoch}")
    order = list(range(len(store)))
    rng.shuffle(order)
    lengths = [filled_length(int(n), block_size) for n in store.lengths]
    rows = assign_rows(lengths, row_length, order)
    rng.shuffle(rows)
    return rows


def attention_ids(rows: PackedRows, block_size: int) -> AttentionIds:
    """Ids of the [noisy | clean] layout of `rows`."""
    block_BL = rows.position_BL // block_size
    copy_BL = torch.full_like(block_BL, NOISY)
    return AttentionIds(
        sample_BT=torch.cat([rows.sample_BL, rows.sample_BL], dim=1),
        block_BT=torch.cat([block_BL, block_BL], dim=1),
        copy_BT=torch.cat([copy_BL, torch.full_like(copy_BL, CLEAN)], dim=1),
    )


def dense_mask(ids: AttentionIds) -> Tensor:
    """[B, 1, T, T] boolean, True where query (dim 2) sees key (dim 3)."""
    visible = visible_function(ids)
    b, t = ids.sample_BT.shape
    device = ids.sample_BT.device
    batch = torch.arange(b, device=device)[:, None, None]
    position = torch.arange(t, device=device)
    return visible(batch, batch, position[None, :, None], position[None, None, :])[:, None]


def visible_function(ids: AttentionIds) -> Callable[[Tensor, Tensor, Tensor, Tensor], Tensor]:
    """The attention rule as FlexAttention's `mask_mod(batch, head, query, key)`."""
    sample_BT, block_BT, copy_BT = ids.sample_BT, ids.block_BT, ids.copy_BT

    def visible(batch: Tensor, head: Tensor, query: Tensor, key: Tensor) -> Tensor:
        same_sample = sample_BT[batch, query] == sample_BT[batch, key]
        query_block, key_block = block_BT[batch, query], block_BT[batch, key]
        query_copy, key_copy = copy_BT[batch, query], copy_BT[batch, key]
        own_block = (query_copy == key_copy) & (query_block == key_block)
        earlier_clean = (key_copy == CLEAN) & (key_block < query_block)
        return same_sample & (own_block | earlier_clean)

    return visible
