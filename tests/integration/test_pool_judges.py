"""The pool with real judges: verdicts arrive whole, and a worker needs little memory of its own."""

from pathlib import Path

import pytest

from dice.errors import ToolchainError
from dice.problems import load_problem
from dice.types import Candidate
from dice.verify import Job, Policy, Pool

ADVERSARIAL = Path(__file__).parents[1] / "adversarial"
LIMIT_MIB = 2048


def job(file):
    problem = load_problem(ADVERSARIAL / "problems" / "row_sum.py")
    code = (ADVERSARIAL / "candidates" / file).read_text()
    candidate = Candidate(problem=problem.name, code=code, name=file)
    return Job(problem=problem, candidate=candidate, id=file)


def peak_mib(pid):
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError(f"/proc/{pid}/status has no VmHWM")


def test_verdicts_and_memory_of_a_worker():
    try:
        pool = Pool(1, policy=Policy(seed=3), backend="simt")
    except ToolchainError as error:
        pytest.skip(str(error))
    with pool:
        files = ["honest/row_sum.py", "honest/row_sum_warp.py", "exploits/syntax_error.txt"]
        kinds = {one.job.id: one.verdict.kind for one in pool.map(map(job, files))}
        (worker,) = pool.pids()
        below = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
        peaks = [peak_mib(pid) for pid in (worker, *below)]
    assert kinds == {files[0]: "correct", files[1]: "correct", files[2]: "compile_error"}
    assert len(peaks) == 2, "the worker and its warm parent"
    # both, at their highest, with every library page counted twice
    assert 100 < sum(peaks) < LIMIT_MIB
