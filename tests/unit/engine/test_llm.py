"""Cached, batched decoding against the no-cache oracle."""

import math
from dataclasses import replace

import pytest
import torch

from dice.engine.llm import LLM, StepEvent
from dice.engine.sampling import SamplingParams
from dice.errors import UserError
from dice.models.load import LoadedModel
from dice.types import Completion, Prompt
from tests.unit.engine.oracle import OracleResult, decode
from tests.unit.models.tiny import EOS, MASK, SPECIAL, VOCABULARY, tiny_loaded

STRATEGIES = ["sequential", "low_confidence_static", "low_confidence_dynamic", "entropy_bounded"]
# About half the vocabulary stops a sequence, so stops fall everywhere in a block.
MANY_STOPS = frozenset(range(3, 12))
NO_STOPS: frozenset[int] = frozenset()


def text_of(token_ids: list[int]) -> str:
    tokenizer = tiny_loaded().tokenizer
    return " ".join(tokenizer.convert_ids_to_tokens(token_ids))


def random_prompt(length: int, seed: int, prefix: int = 0, suffix: int = 0) -> Prompt:
    generator = torch.Generator().manual_seed(seed)

    def words(count: int) -> str:
        return text_of(torch.randint(5, VOCABULARY, (count,), generator=generator).tolist())

    return Prompt(
        problem=f"p{seed}",
        template="nano",
        text=words(length),
        forced_prefix=words(prefix),
        forced_suffix=words(suffix),
    )


def oracle(loaded: LoadedModel, prompt: Prompt, params: SamplingParams) -> OracleResult:
    def encode(text: str) -> list[int]:
        return loaded.tokenizer.encode(text, add_special_tokens=False)

    return decode(
        loaded.model,
        encode(prompt.text),
        [
            *encode(prompt.forced_prefix),
            *[None] * params.max_new_tokens,
            *encode(prompt.forced_suffix),
        ],
        mask=loaded.mask_token_id,
        stops=set(loaded.stop_token_ids),
        strategy=params.remasking_strategy,
        steps_per_block=params.denoising_steps,
        threshold=params.confidence_threshold,
        entropy_bound=params.entropy_bound,
        allowed={at: set(ids) for at, ids in (params.allowed_token_ids or {}).items()},
    )


def assert_same(completion: Completion, expected: OracleResult) -> None:
    assert list(completion.token_ids) == expected.token_ids
    assert list(completion.steps) == expected.steps
    assert completion.forwards == expected.forwards
    assert completion.finish_reason == ("length" if expected.stop_at is None else "stop")
    for ours, theirs in zip(completion.logprobs, expected.logprobs, strict=True):
        assert (ours is None) == (theirs is None)
        if ours is not None and theirs is not None:
            assert math.isclose(ours, theirs, abs_tol=1e-4)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block_size", [1, 4, 16])
