"""The loss against its definition, computed sample by sample with nothing packed."""

import math

import pytest
import torch
import torch.nn.functional as F

from dice.models.sdar import block_causal_mask
from dice.train.attention import build_mask
from dice.train.batches import noisy_batch
from dice.train.layout import pack_rows
from dice.train.losses import diffusion_loss, token_nll
from dice.train.noise import Noise, draw_noise
from tests.unit.train.common import MASK, PAD, STOP, ids, samples, tiny_model


def _log_probs(logits: torch.Tensor) -> torch.Tensor:
    logits = logits.clone()
    logits[..., MASK] = -math.inf
    return F.log_softmax(logits, dim=-1)


def _loss(model, batch, attention: str = "sdpa") -> torch.Tensor:
    mask = build_mask(batch.attention, attention, compile=False)
    hidden = model.model(batch.input_ids_BT, mask, batch.position_BT).flatten(0, 1)
    nll = token_nll(model.lm_head(hidden[batch.scored_N]), batch.target_N, MASK)
    return diffusion_loss(nll, batch.weight_N, batch.label_count)


def _draw(rows, block_size: int, seed: int = 0) -> Noise:
    generator = torch.Generator().manual_seed(seed)
    return draw_noise(rows, level="block", block_size=block_size, eps=1e-3, generator=generator)


def _pack(store, rows, block_size: int, row_length: int = 128):
    return pack_rows(
        store, rows, row_length=row_length, block_size=block_size, stop_id=STOP, pad_id=PAD
    )


@torch.no_grad()
def test_noisy_logits_equal_the_decoders_view_of_each_block() -> None:
    """For every block: one forward on [clean prefix blocks + that noisy block] alone."""
    store = samples([(6, 23), (13, 16), (4, 9)])
    model, rows = tiny_model(), _pack(store, [[0, 1], [2]], 4)
    noise = _draw(rows, 4)
    batch = noisy_batch(rows, noise, ids())
    mask = build_mask(batch.attention, "sdpa", compile=False)
    logits = model.lm_head(model.model(batch.input_ids_BT, mask, batch.position_BT))
    compared = 0
    for row, samples_in_row in enumerate([[0, 1], [2]]):
        for number in range(len(samples_in_row)):
            places = (rows.sample_BL[row] == number).nonzero()[:, 0]
            clean, noisy = rows.token_ids_BL[row, places], batch.input_ids_BT[row, places]
            for start in range(0, len(places), 4):
                view = torch.cat([clean[:start], noisy[start : start + 4]])[None]
                alone = model(view, block_causal_mask(torch.arange(start + 4)[None], 4)).logits
                packed = logits[row, places[start : start + 4]]
                torch.testing.assert_close(packed, alone[0, start:], atol=1e-5, rtol=1e-5)
                compared += 1
    assert compared == 8 + 8 + 4


@torch.no_grad()
def test_block_size_one_gives_the_unshifted_nll_under_a_mask_token() -> None:
    """In expectation over the noise: the mean of -log p(x_i | x_<i, MASK)."""
    store = samples([(3, 6)])
    model = tiny_model(block_size=1)
    token_ids = torch.tensor(store[0].token_ids)
    expected = 0.0
    for i in range(3, 9):
        view = torch.cat([token_ids[:i], torch.tensor([MASK])])[None]
        log_probs = _log_probs(model(view).logits[0, i])
        expected -= float(log_probs[token_ids[i]]) / 6
    rows = _pack(store, [[0]] * 4000, 1, row_length=9)
    losses = [float(_loss(model, noisy_batch(rows, _draw(rows, 1, s), ids(1)))) for s in range(5)]
    assert sum(losses) / 5 == pytest.approx(expected, rel=0.03)
    # And it is not the shifted next-token loss of an autoregressive model.
    shifted = _log_probs(model(token_ids[None]).logits[0, 2:8])
    shifted_nll = -float(shifted.gather(1, token_ids[3:, None]).mean())
    assert abs(shifted_nll - expected) > 0.1 * expected


@torch.no_grad()
def test_loss_equals_its_definition_for_one_draw() -> None:
    store = samples([(5, 14)])
    model, rows = tiny_model(), _pack(store, [[0]], 4, row_length=20)
    noise = _draw(rows, 4, seed=5)
    expected = 0.0
    for start in range(0, 20, 4):
        noisy = rows.token_ids_BL[0].masked_fill(noise.masked_BL[0], MASK)
        view = torch.cat([rows.token_ids_BL[0, :start], noisy[start : start + 4]])[None]
        log_probs = _log_probs(model(view).logits[0])
        for i in range(start, start + 4):
            if noise.masked_BL[0, i]:
                target = int(rows.token_ids_BL[0, i])
                expected -= float(log_probs[i, target]) / float(noise.probability_BL[0, i])
    labels = 14 + 1  # the response, filled up to a whole block
    actual = float(_loss(model, noisy_batch(rows, noise, ids())))
    assert actual == pytest.approx(expected / labels, rel=1e-5)


@torch.no_grad()
def test_packed_row_equals_the_token_weighted_mean_of_its_samples() -> None:
    store = samples([(6, 23), (13, 16), (4, 9)])
    model, packed = tiny_model(), _pack(store, [[0, 1, 2]], 4)
    noise = _draw(packed, 4)
    together = noisy_batch(packed, noise, ids())
    total, labels = 0.0, 0
    for number in range(3):
        alone = _pack(store, [[number]], 4)
        here = packed.sample_BL[0] == number
        length = int(here.sum())
        masked, probability = torch.zeros(1, 128, dtype=torch.bool), torch.ones(1, 128)
        masked[0, :length] = noise.masked_BL[0, here]
        probability[0, :length] = noise.probability_BL[0, here]
        batch = noisy_batch(alone, Noise(masked_BL=masked, probability_BL=probability), ids())
        total += float(_loss(model, batch)) * batch.label_count
        labels += batch.label_count
    assert together.label_count == labels
    assert float(_loss(model, together)) == pytest.approx(total / labels, rel=1e-5)


@torch.no_grad()
def test_the_stop_token_is_a_label_and_the_mask_token_never_an_answer() -> None:
    store = samples([(4, 4)])
    rows = _pack(store, [[0]], 4, row_length=8)
    assert rows.token_ids_BL[0, 7] == STOP
    assert rows.label_BL[0, 7]
    logits = torch.zeros(1, 40)
    logits[0, MASK] = 50.0
    nll = token_nll(logits, torch.tensor([STOP]), MASK)
    assert float(nll) == pytest.approx(math.log(39))


@torch.no_grad()
def test_flex_attention_and_a_dense_mask_give_the_same_loss() -> None:
    store = samples([(30, 31), (17, 40)])
    model, rows = tiny_model(), _pack(store, [[0], [1]], 4)
    batch = noisy_batch(rows, _draw(rows, 4), ids())
    dense = float(_loss(model, batch, "sdpa"))
    torch.compiler.reset()
    model.model.forward = torch.compile(model.model.forward, backend="eager")
    assert float(_loss(model, batch, "flex")) == pytest.approx(dense, rel=1e-5)
