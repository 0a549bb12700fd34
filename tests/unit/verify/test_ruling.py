"""What is found out after the ruling reaches the verdict."""

from types import SimpleNamespace

from dice.sandbox import ChildResult, Features
from dice.types import Candidate, Evidence, VerdictKind
from dice.verify import Policy, ruling
from dice.verify.trial import Inspection, Measured


class _Backend:
    name, checked, policy, protections = "cuda", "", Policy(), Features()
    measured = Measured()

    def __init__(self, note, found):
        self._note, self._found = note, found

    def inspect(self, built):
        return Inspection()

    def examine(self, trial):
        trial.notes.append(self._note)
        return self._found

    def time(self, trial):
        return self.measured


def _judge(monkeypatch, note, found=()):
    built = SimpleNamespace(path="/nonexistent", route="stock", sources=None)

    def trial(backend, prepared, candidate):
        nothing = {"evidence": [], "reports": [], "sources": [], "calls": 5, "run_s": 1.0}
        return SimpleNamespace(
            **nothing,
            backend=backend,
            prepared=prepared,
            candidate=candidate,
            notes=["inputs tried"],
            built=[built],
            launches=0,
            early=False,
            result=ChildResult(exit_code=0),
            run=lambda: None,
        )

    monkeypatch.setattr(ruling, "Trial", trial)
    prepared = SimpleNamespace(findings=(), notes=(), calls=5)
    backend = _Backend(note, list(found))
    return ruling.judge_candidate(backend, prepared, Candidate(problem="p", code="pass"))


def test_notes_of_the_examination_and_the_attribution_are_the_verdicts(monkeypatch):
    verdict = _judge(monkeypatch, "not examined: no such tool")
    assert verdict.kind is VerdictKind.CORRECT
    assert verdict.notes[:2] == ("inputs tried", "not examined: no such tool")
    assert verdict.notes[2].startswith("not attributed")
    assert not any("no fault" in one.message for one in verdict.evidence)


def test_what_the_examination_finds_decides(monkeypatch):
    found = [Evidence(kind="race", message="a race")]
    verdict = _judge(monkeypatch, "examined", found)
    assert verdict.kind is VerdictKind.UNSAFE
    assert "examined" in verdict.notes


def test_an_output_that_is_wrong_only_while_it_is_timed_decides(monkeypatch):
    found = Evidence(kind="wrong_output", message="zeros (inputs: while it was timed)")
    monkeypatch.setattr(_Backend, "measured", Measured(evidence=(found,), notes=("no baseline",)))
    verdict = _judge(monkeypatch, "examined")
    assert verdict.kind is VerdictKind.WRONG
    assert verdict.timing is None
    assert "no baseline" in verdict.notes


def test_a_timing_is_the_verdicts(monkeypatch):
    timing = object()
    monkeypatch.setattr(_Backend, "measured", Measured(timing=timing))
    assert _judge(monkeypatch, "examined").timing is timing


def test_who_is_not_correct_is_not_timed(monkeypatch):
    monkeypatch.setattr(_Backend, "time", None)
    found = [Evidence(kind="race", message="a race")]
    assert _judge(monkeypatch, "examined", found).kind is VerdictKind.UNSAFE
