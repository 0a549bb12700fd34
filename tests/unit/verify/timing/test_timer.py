"""The judge's side of a timing, against candidates that time honestly and others, on a CPU's clock."""

import itertools
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from dice.errors import SandboxError
from dice.sandbox import ChildResult
from dice.types import Candidate, Evidence
from dice.verify import Policy, trees
from dice.verify.correctness import compare
from dice.verify.timing.calls import TimedCalls
from dice.verify.timing.ceilings import Ceilings
from dice.verify.timing.facts import Facts
from dice.verify.timing.loop import HostStopwatch, fresh
from dice.verify.timing.settings import TimingSettings
from dice.verify.timing.stats import Batch
from dice.verify.timing.timer import GpuTimer, Session, summarise
from dice.verify.trial import Trial

SETTINGS = TimingSettings(batches=5, batch_ms=4.0, max_calls=8, input_sets=2, checked_outputs=5)
POLICY = replace(Policy(), timing=SETTINGS)
FACTS = Facts(input_bytes=4000, output_bytes=4000, read_bytes=4000, flops=0)
CEILINGS = Ceilings(
    gpu="a CPU",
    peak_gbps=10.0,
    peak_tflops=1.0,
    cache_bytes=0,
    memory_bytes=1 << 30,
    loop_us=2.0,
)
BASE = [[torch.randn(20, 50)], [torch.randn(20, 50)]]


def double(x):
    time.sleep(3e-4)
    return x * 2


class Problem:
    """A prepared problem whose reference doubles its input."""

    code = "the problem"

    def __init__(self, stateful=False):
        self.stateful = stateful

    def timing_facts(self):
        return replace(FACTS, stateful=self.stateful)

    def write_timing_input(self, index, path):
        trees.save(BASE[index], str(path))

    def compare_timed(self, index, seed, output):
        wanted = 2 * fresh(BASE[index], seed)[0]
        return compare(trees.load(str(output)), wanted, wanted.double(), POLICY)


class Child:
    """A candidate's process, without the process."""

    def __init__(self, directory, model, distort=lambda times: times):
        self.directory = str(directory)
        self._model, self._distort = model, distort
        self._answer = None

    def send(self, request):
        answer = {"nonce": "n", "problem": ""}
        if request["do"] == "inputs":
            base = [trees.load(str(Path(self.directory, path))) for path in request["paths"]]
            self._calls = TimedCalls(HostStopwatch(), self._model, base)
        elif request["do"] == "ready":
            self._calls.ready(request["calls"], request["seed"])
        elif request["do"] == "go":
            answer["calls_us"] = self._distort(self._calls.go())
        else:
            self._calls.keep(request["call"], str(Path(self.directory, request["path"])))
        self._answer = answer

    def receive(self, timeout_s, *, cpu_s=None):
        return self._answer

    def finish(self):
        return ChildResult(exit_code=0)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass


class Backend:
    policy, name = POLICY, "cuda"


def run(tmp_path, model=double, distort=lambda times: times):
    trial = Trial(Backend(), Problem(), Candidate(problem="p", code=""), timing=True)
    trial._nonce = "n"
    session = Session(trial, SETTINGS)
    session.run(Child(tmp_path, model, distort), Problem(), FACTS, 1 << 30)
    return session, trial


def test_an_honest_candidate_is_timed(tmp_path):
    session, trial = run(tmp_path)
    assert trial.evidence == []
    assert len(session.batches) == 5
    timing = summarise(
        session.batches,
        {"eager": [Batch(calls_us=(900.0, 900.0), wall_us=1804.0)] * 5},
        facts=FACTS,
        ceilings=CEILINGS,
        settings=SETTINGS,
    )
    assert timing.refused is None
    assert timing.runtime.median_us > 300
    assert timing.speedup("eager") == pytest.approx(900 / timing.runtime.median_us)
    assert timing.speedup("compile") is None
    assert timing.gbps == pytest.approx(8000 / timing.runtime.median_us / 1e3)


def cached(model):
    """Computes once and returns that for ever."""
    kept = []

    def call(x):
        if not kept:
            kept.append(model(x))
        return kept[0]

    return call


def buffered(model):
    """One static output buffer for all calls."""
    kept = torch.empty(20, 50)
    return lambda x: kept.copy_(model(x))


def lazy(model):
    """Does its work until it is told the time."""
    count = itertools.count()
    return lambda x: model(x) if next(count) < 8 else torch.zeros_like(x)


