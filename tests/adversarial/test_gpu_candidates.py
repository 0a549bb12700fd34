"""Candidates that only a GPU can tell, on a GPU: their verdicts, and that none of them gains time."""

import pytest

from dice.verify import Judge, Policy
from tests.adversarial.court import HERE, Court, Expectation, files

pytestmark = pytest.mark.gpu

FILES = files("gpu_candidates", part=0, parts=1)


@pytest.fixture(scope="module")
def gpu_court():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    with Judge(Policy(call_s=10.0), backend="cuda") as judge:
        court = Court(judge)
        yield court
    print(f"\non a GPU: {court.summary()}")


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_candidate_gets_its_verdict_on_a_gpu(gpu_court, file):
    gpu_court.try_file(file)


TIMED = [file for file in FILES if Expectation.of(file).timing is not None]
NO_GAIN = 0.8
"""Of the plain kernel's time: what is faster than this has gained by cheating."""


@pytest.fixture(scope="module")
def timing_court():
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU")
    with Judge(Policy(call_s=10.0), backend="cuda", timing=True) as judge:
        court = Court(judge)
        plain = court.rule(HERE / "candidates" / "honest" / "plain.py", "scale_bias")
        assert plain.timing is not None, plain
        assert plain.timing.refused is None, plain.timing.refused
        yield court, plain.timing.runtime.median_us


@pytest.mark.parametrize("file", TIMED, ids=lambda file: file.stem)
def test_no_exploit_gains_time_on_a_gpu(timing_court, file):
    court, plain_us = timing_court
    expected = Expectation.of(file)
    assert expected.timing == "no faster than plain"
    verdict = court.rule(file, expected.problem)
    if verdict.correct and verdict.timing is not None and verdict.timing.refused is None:
        assert verdict.timing.runtime.median_us > NO_GAIN * plain_us, verdict.timing
