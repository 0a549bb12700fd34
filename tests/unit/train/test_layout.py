import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dice.train.attention import build_mask
from dice.train.layout import (
    PADDING_SAMPLE,
    assign_rows,
    attention_ids,
    dense_mask,
    epoch_rows,
    filled_length,
    pack_rows,
)
from tests.unit.train.common import PAD, STOP, samples

LENGTHS = st.lists(st.integers(1, 40), min_size=1, max_size=60)


@given(lengths=LENGTHS)
def test_every_sample_that_fits_is_in_one_row_and_no_row_overflows(lengths: list[int]) -> None:
    rows = assign_rows(lengths, 32, range(len(lengths)))
    placed = sorted(i for row in rows for i in row)
    assert placed == [i for i, n in enumerate(lengths) if n <= 32]
    assert all(sum(lengths[i] for i in row) <= 32 for row in rows)


def test_best_fit_fills_rows_almost_completely() -> None:
    store = samples([(20 + i * 7 % 90, 30 + i * 13 % 170) for i in range(600)])
    rows = epoch_rows(store, row_length=1024, block_size=4, seed=0, epoch=0)
    used = sum(filled_length(int(n), 4) for n in store.lengths)
    assert used / (len(rows) * 1024) > 0.95


def test_epochs_differ_and_repeat_with_their_seed() -> None:
    store = samples([(5, 9)] * 50)
    first = epoch_rows(store, row_length=64, block_size=4, seed=3, epoch=0)
    assert first == epoch_rows(store, row_length=64, block_size=4, seed=3, epoch=0)
    assert first != epoch_rows(store, row_length=64, block_size=4, seed=3, epoch=1)


def test_a_packed_row_holds_whole_samples_filled_up_with_the_stop_token() -> None:
    store = samples([(3, 6), (5, 3)])
    rows = pack_rows(store, [[0, 1]], row_length=24, block_size=4, stop_id=STOP, pad_id=PAD)
    first, second = store[0].token_ids, store[1].token_ids
    assert rows.token_ids_BL[0].tolist() == [*first, *[STOP] * 3, *second, *[PAD] * 4]
    assert rows.sample_BL[0].tolist() == [0] * 12 + [1] * 8 + [PADDING_SAMPLE] * 4
    assert rows.position_BL[0].tolist() == [*range(12), *range(8), *range(4)]
    labels = [False] * 3 + [True] * 9 + [False] * 5 + [True] * 3 + [False] * 4
    assert rows.label_BL[0].tolist() == labels


@settings(deadline=None, max_examples=30)
@given(
    lengths=st.lists(st.tuples(st.integers(1, 7), st.integers(1, 7)), min_size=1, max_size=3),
    block_size=st.sampled_from([1, 2, 4]),
)
def test_mask_equals_the_definition_read_naively(
    lengths: list[tuple[int, int]], block_size: int
) -> None:
    store = samples(lengths)
    rows = pack_rows(
        store,
        [range(len(lengths))],
        row_length=48,
        block_size=block_size,
        stop_id=STOP,
        pad_id=PAD,
        row_count=2,
    )
    mask = dense_mask(attention_ids(rows, block_size))[:, 0]
    # The definition, one position at a time, from the samples and not from the packed ids.
    places = []
    for number, (prompt, response) in enumerate(lengths):
        places += [(number, p) for p in range(filled_length(prompt + response, block_size))]
    padding = [(None, p) for p in range(48 - len(places))]
    for row, places_L in enumerate([places + padding, [(None, p) for p in range(48)]]):
        both = [(c, s, p // block_size) for c in ("noisy", "clean") for s, p in places_L]
        for q, (query_copy, query_sample, query_block) in enumerate(both):
            for k, (key_copy, key_sample, key_block) in enumerate(both):
                if query_sample != key_sample:
                    expected = False
                elif query_copy == "noisy":
                    expected = (
                        key_block == query_block if key_copy == "noisy" else key_block < query_block
                    )
                else:
                    expected = key_copy == "clean" and key_block <= query_block
                assert bool(mask[row, q, k]) is expected


def test_every_position_sees_something() -> None:
    rows = pack_rows(
        samples([(2, 3)]), [[0]], row_length=16, block_size=4, stop_id=STOP, pad_id=PAD, row_count=2
    )
    assert dense_mask(attention_ids(rows, 4)).any(-1).all()


def test_flex_attentions_block_mask_says_the_same_as_the_dense_mask() -> None:
    store = samples([(30, 50), (77, 101), (9, 40)])
    rows = pack_rows(store, [[0, 1], [2]], row_length=384, block_size=4, stop_id=STOP, pad_id=PAD)
    ids = attention_ids(rows, 4)
    block_mask = build_mask(ids, "flex", compile=False)
    dense = build_mask(ids, "sdpa", compile=False)
    batch = torch.arange(2)[:, None, None]
    position = torch.arange(768)
    visible = block_mask.mask_mod(batch, batch, position[None, :, None], position[None, None, :])
    assert torch.equal(visible, dense[:, 0])
    # A tile of 128 x 128 is visited exactly where anything in it is visible.
    tiles = dense[:, 0].view(2, 6, 128, 6, 128).any(4).any(2)
    assert torch.equal(block_mask.to_dense()[:, 0].bool(), tiles)
