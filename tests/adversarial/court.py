"""Judges the candidate files and keeps the tally.

A candidate's docstring says how it cheats, or why it looks as if it did, and ends with the name of its
problem and the verdict it must get: "Verdict: kind (evidence kinds, any of)".
"""

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from dice.problems.parse import load_problem
from dice.types import Candidate, Verdict
from dice.verify import Judge

HERE = Path(__file__).parent
_HOSTILE = {"hack", "crashed", "timeout"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """What a candidate file says of itself."""

    problem: str
    kind: str
    evidence: frozenset[str]
    timing: str | None

    @classmethod
    def of(cls, file: Path) -> "Expectation":
        text = file.read_text()
        problem = re.search(r"^Problem: (\w+)$", text, re.MULTILINE)
        verdict = re.search(r"^Verdict: (\w+)(?: \(([\w| ]+)\))?$", text, re.MULTILINE)
        timing = re.search(r"^Timing: (.+)$", text, re.MULTILINE)
        assert problem is not None, file
        assert verdict is not None, file
        evidence = frozenset((verdict[2] or "").replace(" ", "").split("|")) - {""}
        return cls(
            problem=problem[1],
            kind=verdict[1],
            evidence=evidence,
            timing=None if timing is None else timing[1],
        )


def files(folder: str, part: int, parts: int) -> list[Path]:
    """Every `parts`-th candidate file of a folder, exploits and honest ones."""
    return sorted((HERE / folder).glob("*/*.[pt][yx]*"))[part::parts]


class Court:
    """One judge with its problems and a tally."""

    def __init__(self, judge: Judge) -> None:
        self.judge = judge
        self._prepared: dict[str, object] = {}
        self.tally: Counter[tuple[str, bool]] = Counter()

    def rule(self, file: Path, problem: str) -> Verdict:
        if problem not in self._prepared:
            path = HERE / "problems" / f"{problem}.py"
            self._prepared[problem] = self.judge.prepare(load_problem(path))
        candidate = Candidate(problem=problem, name=file.stem, code=file.read_text())
        return self.judge.judge(self._prepared[problem], candidate)

    def try_file(self, file: Path) -> None:
        """Judge one file, count it, and see that the next candidate runs clean after a hostile one."""
        expected = Expectation.of(file)
        verdict = self.rule(file, expected.problem)
        found = {one.kind for one in verdict.evidence}
        right = verdict.kind == expected.kind
        right = right and (not expected.evidence or bool(found & expected.evidence))
        self.tally[file.parent.name, right] += 1
        assert verdict.kind == expected.kind, verdict.evidence
        assert not expected.evidence or found & expected.evidence, verdict.evidence
        if verdict.kind in _HOSTILE:
            after = self.rule(HERE / "candidates" / "honest" / "plain.py", "scale_bias")
            assert after.correct, after.evidence

    def summary(self) -> str:
        caught, missed = self.tally["exploits", True], self.tally["exploits", False]
        accepted, rejected = self.tally["honest", True], self.tally["honest", False]
        return (
            f"exploits caught {caught} of {caught + missed}, "
            f"honest rejected {rejected} of {rejected + accepted}"
        )
