"""The cache against forwards that compute everything again."""

import pytest
import torch

from dice.models.sdar import KVCache, SdarForCausalLM, Segment
from tests.unit.models.tiny import MASK, VOCABULARY, tiny_model


def run(model: SdarForCausalLM, cache: KVCache, ids: list[int], segments: list[Segment]):
    cache.plan(segments)
    with torch.no_grad():
        return model(
            torch.tensor([ids]), position_ids=cache.planned_positions[None], cache=cache
        ).logits[0]


def full(model: SdarForCausalLM, ids: list[int]) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0]


@pytest.mark.parametrize("batched", [False, True])
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_prefill_denoise_and_commit_equal_full_forwards(block_size: int, batched: bool) -> None:
    model = tiny_model(block_size)
    generator = torch.Generator().manual_seed(0)

    def tokens(blocks: int) -> list[int]:
        return torch.randint(3, VOCABULARY, (blocks * block_size,), generator=generator).tolist()

    cache = KVCache(model.config, rows=3, capacity=12 * block_size, batched=batched)
    first, second = tokens(7), tokens(2)
    long, short = len(first), len(second)
    logits = run(
        model,
        cache,
        first + second,
        [
            Segment(row=2, start=0, stop=long, position=0),
            Segment(row=0, start=long, stop=long + short, position=0),
        ],
    )
    torch.testing.assert_close(logits[:long], full(model, first), atol=1e-5, rtol=0)
    torch.testing.assert_close(logits[long:], full(model, second), atol=1e-5, rtol=0)
    cache.commit(2, long)
    cache.commit(0, short)
    noisy = [MASK] * block_size
    for _ in range(2):  # the second time proves that the first left no trace
        logits = run(model, cache, noisy, [Segment(row=2, start=0, stop=block_size, position=long)])
        expected = full(model, first + noisy)[long:]
        torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)
    done, other = tokens(1), tokens(1)
    logits = run(
        model,
        cache,
        other + done + noisy,
        [
            Segment(row=0, start=0, stop=block_size, position=short),
            Segment(row=2, start=block_size, stop=3 * block_size, position=long),
        ],
    )
    expected = full(model, first + done + noisy)[long:]
    torch.testing.assert_close(logits[block_size:], expected, atol=1e-5, rtol=0)
    expected = full(model, second + other)[short:]
    torch.testing.assert_close(logits[:block_size], expected, atol=1e-5, rtol=0)


@pytest.mark.parametrize("batched", [False, True])
def test_a_shared_prefix_is_as_good_as_a_computed_one(batched: bool) -> None:
    model = tiny_model(4)
    cache = KVCache(model.config, rows=2, capacity=16, batched=batched)
    ids = list(range(5, 13))
    run(model, cache, ids, [Segment(row=0, start=0, stop=8, position=0)])
    cache.commit(0, 8)
    cache.share_prefix(0, 1, 8)
    logits = run(model, cache, [MASK] * 4, [Segment(row=1, start=0, stop=4, position=8)])
    expected = full(model, [*ids, *[MASK] * 4])[8:]
    torch.testing.assert_close(logits, expected, atol=1e-5, rtol=0)


def test_more_than_the_capacity_is_refused() -> None:
    cache = KVCache(tiny_model(4).config, rows=1, capacity=8)
    with pytest.raises(AssertionError, match="capacity 8"):
        cache.plan([Segment(row=0, start=0, stop=12, position=0)])
