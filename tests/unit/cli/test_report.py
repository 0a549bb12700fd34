"""How verdicts are printed: narrow terminals, and what the tail of the first line says."""

import io
from dataclasses import replace

import pytest
from rich.console import Console

from dice.cli.report import print_notes, print_verdict
from dice.types import Evidence, Runtime, Speedup, Timing, Verdict, VerdictKind


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


def runtime(us):
    return Runtime(
        median_us=us, p10_us=0.9 * us, p90_us=1.2 * us, clock_us=us, calls=300, batches=9
    )


TIMING = Timing(
    runtime=runtime(12.34),
    baselines={"eager": runtime(30.0), "compile": runtime(1500.0)},
    speedups=(
        Speedup(over="eager", value=2.431, low=2.3, high=2.5, confidence=0.95),
        Speedup(over="compile", value=121.6, low=110.0, high=130.0, confidence=0.9),
    ),
    refused=None,
    gbps=1234.0,
    tflops=0.0,
    peak_gbps=4321.0,
    peak_tflops=50.0,
    gpu="a GPU",
)


def test_the_speed_is_told_with_its_uncertainty():
    text = "\n".join(shown(Verdict(kind=VerdictKind.CORRECT, timing=TIMING), width=200))
    assert "12.3 us a call (80% of 300 calls within 11.1 us to 14.8 us)" in text
    assert "2.43x PyTorch eager (30 us); 95% interval 2.30 to 2.50" in text
    assert "121.60x PyTorch with torch.compile (1.5 ms); 90% interval" in text
    assert "reaches 1234 of 4321 GB/s\n" in text + "\n"
    assert "does not count" not in text


def test_a_refused_time_says_that_it_does_not_count():
    refused = replace(TIMING, refused="faster than the memory", tflops=3.0)
    lines = shown(Verdict(kind=VerdictKind.CORRECT, timing=refused), width=79)
    assert any("this time does not count: faster than the memory" in line for line in lines)
    assert any("3.0 of 50.0 TFLOP/s" in line for line in lines)
    assert all(len(line) <= 79 for line in lines)
