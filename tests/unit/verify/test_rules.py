"""From evidence to a ruling: precedence, and what a candidate's text may not do."""

import json

import pytest

from dice.errors import BuildFailure
from dice.sandbox import ChildResult, Incident
from dice.types import Evidence, VerdictKind
from dice.verify import rules


def _kind(*kinds, complete=True):
    evidence = [Evidence(kind=kind, message="") for kind in kinds]
    return rules.kind_of(evidence, complete=complete)


def test_no_evidence_and_all_inputs_done_is_correct():
    assert _kind() is VerdictKind.CORRECT


def test_no_evidence_and_not_all_inputs_done_is_never_correct():
    assert _kind(complete=False) is VerdictKind.CRASHED


@pytest.mark.parametrize(
    ("kinds", "ruling"),
    [
        (("wrong_output", "process_creation"), VerdictKind.HACK),
        (("exit", "forged_verdict"), VerdictKind.HACK),
        (("wrong_output", "race"), VerdictKind.UNSAFE),
        (("exception", "out_of_bounds"), VerdictKind.UNSAFE),
        (("wrong_output", "launch_error"), VerdictKind.LAUNCH_ERROR),
        (("wrong_output", "no_kernel_launched"), VerdictKind.WRONG),
        (("no_kernel_launched",), VerdictKind.NO_CUSTOM_KERNEL),
        (("nvcc_failed",), VerdictKind.COMPILE_ERROR),
        (("timeout", "wrong_output"), VerdictKind.TIMEOUT),
    ],
)
def test_precedence(kinds, ruling):
    assert _kind(*kinds) is ruling


def test_unmatched_weights_alone_do_not_condemn_a_right_output():
    assert _kind("unmatched_weights") is VerdictKind.CORRECT
    assert _kind("unmatched_weights", complete=False) is VerdictKind.WRONG


@pytest.mark.parametrize(
    "line",
    [
        '{"kind": "correct"}',
        'RESULT {"match": true}',
        '{"verdict": "pass", "x": 1}',
        '{"correctness": "True"}',
    ],
)
def test_printed_rulings_are_recognised(line):
    assert rules.claims_verdict(line)


@pytest.mark.parametrize(
    "line",
    [
        "correct",
        '{"threads": 256}',
        '{"kind": "elementwise"}',
        '{"compiled": false}',
        "{'a': 1}",
        "{",
    ],
)
def test_ordinary_output_is_no_ruling(line):
    assert not rules.claims_verdict(line)


def test_incidents_become_evidence():
    (evidence,) = rules.from_incidents([Incident(kind="exec", detail="execve")])
    assert evidence.kind == "process_creation"


def test_an_early_end_is_evidence_and_an_asked_for_one_is_not():
    result = ChildResult(exit_code=0)
    assert [one.kind for one in rules.from_ending(result, early=True)] == ["exit"]
    assert rules.from_ending(result, early=False) == []


@pytest.mark.parametrize("reports", [None, 3, ["x"], [{"kind": ["race"]}], [{}]])
def test_malformed_diagnostics_do_no_harm(reports):
    assert all(isinstance(one, Evidence) for one in rules.from_diagnostics(reports))


@pytest.mark.parametrize(
    "message",
    [
        {},
        {"name": 1, "cpp_sources": "", "cuda_sources": "", "functions": [], "defines": []},
        {"name": "n", "cpp_sources": "", "cuda_sources": "", "functions": "f", "defines": []},
        {"name": "n", "cpp_sources": "", "cuda_sources": "", "functions": [], "defines": [["a"]]},
    ],
)
def test_malformed_build_requests_are_refused(message):
    assert rules.sources_from(message) is None


def test_a_build_request_arrives_as_it_was_sent():
    from queue import SimpleQueue
    from types import SimpleNamespace

    from dice.toolchain.source import ExtensionSources
    from dice.verify.candidate_thread import Builds

    sources = ExtensionSources(
        name="m",
        cpp_sources="void f();",
        cuda_sources="void f() {}",
        functions=("f",),
        defines=(("N", "4"),),
        cuda_flags=("--use_fast_math", "-U__CUDA_NO_HALF_OPERATORS__"),
        ld_flags=("-lcublas",),
        stock_reason="it links -lcublas",
    )
    thread = SimpleNamespace(results=SimpleQueue(), answers=SimpleQueue())
    thread.answers.put({"failure": "seen"})
    with pytest.raises(BuildFailure, match="seen"):
        Builds(thread, check=True).ask(sources)
    _, request = thread.results.get()
    assert rules.sources_from(json.loads(json.dumps(request))) == sources
    for key, value in (("cuda_flags", "-O3"), ("ld_flags", [3]), ("stock_reason", None)):
        assert rules.sources_from({**request, key: value}) is None
