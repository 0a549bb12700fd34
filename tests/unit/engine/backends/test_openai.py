"""The endpoint backend against a server on this machine that fails in every way."""

import contextlib
import json
import logging
import threading
import time
import traceback
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from dice.engine.backends import pacing
from dice.engine.backends.base import Answer, Request, Unanswered
from dice.engine.backends.openai import OpenAIBackend
from dice.engine.backends.options import EndpointOptions
from dice.engine.sampling import SamplingParams
from dice.errors import ModelError, UserError
from dice.types import Message, Prompt
from tests.unit.engine.backends.endpoint import FakeEndpoint, Say, completion, error

KEY = "sk-test-0123456789abcdef"


@pytest.fixture(autouse=True)
def _environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    # Reading the usual certificates takes a tenth of a second a client; nothing here needs one.
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    monkeypatch.setenv("SSL_CERT_DIR", str(tmp_path))


def options(server: FakeEndpoint, **changed: object) -> EndpointOptions:
    quick = EndpointOptions(
        base_url=server.base_url,
        concurrency=4,
        timeout_s=5.0,
        retry_base_s=0.01,
        retry_longest_s=0.05,
        pause_after=4,
    )
    return replace(quick, **changed)  # type: ignore[arg-type]


def request(name: str, **params: object) -> Request:
    prompt = Prompt(
        problem=name, template="kernelbench", messages=(Message(role="user", content=name),)
    )
    return Request(id=f"id-{name}", prompt=prompt, params=SamplingParams(**params))  # type: ignore[arg-type]


def requests(count: int) -> list[Request]:
    return [request(f"p{index}") for index in range(count)]


def ask(
    server: FakeEndpoint, wanted: list[Request], told: list[str] | None = None, **changed: object
) -> dict[str, Answer]:
    with OpenAIBackend(
        "m", options(server, **changed), [].append if told is None else told.append
    ) as backend:
        answers = list(backend.answers(wanted))
    found = {one.request.id: one for one in answers}
    assert len(found) == len(answers), "a request was answered twice"
    return found


def assert_all_echo(found: dict[str, Answer], wanted: list[Request]) -> None:
    assert found.keys() == {one.id for one in wanted}
    for one in wanted:
        answer = found[one.id]
        assert answer.request == one
        assert answer.completion is not None
        assert answer.completion.text == f"echo {one.prompt.problem}"


def test_every_request_is_answered_in_order_of_completion_and_no_more_than_allowed_at_once() -> (
    None
):
    wanted = requests(12)
    slow = FakeEndpoint(lambda prompt, asked, body: Say(after_s=0.2 if prompt == "p0" else 0.01))
    with slow as server:
        found = ask(server, wanted, concurrency=3)
    assert_all_echo(found, wanted)
    assert server.most_at_once == 3
    assert next(iter(found)) != "id-p0"
    assert server.keys == {f"Bearer {KEY}"}


def test_what_is_sent_and_what_comes_back() -> None:
    with FakeEndpoint() as server:
        one = request("hi", temperature=0.7, top_p=0.9, top_k=5, seed=3, max_new_tokens=77)
        found = ask(server, [one], input_price=2.0, output_price=10.0)
    (body,) = server.bodies
    assert body == {
        "model": "m",
        "messages": [{"role": "user", "content": "hi"}],
        "temperature": 0.7,
        "top_p": 0.9,
        "top_k": 5,
        "seed": 3,
        "max_tokens": 77,
    }
    answer = found["id-hi"]
    assert answer.completion is not None
    assert (answer.completion.token_ids, answer.completion.seed) == ((), 3)
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (100, 20)
    assert answer.usage.cost_usd == pytest.approx((100 * 2 + 20 * 10) / 1e6)
    assert 0 < answer.seconds < 5


@pytest.mark.parametrize(
    ("body", "text", "finish"),
    [
        (completion("a", "length"), "a", "length"),
        (completion("a", None), "a", "stop"),
        (completion("a", "eos_token", reasoning_content="thought"), "a", "stop"),
        (completion("<think>thought</think>\n\na"), "a", "stop"),
        (completion(None, "length", reasoning="thought"), "", "length"),
    ],
)
def test_finish_reasons_and_reasoning(body: object, text: str, finish: str) -> None:
    with FakeEndpoint(lambda prompt, asked, sent: Say(body=body)) as server:
        answer = ask(server, [request("p")])["id-p"]
    assert answer.completion is not None
    assert (answer.completion.text, answer.completion.finish_reason) == (text, finish)
    assert answer.usage.cost_usd is None


