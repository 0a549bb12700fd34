"""Which of several attempts is kept."""

import pytest

from dice.rollout import Attempt, Rollout
from dice.types import (
    Candidate,
    Completion,
    Problem,
    Prompt,
    Reward,
    Runtime,
    Timing,
    Verdict,
    VerdictKind,
)


def attempt(name, us=None, kind=VerdictKind.CORRECT, refused=None):
    timing = None
    if us is not None:
        runtime = Runtime(median_us=us, p10_us=us, p90_us=us, clock_us=us, calls=9, batches=9)
        timing = Timing(
            runtime=runtime,
            baselines={},
            speedups=(),
            refused=refused,
            gbps=1.0,
            tflops=0.0,
            peak_gbps=1.0,
            peak_tflops=1.0,
            gpu="a GPU",
        )
    completion = Completion(
        prompt_ids=(1,),
        token_ids=(2,),
        steps=(0,),
        logprobs=(0.0,),
        text="",
        finish_reason="stop",
        forwards=1,
        seed=0,
    )
    return Attempt(
        candidate=Candidate(problem="p", code=name, name=name),
        completion=completion,
        verdict=Verdict(kind=kind, timing=timing),
        reward=Reward(value=1.0, rule="correct"),
    )


@pytest.mark.parametrize(
    ("attempts", "best"),
    [
        ([attempt("wrong", kind=VerdictKind.WRONG), attempt("a"), attempt("b")], "a"),
        ([attempt("slow", 9.0), attempt("fast", 3.0), attempt("fast too", 3.0)], "fast"),
        ([attempt("untimed"), attempt("timed", 9.0)], "timed"),
        ([attempt("too good", 0.1, refused="clocks"), attempt("timed", 9.0)], "timed"),
        ([attempt("too good", 0.1, refused="clocks"), attempt("untimed")], "too good"),
        ([attempt("wrong", 0.1, kind=VerdictKind.WRONG)], None),
        ([], None),
    ],
)
def test_the_fastest_correct_attempt_is_kept_else_the_first(attempts, best):
    problem = Problem(name="p", code="")
    prompt = Prompt(problem="p", template="nano", text="")
    found = Rollout(problem=problem, prompt=prompt, attempts=tuple(attempts)).best
    assert (found.candidate.name if found else None) == best
