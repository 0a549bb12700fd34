"""How verdicts are printed: narrow terminals, and what the tail of the first line says."""

import io

import pytest
from rich.console import Console

from dice.cli.report import print_notes, print_verdict
from dice.types import Evidence, Verdict, VerdictKind


def shown(verdict, width=40):
    console = Console(file=io.StringIO(), width=width, highlight=False)
    print_verdict(console, "f.py", verdict)
    print_notes(console, verdict.notes)
    return console.file.getvalue().splitlines()


def test_long_evidence_goes_on_below_its_beginning():
    words = " ".join(f"word{n}" for n in range(12))
    evidence = (Evidence(kind="x", message=f"{words}\nsecond"),)
    lines = shown(Verdict(kind=VerdictKind.WRONG, evidence=evidence, notes=(words,)))
    body = [line for line in lines if line.startswith(" ") and not line.startswith("  note")]
    assert " ".join(line.strip(" -") for line in body).startswith(words)
    assert all(len(line) <= 40 for line in lines)
    assert [line[:4] for line in body[:4]] == ["  - ", "    ", "    ", "    "]
    assert lines[-1].startswith(" " * 8 + "word")


@pytest.mark.parametrize(
    ("verdict", "tail"),
    [
        (Verdict(kind=VerdictKind.CORRECT, attribution="custom"), "made by its own kernels"),
        (Verdict(kind=VerdictKind.CORRECT, backend="cuda", nvcc="compiled"), "on a GPU"),
        (Verdict(kind=VerdictKind.CORRECT, nvcc="compiled", run_s=1.25), "ran in 1.2 s, nvcc"),
    ],
)
def test_the_first_line_says_where_the_ruling_comes_from(verdict, tail):
    assert tail in shown(verdict, width=100)[0]
