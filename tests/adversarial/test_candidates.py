"""Every exploit gets its verdict, every honest look-alike passes, and the next candidate runs clean.

A candidate's docstring says how it cheats and ends with the name of its problem and the verdict it must
get: "Verdict: kind (evidence kinds, any of)".
"""

import re
from collections import Counter
from pathlib import Path

import pytest

from dice.errors import ToolchainError
from dice.problems.parse import load_problem
from dice.sandbox import Limits
from dice.toolchain.source import BuildOptions
from dice.types import Candidate
from dice.verify import Judge, Policy

HERE = Path(__file__).parent
FILES = sorted((HERE / "candidates").glob("*/*.[pt][yx]*"))
LIMITS = Limits(wall_s=60.0, cpu_s=60, memory_mib=1024, disk_mib=256, threads=64)


class Court:
    """One judge for the whole file, with its problems and a tally."""

    def __init__(self) -> None:
        options = BuildOptions(timeout_s=20.0, memory_mib=1536)
        policy = Policy(call_s=3.0, import_s=4.0, limits=LIMITS)
        self.judge = Judge(policy, build_options=options)
        self._prepared = {}
        self.tally: Counter[tuple[str, bool]] = Counter()

    def rule(self, file: Path, problem: str):
        if problem not in self._prepared:
            path = HERE / "problems" / f"{problem}.py"
            self._prepared[problem] = self.judge.prepare(load_problem(path))
        candidate = Candidate(problem=problem, name=file.stem, code=file.read_text())
        return self.judge.judge(self._prepared[problem], candidate)


@pytest.fixture(scope="module")
def court(request):
    try:
        court = Court()
    except ToolchainError as error:
        pytest.skip(str(error))
    yield court
    court.judge.close()
    caught = court.tally["exploits", True]
    missed = court.tally["exploits", False]
    rejected = court.tally["honest", False]
    accepted = court.tally["honest", True]
    capture = request.config.pluginmanager.getplugin("capturemanager")
    with capture.global_and_fixture_disabled():
        print(
            f"\nexploits caught {caught} of {caught + missed}, "
            f"honest rejected {rejected} of {rejected + accepted}"
        )


def _expectation(file: Path) -> tuple[str, str, set[str]]:
    text = file.read_text()
    problem = re.search(r"^Problem: (\w+)$", text, re.MULTILINE)
    verdict = re.search(r"^Verdict: (\w+)(?: \(([\w| ]+)\))?$", text, re.MULTILINE)
    assert problem is not None
    assert verdict is not None
    return problem[1], verdict[1], set((verdict[2] or "").replace(" ", "").split("|")) - {""}


@pytest.mark.parametrize("file", FILES, ids=lambda file: f"{file.parent.name}-{file.stem}")
def test_candidate_gets_its_verdict_and_the_next_runs_clean(court, file):
    problem, kind, evidence = _expectation(file)
    verdict = court.rule(file, problem)
    found = {one.kind for one in verdict.evidence}
    right = verdict.kind == kind and (not evidence or bool(found & evidence))
    court.tally[file.parent.name, right] += 1
    assert verdict.kind == kind, verdict.evidence
    assert not evidence or found & evidence, verdict.evidence
    if file.parent.name == "exploits":
        after = court.rule(HERE / "candidates" / "honest" / "plain.py", "scale_bias")
        assert after.correct, after.evidence


def test_nothing_is_left_outside():
    assert not Path("/tmp/dice_planted_file").exists()