@pytest.mark.parametrize("stops", [NO_STOPS, MANY_STOPS])
def test_decoding_equals_the_oracle_alone_and_in_a_ragged_batch(
    strategy: str, block_size: int, stops: frozenset[int]
) -> None:
    loaded = tiny_loaded(block_size, stop_token_ids=stops)
    prompts = [random_prompt(length, seed=length) for length in (1, 4, 5, 6, 7, 8, 21)]
    params = [
        SamplingParams(
            max_new_tokens=9 + 2 * index,
            remasking_strategy=strategy,
            confidence_threshold=0.3,
            entropy_bound=2.0,
            denoising_steps=None if index % 2 else max(1, block_size // 2),
        )
        for index in range(len(prompts))
    ]
    expected = [
        oracle(loaded, prompt, param) for prompt, param in zip(prompts, params, strict=True)
    ]
    if stops:
        assert any(result.stop_at is not None for result in expected)
    if strategy in ("low_confidence_dynamic", "entropy_bounded") and block_size > 1:
        assert any(result.forwards < len(result.token_ids) - 4 for result in expected)
    for rows, batched in ((64, None), (64, False), (3, True), (2, None), (1, False))[
        : 5 if stops else 3
    ]:
        llm = LLM(loaded, max_rows=rows, batched_attention=batched)
        completions = llm.generate(prompts, params)
        for completion, result in zip(completions, expected, strict=True):
            assert_same(completion, result)


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("block_size", [1, 4, 16])
def test_forced_tokens_equal_the_oracle_and_never_change(strategy: str, block_size: int) -> None:
    loaded = tiny_loaded(block_size, stop_token_ids=NO_STOPS)
    prompts = [
        random_prompt(6, seed=1, prefix=5, suffix=3),
        random_prompt(7, seed=2, prefix=0, suffix=9),
        random_prompt(8, seed=3, prefix=6, suffix=0),
        random_prompt(9, seed=4, prefix=1, suffix=40),
    ]
    params = SamplingParams(max_new_tokens=9, remasking_strategy=strategy, entropy_bound=2.0)
    batched = LLM(loaded, batched_attention=True).generate(prompts, params)
    completions = LLM(loaded).generate(prompts, params)
    assert [c.token_ids for c in batched] == [c.token_ids for c in completions]
    for prompt, completion in zip(prompts, completions, strict=True):
        assert_same(completion, oracle(loaded, prompt, params))
        prefix, suffix = prompt.forced_prefix.split(), prompt.forced_suffix.split()
        words = completion.text.split()
        assert words[: len(prefix)] == prefix
        assert not suffix or words[-len(suffix) :] == suffix
        written = [step for step in completion.steps if step is not None]
        assert len(written) == 9 or not suffix


def test_infilling_that_stops_early_still_ends_with_the_suffix() -> None:
    loaded = tiny_loaded(4, stop_token_ids=MANY_STOPS)
    prompts = [random_prompt(6 + seed, seed=seed, prefix=3, suffix=6) for seed in range(8)]
    params = SamplingParams(max_new_tokens=30)
    completions = LLM(loaded).generate(prompts, params)
    stopped = 0
    for prompt, completion in zip(prompts, completions, strict=True):
        result = oracle(loaded, prompt, params)
        assert_same(completion, result)
        if result.stop_at is not None:
            stopped += 1
            kept = text_of([t for t in result.token_ids[: result.stop_at] if t >= len(SPECIAL)])
            assert completion.text == f"{kept} {prompt.forced_suffix}"
    assert stopped > 0


def test_the_whole_last_block_is_recorded_and_the_text_is_cut() -> None:
    loaded = tiny_loaded(4, stop_token_ids=MANY_STOPS)
    prompts = [random_prompt(3 + seed, seed=seed) for seed in range(24)]
    params = SamplingParams(max_new_tokens=40, remasking_strategy="sequential")
    still_masked = 0
    for completion in LLM(loaded).generate(prompts, params):
        assert (len(completion.prompt_ids) + len(completion.token_ids)) % 4 == 0
        stop = next(
            (i for i, t in enumerate(completion.token_ids) if t in MANY_STOPS),
            len(completion.token_ids),
        )
        words = [token for token in completion.token_ids[:stop] if token >= len(SPECIAL)]
        assert completion.text == text_of(words)
        for token, step in zip(completion.token_ids, completion.steps, strict=True):
            assert (token == MASK) == (step is None)
            still_masked += token == MASK
    assert still_masked > 0


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("native", [True, False])
def test_only_allowed_tokens_are_chosen_and_their_probability_counts(
    strategy: str, native: bool
) -> None:
    loaded = tiny_loaded(4, stop_token_ids=MANY_STOPS)
    prompts = [random_prompt(length, seed=length, prefix=2) for length in (3, 6, 9)]
    generator = torch.Generator().manual_seed(3)
    allowed = {
        at: frozenset((5 + torch.randperm(VOCABULARY - 5, generator=generator)[:count]).tolist())
        for at, count in ((2, 1), (3, 2), (5, 30), (8, 3))
    }
    params = [
        SamplingParams(
            max_new_tokens=9,
            remasking_strategy=strategy,
            confidence_threshold=0.3,
            entropy_bound=2.0,
            allowed_token_ids=sets,
        )
        for sets in (allowed, None, {2: allowed[2]})
    ]
    completions = LLM(loaded, native=native).generate(prompts, params)
    for prompt, param, completion in zip(prompts, params, completions, strict=True):
        assert_same(completion, oracle(loaded, prompt, param))
        for at, ids in (param.allowed_token_ids or {}).items():
            if at < len(completion.token_ids) and completion.steps[at] is not None:
                assert completion.token_ids[at] in ids


def test_sampled_tokens_are_allowed_ones_and_filters_count_those_alone() -> None:
    loaded = tiny_loaded(4, stop_token_ids=NO_STOPS)
    allowed = {at: frozenset({6 + at, 20, 40 + at}) for at in range(8)}
    seen = set()
    prompts = [random_prompt(4, seed=1)] * 30
    params = [
        SamplingParams(
            max_new_tokens=8,
            temperature=3.0,
            top_k=2,
            seed=seed,
            denoising_steps=1,
            allowed_token_ids=allowed,
        )
        for seed in range(30)
    ]
    for completion in LLM(loaded).generate(prompts, params):
        for at, token in enumerate(completion.token_ids):
            assert token in allowed[at]
        seen.add(completion.token_ids[0])
    assert len(seen) == 2


def test_same_seed_same_result_whatever_the_neighbours() -> None:
    loaded = tiny_loaded(4, stop_token_ids=frozenset({EOS}))
    prompts = [random_prompt(3 + index, seed=index % 3) for index in range(9)]
    params = [
        SamplingParams(
            max_new_tokens=24,
            temperature=1.0 if index % 2 else 0.7,
            top_k=(None, 20, None)[index % 3],
            top_p=(None, None, 0.9)[index % 3],
            seed=index,
        )
        for index in range(9)
    ]
    together = LLM(loaded).generate(prompts, params)
    few_rows = LLM(loaded, max_rows=2).generate(prompts, params)
    reversed_order = LLM(loaded).generate(prompts[::-1], params[::-1])[::-1]
    for index, completion in enumerate(together):
        alone = LLM(loaded).generate([prompts[index]], [params[index]])[0]
        for other in (alone, few_rows[index], reversed_order[index]):
            assert other.token_ids == completion.token_ids
            assert other.steps == completion.steps
    assert len({completion.token_ids for completion in together}) == 9


def test_seeds_differ_and_a_shared_prompt_is_prefilled_once(monkeypatch) -> None:
    loaded = tiny_loaded(4)
    prompt = random_prompt(10, seed=0)
    params = [SamplingParams(max_new_tokens=16, temperature=1.0, seed=seed) for seed in range(4)]
    lengths = []
    inner = loaded.model.model.forward

    def count(input_ids, **kwargs):
        lengths.append(input_ids.shape[1])
        return inner(input_ids, **kwargs)

    monkeypatch.setattr(loaded.model.model, "forward", count)
    completions = LLM(loaded, native=False).generate([prompt] * 4, params)
    assert lengths[:2] == [8, 16]
    assert len({completion.token_ids for completion in completions}) == 4


def test_log_probabilities_are_untempered_and_exclude_the_mask_token() -> None:
    loaded = tiny_loaded(4, stop_token_ids=NO_STOPS)
    prompt = random_prompt(8, seed=5)
    params = SamplingParams(max_new_tokens=4, temperature=0.3, top_k=3, seed=1, denoising_steps=1)
    completion = LLM(loaded).generate([prompt], params)[0]
    ids = torch.tensor([[*completion.prompt_ids, *[MASK] * 4]])
    with torch.no_grad():
        logits = loaded.model(ids).logits[0, -4:].double()
    kept = [v for v in range(VOCABULARY) if v != MASK]
    for row, token, logprob in zip(logits, completion.token_ids, completion.logprobs, strict=True):
        assert token in row[kept].topk(3).indices.apply_(lambda i: kept[i]).tolist()
        assert logprob == pytest.approx(float(row[token] - row[kept].logsumexp(0)), abs=1e-4)


def test_events_add_up_to_the_completions() -> None:
    loaded = tiny_loaded(4, stop_token_ids=MANY_STOPS)
    prompts = [random_prompt(3 + index, seed=index) for index in range(4)]
    events: list[StepEvent] = []
    completions = LLM(loaded).generate(
        prompts, SamplingParams(max_new_tokens=20), on_step=events.append
    )
    for request, completion in enumerate(completions):
        mine = [event for event in events if event.request == request]
        assert len(mine) == completion.forwards
        assert [event.finish_reason for event in mine[:-1]] == [None] * (len(mine) - 1)
        assert mine[-1].finish_reason == completion.finish_reason
        assert mine[-1].generated_stop == len(completion.token_ids)
        rebuilt = [MASK] * len(completion.token_ids)
        for event in mine:
            for at, token, text, logprob in zip(
                event.positions, event.token_ids, event.texts, event.logprobs, strict=True
            ):
                rebuilt[at] = token
                assert completion.steps[at] == event.step
                assert completion.logprobs[at] == logprob
                assert text == text_of([token])
                assert (len(completion.prompt_ids) + at) // 4 == event.block
        assert tuple(rebuilt) == completion.token_ids


def test_mistakes_are_named() -> None:
    llm = LLM(tiny_loaded(4))
    prompt = random_prompt(4, seed=0)
    with pytest.raises(UserError, match="2 prompts but 1"):
        llm.generate([prompt, prompt], [SamplingParams()])
    with pytest.raises(UserError, match="block size 4"):
        llm.generate([prompt], SamplingParams(denoising_steps=5))
    with pytest.raises(UserError, match="empty"):
        llm.generate([replace(prompt, text="")], SamplingParams())
    with pytest.raises(UserError, match="512 positions"):
        llm.generate([prompt], SamplingParams(max_new_tokens=600))
    for allowed, message in (
        ({0: frozenset()}, "nothing is allowed"),
        ({-1: frozenset({6})}, "negative position"),
        ({9: frozenset({6})}, "not among the 8 generated"),
        ({1: frozenset({6})}, "position 1 is forced"),
        ({3: frozenset({6, MASK})}, f"the mask token {MASK}"),
        ({3: frozenset({VOCABULARY})}, "outside the vocabulary of 61"),
        ({3: frozenset({-1})}, "outside the vocabulary"),
    ):
        with pytest.raises(UserError, match=message):
            llm.generate(
                [random_prompt(4, seed=0, prefix=2)],
                SamplingParams(max_new_tokens=6, allowed_token_ids=allowed),
            )
    assert llm.generate([], SamplingParams()) == []
