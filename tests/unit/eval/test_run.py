"""A run loses nothing and does nothing twice, wherever it is interrupted."""

import threading
from concurrent.futures import Future
from contextlib import AbstractContextManager, suppress

import pytest

from dice.engine.backends import Answer, Usage
from dice.errors import ProblemError, SandboxError, UserError
from dice.eval import plan
from dice.eval.records import Place, Sampling
from dice.eval.run import evaluate, sampling_params, written_at
from dice.eval.store import Store
from dice.models.generation import GenerationDefaults
from dice.problems import load_benchmark
from dice.types import Completion, Verdict, VerdictKind
from dice.verify import Policy

PROBLEM = """\
import torch
class Model(torch.nn.Module):
    def forward(self, x): return x + {n}
def get_inputs(): return [torch.rand(4)]
def get_init_inputs(): return []
"""


@pytest.fixture
def benchmark(tmp_path):
    folder = tmp_path / "kb" / "KernelBench" / "level1"
    folder.mkdir(parents=True)
    for n in (1, 2, 3):
        (folder / f"{n}_Add.py").write_text(PROBLEM.format(n=n))
    return load_benchmark(tmp_path / "kb")


def completion(text: str, **changes) -> Completion:
    values = {
        "prompt_ids": (1, 2),
        "token_ids": (5, 6, 7, 8),
        "steps": (0, 1, 0, 0),
        "logprobs": (0.0,) * 4,
        "text": text,
        "finish_reason": "stop",
        "forwards": 3,
        "seed": 0,
    }
    return Completion(**{**values, **changes})


class Writer(AbstractContextManager):
    """Answers each request with a text of its own; `stop_after` answers it is interrupted."""

    name, template, block_size = "fake", "nano", 4
    defaults = GenerationDefaults()

    def __init__(self, stop_after: int | None = None, text=None) -> None:
        self.asked: list[str] = []
        self._stop_after, self._text = stop_after, text or (lambda request: f"# {request.id}")

    def pieces(self, completion):
        return tuple("abcd")

    def answers(self, requests):
        for number, request in enumerate(requests):
            if number == self._stop_after:
                raise KeyboardInterrupt
            self.asked.append(request.id)
            text = self._text(request)
            if text is None:
                failure = {"failure": "context_overflow", "message": "5000 tokens, 4096 fit"}
                yield Answer(request=request, **failure)
            else:
                usage = Usage(prompt_tokens=2, completion_tokens=4)
                yield Answer(request=request, completion=completion(text), usage=usage, seconds=0.5)

    def __exit__(self, *_):
        pass


class Judges:
    """Rules from a thread of its own. `broken` holds codes that the machine fails on."""

    def __init__(self, broken=(), error=None) -> None:
        self.judged: list[str] = []
        self._broken, self._error, self._threads = broken, error, []

    def submit(self, job):
        future: Future[Verdict] = Future()
        self.judged.append(job.candidate.code)

        def rule():
            if self._error is not None:
                future.set_exception(self._error)
            elif job.candidate.code in self._broken:
                future.set_exception(SandboxError("no process could be started"))
            else:
                future.set_result(Verdict(kind=VerdictKind.CORRECT, build_s=1.0, run_s=0.5))

        thread = threading.Thread(target=rule)
        thread.start()
        self._threads.append(thread)
        return future

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for thread in self._threads:
            thread.join()


def new_run(path, benchmark, samples=2, **sampling) -> Store:
    return plan.new_run(
        path,
        benchmark,
        benchmark.problems,
        model={"kind": "fake"},
        options={},
        sampling=Sampling(samples=samples, **sampling),
        here=Place(backend="simt"),
        policy=Policy(),
    )


def go_on(path, benchmark, writer, judges) -> Store:
    store = Store.open(path)
    with store, judges:
        evaluate(store, benchmark, judges, writer)
    return store


def test_every_sample_has_a_completion_a_file_and_a_verdict(tmp_path, benchmark):
    new_run(tmp_path / "run", benchmark)
    store = go_on(tmp_path / "run", benchmark, Writer(), Judges())
    assert len(store.log.generations) == len(store.log.verdicts) == 6
    line = store.log.generations[1, 2, 1]
    assert (line.code, line.completion_tokens, line.forwards) == ("# 1/2/1", 4, 3)
    assert line.steps == (0, 1, 2, 2)
    assert store.candidate_file(line.key).read_text() == "# 1/2/1"
    assert store.log.verdicts[1, 2, 1].seconds == 1.5


@pytest.mark.parametrize("stop_after", range(7))
def test_an_interrupted_run_goes_on_and_repeats_nothing(tmp_path, benchmark, stop_after):
    new_run(tmp_path / "run", benchmark)
    first, judges = Writer(stop_after), Judges()
    with suppress(KeyboardInterrupt):
        go_on(tmp_path / "run", benchmark, first, judges)
    second, more = Writer(), Judges()
    store = go_on(tmp_path / "run", benchmark, second, more)
    assert sorted(first.asked + second.asked) == sorted({*first.asked, *second.asked})
    assert len(first.asked + second.asked) == 6
    assert len(store.log.verdicts) == 6
    assert len(judges.judged + more.judged) == len({*judges.judged, *more.judged}) == 6
    third = Writer()
    assert go_on(tmp_path / "run", benchmark, third, Judges()).log == store.log
    assert third.asked == []


