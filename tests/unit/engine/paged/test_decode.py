"""Decoding with the state on the device, in Triton's interpreter, against the no-cache oracle."""

import pytest

pytest.importorskip("triton")

from dataclasses import replace

from dice.engine.llm import LLM
from dice.engine.loop import decode
from dice.engine.paged import runner as runners
from dice.engine.paged.runner import PagedRunner
from dice.engine.request import make_canvas
from dice.engine.sampling import SamplingParams
from dice.engine.scheduler import Sequence
from dice.errors import ModelError
from tests.unit.engine.test_llm import MANY_STOPS, NO_STOPS, oracle, random_prompt
from tests.unit.models.tiny import tiny_loaded

pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def least(block_size, stops=NO_STOPS):
    """The interpreter takes its time: one layer, one key-value head."""
    return tiny_loaded(block_size, stop_token_ids=stops, layers=1, heads=2)


def sequences(loaded, prompts, params):
    return [
        Sequence(request=index, canvas=make_canvas(loaded, prompt, param), params=param)
        for index, (prompt, param) in enumerate(zip(prompts, params, strict=True))
    ]


def run(loaded, decoded, slots, **options):
    capacity = max(len(one.canvas) for one in decoded)
    return list(decode(PagedRunner(loaded, slots, capacity, **options), decoded))


def assert_like(loaded, sequence, prompt):
    expected = oracle(loaded, prompt, sequence.params)
    start = sequence.canvas.prompt_length
    stop = (sequence.block + 1) * sequence.canvas.block_size
    assert sequence.canvas.token_ids[start:stop] == expected.token_ids
    assert sequence.canvas.steps[start:stop] == expected.steps
    pairs = zip(sequence.canvas.logprobs[start:stop], expected.logprobs, strict=True)
    for ours, theirs in pairs:
        assert ours == pytest.approx(theirs, abs=1e-4)
    assert sequence.finish_reason == ("length" if expected.stop_at is None else "stop")
    return expected