@pytest.mark.parametrize("cheat", [cached, buffered, lazy])
def test_outputs_that_were_timed_are_looked_at(tmp_path, cheat):
    _, trial = run(tmp_path, cheat(double))
    assert [one.kind for one in trial.evidence] == ["wrong_output"]
    assert "while it was timed" in trial.evidence[0].message


@pytest.mark.parametrize(
    "lie",
    [
        lambda times: times[1:],
        lambda times: "fast",
        lambda times: [0.0] * len(times),
        lambda times: [True] * len(times),
    ],
)
def test_times_that_are_none_are_forged(tmp_path, lie):
    session, trial = run(tmp_path, distort=lie)
    assert [one.kind for one in trial.evidence] == ["forged_verdict"]
    assert session.batches == []


def test_times_that_the_judges_clock_does_not_confirm_are_refused(tmp_path):
    session, trial = run(tmp_path, distort=lambda times: [one / 100 for one in times])
    assert trial.evidence == []
    slow = TimingSettings(clock_slack_us=200.0)
    timing = summarise(session.batches, {}, facts=FACTS, ceilings=CEILINGS, settings=slow)
    assert timing.refused is not None
    assert "judge's" in timing.refused
    assert timing.speedup("eager") is None


def test_faster_than_the_memory_is_refused():
    facts = replace(FACTS, read_bytes=100_000_000)
    batches = [Batch(calls_us=(100.0,) * 20, wall_us=20 * 102.0)] * 5
    timing = summarise(batches, {}, facts=facts, ceilings=CEILINGS, settings=SETTINGS)
    assert timing.refused is not None
    assert "faster than the memory" in timing.refused
    usual = replace(facts, read_bytes=500_000)
    assert summarise(batches, {}, facts=usual, ceilings=CEILINGS, settings=SETTINGS).refused is None


def test_less_arithmetic_than_the_reference_is_noted():
    facts = replace(FACTS, flops=10**10)
    batches = [Batch(calls_us=(100.0,) * 20, wall_us=20 * 102.0)] * 5
    timing = summarise(batches, {}, facts=facts, ceilings=CEILINGS, settings=SETTINGS)
    assert timing.tflops == pytest.approx(100.0)
    assert "less arithmetic" in timing.notes[0]


class Slots:
    def __init__(self):
        self.entered = []

    def __getattr__(self, name):
        import contextlib

        @contextlib.contextmanager
        def hold():
            self.entered.append(name)
            yield

        return hold


@pytest.fixture
def timer(monkeypatch):
    def result(job, *, key, visible):
        if job["do"] == "ceilings":
            return {name: getattr(CEILINGS, name) for name in Ceilings.__dataclass_fields__}
        batch = {"calls_us": [900.0] * 4, "wall_us": 3608.0}
        return {"batches": {"eager": [batch] * 5}, "missing": {"compile": "torch.compile: no"}}

    monkeypatch.setattr("dice.verify.timing.timer.run_clean", result)
    monkeypatch.setattr(Trial, "open", lambda self, child: setattr(self, "_nonce", "n") or {})
    return GpuTimer(POLICY, Slots(), "0")


def time_one(timer, tmp_path, model=double, problem=None):
    trial = Trial(Backend(), Problem(), Candidate(problem="p", code=""))
    return timer.time(trial, problem or Problem(), lambda: Child(tmp_path, model))


def test_a_timing_has_the_gpu_alone_and_says_which_baseline_is_missing(timer, tmp_path):
    measured = time_one(timer, tmp_path)
    assert timer._slots.entered == ["checking_in_turn", "timing"]
    assert measured.evidence == ()
    assert measured.notes == ("torch.compile: no",)
    assert list(measured.timing.baselines) == ["eager"]


def test_evidence_takes_the_place_of_a_timing(timer, tmp_path):
    measured = time_one(timer, tmp_path, cached(double))
    assert measured.timing is None
    assert isinstance(measured.evidence[0], Evidence)


def test_a_machine_that_cannot_time_is_noted(timer, tmp_path, monkeypatch):
    def too_large(self):
        raise SandboxError("the referee cannot answer: out of memory")

    monkeypatch.setattr(Problem, "timing_facts", too_large)
    measured = time_one(timer, tmp_path)
    assert measured.timing is None
    assert measured.notes == ("not timed: the referee cannot answer: out of memory",)


def test_a_problem_whose_calls_depend_on_each_other_is_not_timed(timer, tmp_path):
    measured = time_one(timer, tmp_path, problem=Problem(stateful=True))
    assert measured.timing is None
    assert measured.evidence == ()
    assert "not timed" in measured.notes[0]