def test_equal_candidates_are_judged_once(tmp_path, benchmark):
    new_run(tmp_path / "run", benchmark, samples=3)
    judges = Judges()
    store = go_on(tmp_path / "run", benchmark, Writer(text=lambda request: "same"), judges)
    assert len(judges.judged) == 3  # one a problem
    assert [store.log.verdicts[1, 1, n].same_as for n in range(3)] == [None, 0, 0]


def test_what_the_machine_failed_on_is_tried_again(tmp_path, benchmark):
    new_run(tmp_path / "run", benchmark)
    store = go_on(tmp_path / "run", benchmark, Writer(), Judges(broken=("# 1/1/0",)))
    assert store.log.verdicts[1, 1, 0].error == "no process could be started"
    judges = Judges()
    store = go_on(tmp_path / "run", benchmark, Writer(), judges)
    assert judges.judged == ["# 1/1/0"]
    assert store.log.verdicts[1, 1, 0].verdict is not None


def test_a_prompt_that_overflows_is_a_failure_that_counts(tmp_path, benchmark):
    new_run(tmp_path / "run", benchmark)
    long = Writer(text=lambda request: None if request.id.startswith("1/2/") else "x")
    judges = Judges()
    store = go_on(tmp_path / "run", benchmark, long, judges)
    assert store.log.generations[1, 2, 0].failure == "context_overflow"
    assert (1, 2, 0) not in store.log.verdicts
    again = Writer()
    go_on(tmp_path / "run", benchmark, again, Judges())
    assert again.asked == []


def test_text_that_is_not_utf_8_is_kept_with_question_marks(tmp_path, benchmark):
    new_run(tmp_path / "run", benchmark, samples=1)
    store = go_on(tmp_path / "run", benchmark, Writer(text=lambda r: "# \ud800"), Judges())
    assert store.candidate_file((1, 1, 0)).read_text() == "# ?"
    assert Store.open(tmp_path / "run").log == store.log


def test_a_problem_that_does_not_run_is_untestable(tmp_path, benchmark):
    new_run(tmp_path / "run", benchmark)
    judges = Judges(error=ProblemError("level1/1_Add: get_inputs raised ValueError"))
    store = go_on(tmp_path / "run", benchmark, Writer(), judges)
    verdict = store.log.verdicts[1, 1, 0].verdict
    assert verdict["kind"] == "untestable"
    assert verdict["evidence"][0]["kind"] == "problem_error"


def test_missing_weights_are_said_to_be_missing(benchmark):
    from dataclasses import replace

    from dice.eval.run import untestable

    one = benchmark.problems[0]
    code = "AutoModelForCausalLM.from_pretrained('some/model')"
    loading = replace(one, problem=replace(one.problem, code=code))
    message = "level4/1: the file raised OSError: We couldn't connect to the hub. (line 16)"
    assert untestable(loading, message).evidence[0].kind == "weights_missing"
    assert untestable(one, message).evidence[0].kind == "problem_error"
    missing = "level3/48: the file raised ModuleNotFoundError: No module named 'einops' (line 3)"
    assert untestable(one, missing).evidence[0].kind == "module_missing"
    large = "level3/1: too large for this machine: 9 elements"
    assert untestable(one, large).evidence[0].kind == "too_large"


def test_another_text_of_a_problem_is_refused(tmp_path, benchmark):
    new_run(tmp_path / "run", benchmark)
    changed = tmp_path / "kb" / "KernelBench" / "level1" / "2_Add.py"
    changed.write_text(PROBLEM.format(n=9))
    other = load_benchmark(tmp_path / "kb")
    assert other.version != benchmark.version
    with pytest.raises(UserError, match=r"problem 2 of this run differs in"):
        go_on(tmp_path / "run", other, Writer(), Judges())


def test_a_single_sample_is_greedy_and_several_are_all_drawn_alike():
    warm = GenerationDefaults(temperature=0.7)
    assert sampling_params(Sampling(), warm, (1, 1, 0)).temperature == 0.0
    many = [sampling_params(Sampling(samples=4), warm, (1, 1, n)) for n in range(4)]
    assert {one.temperature for one in many} == {0.7}
    assert len({one.seed for one in many}) == 4
    assert sampling_params(Sampling(temperature=0.3), warm, (1, 1, 0)).temperature == 0.3
    assert sampling_params(Sampling(samples=4, seed=1), warm, (1, 1, 0)).seed != many[0].seed


def test_steps_are_counted_over_the_whole_completion():
    """Two prompt tokens: the first block has two free positions, the others four."""
    steps = (1, 0, 2, 0, 1, 3, None, 0)
    found = written_at(completion("", steps=steps), 4)
    assert found == (1, 0, 4, 2, 3, 5, None, 6)
    assert written_at(completion("", steps=()), 4) == ()