@pytest.mark.parametrize(
    ("strategy", "block_size", "stops", "fused", "slots"),
    [
        ("low_confidence_dynamic", 4, MANY_STOPS, True, 1),
        ("entropy_bounded", 4, NO_STOPS, False, 2),
        ("low_confidence_static", 8, MANY_STOPS, True, 2),
        ("sequential", 1, NO_STOPS, True, 2),
    ],
)
def test_decoding_equals_the_oracle(strategy, block_size, stops, fused, slots):
    loaded = least(block_size, stops)
    prompts = [random_prompt(length, seed=length) for length in (1, 9)]
    params = [
        SamplingParams(
            max_new_tokens=4 + 2 * index,
            remasking_strategy=strategy,
            confidence_threshold=0.3,
            entropy_bound=2.0,
            denoising_steps=None if index % 2 else max(1, block_size // 2),
        )
        for index in range(2)
    ]
    decoded = sequences(loaded, prompts, params)
    run(loaded, decoded, slots, fused=fused)
    for sequence, prompt in zip(decoded, prompts, strict=True):
        expected = assert_like(loaded, sequence, prompt)
        if fused:
            assert sequence.forwards == expected.forwards


def test_forced_tokens_and_events_through_the_facade():
    loaded = tiny_loaded(4, stop_token_ids=NO_STOPS)
    prompt = random_prompt(6, seed=3, prefix=5, suffix=6)
    params = SamplingParams(max_new_tokens=7, confidence_threshold=0.3)
    events = []
    [paged] = LLM(loaded, paged=True).generate([prompt], params, on_step=events.append)
    [plain] = LLM(loaded).generate([prompt], params)
    assert replace(paged, logprobs=()) == replace(plain, logprobs=())
    seen = {
        at: token for one in events for at, token in zip(one.positions, one.token_ids, strict=True)
    }
    written = {at for at, step in enumerate(plain.steps) if step is not None}
    assert seen == {at: plain.token_ids[at] for at in written}
    assert events[-1].finish_reason == "length"


def test_a_shared_prompt_is_computed_once_and_its_neighbours_do_not_matter(monkeypatch):
    loaded = least(4)
    prompt, other = random_prompt(9, seed=5), random_prompt(5, seed=6)
    params = [
        SamplingParams(max_new_tokens=3, temperature=1.0, seed=seed, top_k=9) for seed in (1, 2)
    ]
    filled = []
    forward = PagedRunner._forward

    def counted(self, chunk):
        filled.append(sum(stop - start for _, start, stop in chunk))
        forward(self, chunk)

    monkeypatch.setattr(PagedRunner, "_forward", counted)
    together = sequences(loaded, [prompt, other, prompt], [params[0], params[0], params[1]])
    run(loaded, together, 3)
    assert sum(filled) == 8 + 4
    alone = sequences(loaded, [prompt], [params[1]])
    run(loaded, alone, 1)
    assert alone[0].canvas.token_ids == together[2].canvas.token_ids
    assert alone[0].canvas.token_ids != together[0].canvas.token_ids


def test_a_sequence_can_be_aborted_and_one_without_room_says_so():
    loaded = least(4)
    [sequence] = sequences(loaded, [random_prompt(5, seed=1)], [SamplingParams(max_new_tokens=12)])
    runner = PagedRunner(loaded, 1, 24)
    assert runner.admit([sequence]) == [sequence]
    runner.step()
    runner.abort(sequence)
    assert sequence.finish_reason == "aborted"
    assert any(step is not None for step in sequence.canvas.steps)
    assert runner.running == []
    with pytest.raises(ModelError, match=r"200 positions takes 4 pages of the cache's 3"):
        PagedRunner(loaded, 1, 200, pages=4)


def test_sequences_wait_for_pages_and_go_on_where_they_were(monkeypatch):
    monkeypatch.setattr(runners, "PAGE_SIZE", 8)
    loaded = least(4)
    prompts = [random_prompt(length, seed=length) for length in (1, 5)]
    params = [
        SamplingParams(max_new_tokens=18, denoising_steps=1),
        SamplingParams(max_new_tokens=13, denoising_steps=2, confidence_threshold=1.0),
    ]
    decoded = sequences(loaded, prompts, params)
    runner = PagedRunner(loaded, 2, 20, pages=1 + 4, fused=True)
    taken = []
    monkeypatch.setattr(
        runner, "_put", lambda *a, put=runner._put: taken.append(a[0].step) or put(*a)
    )
    list(decode(runner, decoded))
    assert taken[:2] == [0, 0]
    assert len(taken) > 2  # one came back
    for sequence, prompt in zip(decoded, prompts, strict=True):
        expected = assert_like(loaded, sequence, prompt)
        assert sequence.forwards == expected.forwards
    runner.weights_changed()
    assert len(runner._pages.take(4)) == 4


def test_only_allowed_tokens_are_written_and_neighbours_are_not_touched():
    loaded = least(4)
    prompts = [random_prompt(length, seed=length) for length in (3, 2, 1)]
    allowed = {0: frozenset({7, 8, 60}), 2: frozenset({31, 32})}
    params = [
        SamplingParams(max_new_tokens=5, allowed_token_ids={**allowed, 3: frozenset({40})}),
        SamplingParams(max_new_tokens=2),
        SamplingParams(max_new_tokens=3, temperature=1.0, top_k=2, allowed_token_ids=allowed),
    ]
    decoded = sequences(loaded, prompts, params)
    runner = PagedRunner(loaded, 3, 8)
    list(decode(runner, decoded))
    for sequence, prompt in list(zip(decoded, prompts, strict=True))[:2]:
        assert_like(loaded, sequence, prompt)
    sampled = decoded[2].canvas.token_ids[1:]
    assert sampled[0] in allowed[0]
    assert sampled[2] in allowed[2]
    assert runner._masks.hold(frozenset({1})) == 0  # the others were released
