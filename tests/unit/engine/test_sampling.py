"""Drawing tokens: distributions, filters, log-probabilities and entropies against plain sums."""

import math

import pytest
import torch

from dice.engine.sampling import Law, SamplingParams, draw_tokens
from dice.errors import UserError
from dice.models.generation import GenerationDefaults

MASK = 2


def grid(count: int) -> list[float]:
    return [(index + 0.5) / count for index in range(count)]


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_draws_follow_the_tempered_distribution_without_the_mask_token(temperature: float) -> None:
    logits = torch.tensor([0.3, -1.0, 9.0, 1.2, 0.0])
    count = 20_000
    draws = draw_tokens(
        logits.repeat(count, 1), MASK, [Law(temperature, None, None)] * count, grid(count)
    )
    kept = torch.tensor([0.3, -1.0, -math.inf, 1.2, 0.0], dtype=torch.double)
    expected = (kept / temperature).softmax(0)
    found = torch.bincount(torch.tensor(draws.token_ids), minlength=5) / count
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=0)
    untempered = kept.log_softmax(0)
    for token, logprob in list(zip(draws.token_ids, draws.logprobs, strict=True))[::997]:
        assert logprob == pytest.approx(float(untempered[token]), abs=1e-6)


@pytest.mark.parametrize(
    ("law", "support"),
    [
        (Law(1.0, 1, None), {3}),
        (Law(1.0, 2, None), {3, 0}),
        (Law(1.0, 99, None), {0, 1, 3, 4}),
        (Law(1.0, None, 0.01), {3}),
        (Law(1.0, None, 0.6), {3, 0}),
        (Law(1.0, None, 1.0), {0, 1, 3, 4}),
        (Law(1.0, 3, 0.8), {3, 0}),
    ],
)
def test_filters_keep_the_smallest_sufficient_set(law: Law, support: set[int]) -> None:
    # Probabilities without the mask token: 0.25, 0.05, -, 0.5, 0.2.
    logits = torch.tensor([0.25, 0.05, 3.0, 0.5, 0.2]).log()
    if law.top_k == 3:  # of the three kept, 0.526 and 0.789 with the second
        support = {3, 0, 4}
    draws = draw_tokens(logits.repeat(4000, 1), MASK, [law] * 4000, grid(4000))
    assert set(draws.token_ids) == support


def test_greedy_rows_beside_drawn_rows_are_the_argmax() -> None:
    logits = torch.randn(6, 50, generator=torch.Generator().manual_seed(0))
    laws = [Law(0.0, None, None), Law(1.0, None, None), Law(1.0, 4, None)] * 2
    draws = draw_tokens(logits.clone(), MASK, laws, [0.3] * 6)
    logits[:, MASK] = -math.inf
    assert draws.token_ids[0] == int(logits[0].argmax())
    assert draws.token_ids[3] == int(logits[3].argmax())
    alone = draw_tokens(logits[1:2].clone(), MASK, laws[1:2], [0.3])
    assert draws.token_ids[1] == alone.token_ids[0]


def test_uniforms_at_the_ends_reach_tokens_with_probability_only() -> None:
    logits = torch.tensor([[-math.inf, 0.0, 5.0, 0.0, -math.inf]]).repeat(2, 1)
    law = Law(1.0, None, None)
    draws = draw_tokens(logits, MASK, [law, law], [0.0, 1.0 - 2**-53])
    assert draws.token_ids == [1, 3]


def test_entropies_are_those_of_the_model_without_the_mask_token() -> None:
    logits = torch.tensor([[0.0, 0.0, 50.0, 0.0, 0.0], [90.0, 0.0, 99.0, 0.0, 0.0]])
    law = Law(0.0, None, None)
    draws = draw_tokens(logits, MASK, [law, law], [0.0, 0.0], with_entropies=True)
    assert draws.entropies == pytest.approx([math.log(4), 0.0], abs=1e-6)


def test_half_precision_logits_are_scored_in_float32() -> None:
    logits = torch.randn(3, 40, generator=torch.Generator().manual_seed(0)).bfloat16()
    exact = logits.float()
    exact[:, MASK] = -math.inf
    draws = draw_tokens(logits, MASK, [Law(0.0, None, None)] * 3, [0.0] * 3)
    assert draws.logprobs == pytest.approx(exact.log_softmax(-1).max(-1).values.tolist())


@pytest.mark.parametrize(
    "wrong",
    [
        {"max_new_tokens": 0},
        {"denoising_steps": 0},
        {"remasking_strategy": "random"},
        {"confidence_threshold": 1.5},
        {"entropy_bound": -1.0},
        {"temperature": -0.1},
        {"temperature": math.inf},
        {"top_k": 0},
        {"top_p": 0.0},
    ],
)
def test_values_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError, match=next(iter(wrong))):
        SamplingParams(**wrong)


def test_defaults_of_a_checkpoint_yield_to_what_is_chosen() -> None:
    defaults = GenerationDefaults(temperature=0.6, top_k=20, confidence_threshold=0.8)
    params = SamplingParams.from_defaults(defaults, temperature=0.0, top_p=None, seed=3)
    assert params == SamplingParams(temperature=0.0, top_k=20, confidence_threshold=0.8, seed=3)