TRANSIENT = [
    Say(status=500, body="oops"),
    Say(status=503, body=error("overloaded")),
    Say(status=0),
    Say(body="{ not json"),
    Say(body={"choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 1}}),
    Say(body={"error": {"message": "upstream", "code": 502}}),
    Say(body=completion("half", "error")),
    Say(body="<html>maintenance</html>"),
    Say(status=429, body=error("slow down"), headers={"retry-after": "0.05"}),
    Say(status=408),
]


@pytest.mark.parametrize("fault", TRANSIENT, ids=[str(index) for index in range(len(TRANSIENT))])
def test_a_passing_trouble_is_retried(fault: Say) -> None:
    with FakeEndpoint(lambda prompt, asked, body: fault if asked < 2 else Say()) as server:
        found = ask(server, requests(1))
    assert_all_echo(found, requests(1))
    assert server.asked["p0"] == 3


def test_a_mix_of_all_troubles_loses_nothing() -> None:
    def behave(prompt: str, asked: int, body: object) -> Say:
        number = int(prompt[1:])
        return TRANSIENT[(number + asked) % len(TRANSIENT)] if asked < number % 4 else Say()

    wanted = requests(40)
    with FakeEndpoint(behave) as server:
        assert_all_echo(ask(server, wanted, concurrency=8), wanted)
    assert server.most_at_once <= 8


def test_a_slow_answer_times_out_and_is_asked_again() -> None:
    with FakeEndpoint(
        lambda prompt, asked, body: Say(after_s=0.6 if asked == 0 else 0.0)
    ) as server:
        found = ask(server, requests(2), timeout_s=0.3)
    assert_all_echo(found, requests(2))
    assert max(server.asked.values()) == 2


def test_retry_after_holds_everybody() -> None:
    def behave(prompt: str, asked: int, body: object) -> Say:
        first = prompt == "p0" and asked == 0
        return Say(status=429, headers={"retry-after": "0.4"}) if first else Say()

    wanted = requests(5)
    with FakeEndpoint(behave) as server:
        assert_all_echo(ask(server, wanted, concurrency=1), wanted)
    assert server.times[1] - server.times[0] >= 0.4


def test_spent_tokens_of_failed_attempts_are_counted() -> None:
    with FakeEndpoint(lambda prompt, asked, body: TRANSIENT[4] if asked < 2 else Say()) as server:
        usage = ask(server, requests(1))["id-p0"].usage
    assert (usage.prompt_tokens, usage.completion_tokens) == (114, 22)


def test_rate_limits_hold_in_every_window(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pacing, "MINUTE_S", 0.2)
    wanted = requests(10)
    with FakeEndpoint() as server:
        assert_all_echo(ask(server, wanted, requests_per_minute=3), wanted)
    for first, fourth in zip(server.times, server.times[3:], strict=False):
        assert fourth - first > 0.15
    # An answer under way counts with its limit; afterwards with what it took, 120 tokens.
    wanted = [request(f"p{index}", max_new_tokens=900) for index in range(6)]
    with FakeEndpoint() as server:
        assert_all_echo(ask(server, wanted, tokens_per_minute=1000, concurrency=1), wanted)
    assert server.times[1] - server.times[0] > 0.15
    assert server.times[5] - server.times[0] < 5 * 0.2 + 1


def test_a_dead_endpoint_pauses_the_run_until_it_is_back() -> None:
    dead = threading.Event()
    calls = 0

    def behave(prompt: str, asked: int, body: object) -> Say:
        nonlocal calls
        calls += 1
        if calls == 10:
            dead.set()
        return Say(status=503 if calls % 2 else 0) if dead.is_set() else Say()

    told: list[str] = []
    wanted = requests(30)
    with FakeEndpoint(behave) as server:
        threading.Timer(0.7, dead.clear).start()
        found = ask(server, wanted, told, retry_base_s=0.02, retry_longest_s=0.1)
    assert_all_echo(found, wanted)
    assert "paused" in told[0]
    assert "answers again" in told[-1]
    assert any("still does not answer" in one for one in told)
    # While paused one probe at a time, ever more slowly: not 4 at a time without a break.
    assert len(server.times) < 30 + 4 + 4 + 0.7 / 0.02


def test_an_endpoint_that_comes_up_late_is_waited_for_and_one_that_does_not_ends_the_run() -> None:
    wanted = requests(3)
    told: list[str] = []
    with FakeEndpoint() as server:
        quick = options(server, pause_limit_s=0.2)
    with pytest.raises(ModelError, match=r"has not answered for .*run again to go on"):
        list(OpenAIBackend("m", quick, told.append).answers(wanted))
    assert "paused" in told[0]

    stack = contextlib.ExitStack()
    starter = threading.Timer(0.3, lambda: stack.enter_context(FakeEndpoint(port=server.port)))
    with stack:
        starter.start()
        found = ask(server, wanted)
        starter.join()
    assert_all_echo(found, wanted)


def test_a_poisonous_request_is_set_aside_and_named_at_the_end() -> None:
    with FakeEndpoint(
        lambda prompt, asked, body: Say(body="garbage") if prompt == "p1" else Say()
    ) as server:
        backend = OpenAIBackend("m", options(server, attempts=3))
        answers: list[Answer] = []
        with pytest.raises(Unanswered, match=r"1 requests got no answer .*id-p1, 3 attempts"):
            answers.extend(backend.answers(requests(6)))
    assert {one.request.id for one in answers} == {f"id-p{index}" for index in (0, 2, 3, 4, 5)}
    assert server.asked["p1"] == 3


@pytest.mark.parametrize(
    ("fault", "failure"),
    [
        (
            Say(status=400, body=error("too long", code="context_length_exceeded")),
            "context_overflow",
        ),
        (
            Say(
                status=400,
                body={
                    "object": "error",
                    "message": "This model's maximum context length is 4096 tokens.",
                },
            ),
            "context_overflow",
        ),
        (
            Say(status=422, body={"error": "`inputs` tokens + `max_new_tokens` must be <= 4096"}),
            "context_overflow",
        ),
        (Say(status=400, body=error("no", code="content_filter")), "refused"),
        (Say(status=403, body=error("your input was flagged")), "refused"),
        (Say(body=completion("", "content_filter")), "refused"),
        (Say(body=completion(None, "stop", refusal="I cannot")), "refused"),
        (Say(status=400, body=error("image required")), "rejected"),
    ],
)
def test_what_can_never_be_answered_is_a_failure_of_that_request(fault: Say, failure: str) -> None:
    with FakeEndpoint(lambda prompt, asked, body: fault if prompt == "p1" else Say()) as server:
        found = ask(server, requests(4))
    answer = found.pop("id-p1")
    assert (answer.completion, answer.failure) == (None, failure)
    assert answer.message
    assert_all_echo(found, [one for one in requests(4) if one.prompt.problem != "p1"])
    assert server.asked["p1"] == 1


@pytest.mark.parametrize(
    ("fault", "match"),
    [
        (
            Say(status=401, body=error(f"Incorrect API key provided: {KEY[:8]}***")),
            "OPENAI_API_KEY",
        ),
        (Say(status=403, body=error("forbidden")), "may not use this model"),
        (Say(status=404, body=error(f"no model m for {KEY}")), "the model's name"),
        (Say(status=402, body=error("payment")), "account"),
        (Say(status=429, body=error("quota", code="insufficient_quota")), "account"),
        (Say(status=400, body=error("m is not a valid model")), "rejects every request"),
        (Say(status=429, headers={"retry-after": "86400"}), "longer than a pause may last"),
        (
            Say(
                status=400,
                body=error("Unsupported value: 'temperature'", param="temperature"),
            ),
            r"omit",
        ),
    ],
)
def test_what_concerns_every_request_ends_the_run_with_advice(fault: Say, match: str) -> None:
    with FakeEndpoint(lambda prompt, asked, body: fault) as server:
        backend = OpenAIBackend("m", options(server))
        answers: list[Answer] = []
        with pytest.raises(ModelError, match=match) as caught:
            answers.extend(backend.answers(requests(20)))
    assert answers == []
    assert len(server.times) < 15
    text = "".join(traceback.format_exception(caught.value))
    assert KEY not in text
    assert KEY[:8] not in text


def test_parameters_that_an_endpoint_refuses_are_spelt_otherwise_or_left_out() -> None:
    def behave(prompt: str, asked: int, body: dict[str, object]) -> Say:
        if "max_tokens" in body:
            text = "Unsupported parameter: 'max_tokens'. Use 'max_completion_tokens' instead."
            return Say(status=400, body=error(text, param="max_tokens"))
        if "seed" in body:
            return Say(status=422, body={"detail": "body.seed: Extra inputs are not permitted"})
        return Say()

    wanted = requests(6)
    with FakeEndpoint(behave) as server:
        backend = OpenAIBackend("m", options(server, omit=("temperature",)))
        assert backend.describe()["notes"] == []
        assert_all_echo({one.request.id: one for one in backend.answers(wanted)}, wanted)
    assert "max_completion_tokens" in server.bodies[-1]
    assert "seed" not in server.bodies[-1]
    assert all("temperature" not in body for body in server.bodies)
    notes = backend.describe()["notes"]
    assert isinstance(notes, list)
    assert len(notes) == 2


def test_requests_are_taken_lazily_and_closing_stops_the_work() -> None:
    taken = 0

    def endless() -> Iterator[Request]:
        nonlocal taken
        while True:
            taken += 1
            yield request(f"p{taken}")

    with FakeEndpoint(lambda prompt, asked, body: Say(after_s=0.02)) as server:
        backend = OpenAIBackend("m", options(server))
        with contextlib.closing(backend.answers(endless())) as answers:
            for _ in range(5):
                next(answers)
        assert taken <= 5 + 2 * 4
        time.sleep(0.1)
        asked = len(server.times)
        time.sleep(0.1)
        assert len(server.times) == asked
        assert "dice-endpoint" not in {thread.name for thread in threading.enumerate()}
        assert [one.request.id for one in backend.answers([request("again")])] == ["id-again"]


def test_the_callers_own_exception_passes_through() -> None:
    def broken() -> Iterator[Request]:
        yield request("p")
        raise KeyError("mine")

    with FakeEndpoint() as server, pytest.raises(KeyError, match="mine"):
        list(OpenAIBackend("m", options(server)).answers(broken()))


def test_forced_text_is_refused() -> None:
    one = request("p")
    forced = replace(one, prompt=replace(one.prompt, forced_prefix="x"))
    with FakeEndpoint() as server, pytest.raises(UserError, match="forced"):
        list(OpenAIBackend("m", options(server)).answers([forced]))


def test_sets_of_allowed_tokens_are_refused() -> None:
    wanted = request("a", allowed_token_ids={0: frozenset({1})})
    with FakeEndpoint() as server, pytest.raises(UserError, match="allowed_token_ids"):
        ask(server, [wanted])


def test_the_key_appears_nowhere(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    told: list[str] = []

    def behave(prompt: str, asked: int, body: object) -> Say:
        return Say(status=500, body=f"bad {KEY}") if asked < 3 else Say()

    with FakeEndpoint(behave) as server:
        backend = OpenAIBackend("m", options(server, pause_after=1), told.append)
        found = list(backend.answers(requests(2)))
    assert told
    seen = json.dumps(backend.describe()) + repr(vars(backend)) + repr(found) + "".join(told)
    assert KEY not in seen + caplog.text
    assert "[key]" in "".join(told)


def test_keys_come_from_the_environment_only(monkeypatch: pytest.MonkeyPatch) -> None:
    here = EndpointOptions(base_url="http://127.0.0.1:1/v1")
    monkeypatch.delenv("OPENAI_API_KEY")
    OpenAIBackend("m", here)  # a server of one's own wants no key
    with pytest.raises(UserError, match="OPENAI_API_KEY is not set"):
        OpenAIBackend("m", EndpointOptions())
    with pytest.raises(UserError, match="MY_KEY is not set"):
        OpenAIBackend("m", replace(here, key_variable="MY_KEY"))
    monkeypatch.setenv("MY_KEY", "two words")
    with pytest.raises(UserError, match="no API key") as caught:
        OpenAIBackend("m", replace(here, key_variable="MY_KEY"))
    assert "two words" not in str(caught.value)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base_url": "ftp://x/v1"},
        {"base_url": "x"},
        {"base_url": f"https://me:{KEY}@x/v1"},
        {"base_url": f"https://x/v1?key={KEY}"},
        {"key_variable": KEY},
        {"concurrency": 0},
        {"tokens_per_minute": -1},
        {"timeout_s": 0.0},
        {"input_price": -1.0},
        {"omit": ("max_tokens",)},
    ],
)
def test_options_out_of_range_are_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(UserError) as caught:
        EndpointOptions(**wrong)  # type: ignore[arg-type]
    assert KEY not in str(caught.value)
