"""Decoding watched: steps and completions as they come, requests given up, work stopped."""

import gc
import weakref
from dataclasses import replace

import pytest

from dice.engine import LLM, Finished, SamplingParams, StepEvent
from dice.engine.plain import PlainDecoder
from dice.errors import UserError
from tests.unit.engine.test_llm import MANY_STOPS, NO_STOPS, random_prompt, text_of
from tests.unit.models.tiny import MASK, tiny_loaded

LENGTHS = (5, 1, 2)
PATHS = [pytest.param(False, id="plain"), pytest.param(True, id="paged")]
pytestmark = pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")


def llm_of(paged, stops=NO_STOPS, **options):
    if paged:
        pytest.importorskip("triton")
    loaded = tiny_loaded(4, stop_token_ids=stops, layers=1, heads=2)
    return LLM(loaded, paged=paged, **options)


def requests(count=3):
    prompts = [random_prompt(3 + index, seed=index) for index in range(count)]
    return prompts, [
        SamplingParams(max_new_tokens=length, denoising_steps=2) for length in LENGTHS[:count]
    ]


def like(one, other):
    """Equal but for the rounding of log-probabilities."""
    return replace(one, logprobs=()) == replace(other, logprobs=())


@pytest.mark.parametrize("paged", PATHS)
def test_completions_come_as_they_finish_and_equal_those_of_generate(paged):
    llm = llm_of(paged, max_rows=2)
    prompts, params = requests()
    together = llm_of(False).generate(prompts, params)
    for steps in (False,) if paged else (True, False):
        events = list(llm.stream(prompts, params, steps=steps))
        finished = [event for event in events if isinstance(event, Finished)]
        assert [one.request for one in finished] == [1, 0, 2]
        for one in finished:
            assert like(one.completion, together[one.request])
            assert all(event.request != one.request for event in events[events.index(one) + 1 :])
        assert len(events) > len(finished) if steps else events == finished


@pytest.mark.parametrize("paged", PATHS)
def test_a_request_is_given_up_and_the_others_are_not_touched(paged):
    llm = llm_of(paged, max_rows=2)
    prompts, params = requests()
    expected = llm_of(False).generate(prompts, params)
    finished = {}
    with llm.stream(prompts, params) as stream:
        for count, event in enumerate(stream):
            if isinstance(event, Finished):
                finished[event.request] = event.completion
            if count == 0:
                for request in (0, 2, 2):  # one is running, one waits
                    stream.abort(request)
    assert like(finished[1], expected[1])
    running, waiting = finished[0], finished[2]
    assert running.finish_reason == waiting.finish_reason == "aborted"
    assert (running.forwards, waiting.forwards) == (1, 0)
    assert sum(step is not None for step in running.steps) == 1
    assert set(waiting.token_ids) == {MASK}
    assert waiting.text == ""


def test_the_text_of_what_was_given_up_ends_where_something_is_missing():
    llm = llm_of(False)
    prompt = random_prompt(5, seed=1, prefix=3, suffix=2)
    params = SamplingParams(max_new_tokens=9, remasking_strategy="sequential")
    with llm.stream([prompt], params) as stream:
        events = [next(stream), next(stream)]
        stream.abort(0)
        [finished] = stream
    tokens = [token for event in events for token in event.token_ids]
    words = [token for token in tokens if token >= 5]
    assert finished.completion.text.split() == f"{prompt.forced_prefix} {text_of(words)}".split()
    assert finished.completion.forwards == 2


def test_an_abort_after_the_end_changes_nothing():
    llm = llm_of(False, MANY_STOPS)
    prompts, params = requests()
    expected = llm.generate(prompts, params)
    stream = llm.stream(prompts, params, steps=False)
    got = {}
    for event in stream:
        assert isinstance(event, Finished)
        got[event.request] = event.completion
        stream.abort(event.request)
    assert [got[request] for request in range(3)] == expected


def test_closing_stops_the_work_and_frees_the_cache(monkeypatch):
    made = []
    init, step = PlainDecoder.__init__, PlainDecoder.step
    steps = []

    def remembered(self, *args, **options):
        init(self, *args, **options)
        made.append(weakref.ref(self))

    monkeypatch.setattr(PlainDecoder, "__init__", remembered)
    monkeypatch.setattr(PlainDecoder, "step", lambda self, **o: steps.append(1) or step(self, **o))
    llm = llm_of(False)
    prompts, params = requests()
    gc.disable()  # no cycle must be in the way
    try:
        with llm.stream(prompts, params) as stream:
            assert made == []
            assert isinstance(next(stream), StepEvent)
        assert made[0]() is None
        next(iter(llm.stream(prompts, params)))
        assert made[1]() is None
    finally:
        gc.enable()
    assert len(steps) == 2
    assert list(stream) == []


def test_a_closed_paged_stream_frees_its_pages(monkeypatch):
    pytest.importorskip("triton")
    from dice.engine.paged.runner import PagedRunner

    made = []
    init = PagedRunner.__init__

    def remembered(self, *args, **options):
        init(self, *args, **options)
        made.append(weakref.ref(self))

    monkeypatch.setattr(PagedRunner, "__init__", remembered)
    prompts, params = requests(1)
    gc.disable()
    try:
        stream = llm_of(True).stream(prompts, params)
        next(stream)
        stream.close()
        assert made[0]() is None
    finally:
        gc.enable()


def test_mistakes_are_named_by_the_call_itself():
    llm = llm_of(False)
    prompts, params = requests()
    with pytest.raises(UserError, match="3 prompts but 2"):
        llm.stream(prompts, params[:2])
    with pytest.raises(UserError, match="cannot abort request 3: there are 3"):
        llm.stream(prompts, params).abort(3)
    assert list(llm.stream([], SamplingParams())) == []
