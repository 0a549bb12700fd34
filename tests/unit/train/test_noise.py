import torch

from dice.train.layout import pack_rows
from dice.train.noise import draw_noise
from tests.unit.train.common import PAD, STOP, samples


def _rows(count: int = 64):
    store = samples([(7, 22), (13, 11)])
    return pack_rows(store, [[0, 1]] * count, row_length=64, block_size=4, stop_id=STOP, pad_id=PAD)


def test_prompt_and_padding_are_never_masked() -> None:
    rows = _rows()
    noise = draw_noise(
        rows, level="block", block_size=4, eps=1e-3, generator=torch.Generator().manual_seed(0)
    )
    assert not (noise.masked_BL & ~rows.label_BL).any()
    assert noise.masked_BL.any()


def test_inverse_probability_weights_sum_to_the_number_of_labels() -> None:
    rows = _rows(20_000)
    for level in ("sample", "block"):
        generator = torch.Generator().manual_seed(1)
        noise = draw_noise(rows, level=level, block_size=4, eps=1e-3, generator=generator)
        weights = (noise.masked_BL / noise.probability_BL).double()
        ratio = float(weights.sum()) / rows.label_count
        # Var of m/p is E[1/p] - 1, near ln(1/eps) - 1 = 5.9 per label; samples correlate their labels.
        assert abs(ratio - 1.0) < 0.02


def test_one_level_per_block_or_per_sample() -> None:
    rows = _rows(3)
    generator = torch.Generator().manual_seed(2)
    block = draw_noise(rows, level="block", block_size=4, eps=1e-3, generator=generator)
    by_block = block.probability_BL.view(3, 16, 4)
    assert (by_block == by_block[:, :, :1]).all()
    assert len(by_block[:, :, 0].unique()) == 48
    sample = draw_noise(rows, level="sample", block_size=4, eps=1e-3, generator=generator)
    for row in range(3):
        assert len(sample.probability_BL[row, :32].unique()) == 1
        assert len(sample.probability_BL[row, 32:56].unique()) == 1
        assert sample.probability_BL[row, 0] != sample.probability_BL[row, 32]


def test_probabilities_lie_between_eps_and_one() -> None:
    rows = _rows(2000)
    noise = draw_noise(
        rows, level="block", block_size=4, eps=0.25, generator=torch.Generator().manual_seed(3)
    )
    assert 0.25 <= float(noise.probability_BL.min()) < 0.26
    assert 0.99 < float(noise.probability_BL.max()) <= 1.0
    assert abs(float(noise.probability_BL.mean()) - 0.625) < 0.01
