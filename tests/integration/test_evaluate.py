"""`dice eval` as a user runs it, on two small problems."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.integration.test_main_job import EXAMPLE, dice

INTERRUPTIBLE = """
import signal
signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background jobs ignore it
from dice.cli.main import main
main()
"""
PROBLEMS = {1: EXAMPLE.read_text(), 2: EXAMPLE.with_name("row_softmax.py").read_text()}


@pytest.fixture(scope="module")
def dataset(tmp_path_factory) -> Path:
    path = tmp_path_factory.mktemp("data") / "problems.jsonl"
    rows = [
        {"level": 1, "problem_id": n, "name": f"{n}_Example", "code": code}
        for n, code in PROBLEMS.items()
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="module")
def interrupted(dataset, tmp_path_factory) -> Path:
    """A run that was stopped by Ctrl-C after its first completion."""
    folder = tmp_path_factory.mktemp("evaluation")
    command = [
        *("eval", "kernelbench", "--dataset", str(dataset), "--levels", "1"),
        *("--workers", "1", "--rows", "1", "--out", "run"),
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", INTERRUPTIBLE, *command],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    log, deadline = folder / "run" / "log.jsonl", time.monotonic() + 120
    while time.monotonic() < deadline and not (log.exists() and log.stat().st_size):
        time.sleep(0.02)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 130, output
    assert "dice eval resume run" in output
    return folder


@pytest.fixture(scope="module")
def finished(interrupted) -> Path:
    before = (interrupted / "run" / "log.jsonl").read_text()
    result = dice("eval", "resume", "run", "--workers", "1", cwd=interrupted)
    assert result.returncode == 0, result.stdout + result.stderr
    assert "Exec" in result.stdout
    assert max(map(len, result.stdout.splitlines())) <= 80
    after = (interrupted / "run" / "log.jsonl").read_text()
    assert after.startswith(before)
    return interrupted


def test_an_interrupted_run_is_finished_without_repeating_anything(finished):
    lines = [json.loads(line) for line in (finished / "run" / "log.jsonl").read_text().splitlines()]
    done = [(line["event"], line["problem_id"]) for line in lines]
    assert sorted(done) == [
        ("generation", 1),
        ("generation", 2),
        ("verdict", 1),
        ("verdict", 2),
    ]
    assert len(json.loads((finished / "run" / "run.json").read_text())["provenance"]) == 2


def test_a_run_leaves_its_numbers_in_every_form(finished):
    run = finished / "run"
    summary = json.loads((run / "summary.json").read_text())
    [level] = summary["levels"]
    verdicts = json.loads((run / "eval_results.json").read_text())
    right = sum(row["correctness"] for rows in verdicts.values() for row in rows)
    assert level["filtered"]["exec"]["value"] == right / 2
    assert right >= 1  # nano solves both; one may fail on another machine's rounding
    assert level["filtered"]["fast"] == {}
    assert (run / "level_1_problem_2_sample_0_kernel.py").read_text()
    assert "<html" in (run / "report.html").read_text()
    assert "Exec" in (run / "report.md").read_text()


def test_scoring_runs_nothing_and_takes_another_attribution(finished, tmp_path):
    policy = tmp_path / "strict.toml"
    policy.write_text('[attribution]\ncustom = "no_custom_kernel"\nmixed = "no_custom_kernel"\n')
    again = ("eval", "score", "run", "--json", "--out", tmp_path / "scored")
    result = dice(*again, "--policy", policy, cwd=finished)
    assert result.returncode == 0, result.stderr
    [level] = json.loads(result.stdout)["levels"]
    assert level["filtered"]["exec"]["value"] == 0.0
    policy.write_text("[tolerance]\nrelative = 0.1\n")
    result = dice(*again, "--policy", policy, cwd=finished)
    assert result.returncode == 2
    assert "judged again" in result.stderr


def test_a_run_is_imported_as_one_of_kernelbenchs(finished, dataset):
    """Its candidates and results are in KernelBench's format."""
    command = ("eval", "import", "run", "--dataset", dataset, "--out", "again")
    result = dice(*command, cwd=finished)
    assert result.returncode == 0, result.stderr
    result = dice("eval", "score", "--upstream", "--json", "again", cwd=finished)
    assert result.returncode == 0, result.stderr
    [level] = json.loads(result.stdout)["levels"]
    [own] = json.loads((finished / "run" / "summary.json").read_text())["levels"]
    assert level["filtered"]["exec"] == own["filtered"]["exec"]


def test_a_run_does_not_differ_from_itself(finished, tmp_path):
    result = dice("eval", "compare", "run", "run", "--markdown", tmp_path / "c.md", cwd=finished)
    assert result.returncode == 0, result.stderr
    assert "0/0" in result.stdout
    assert "not compared: fast_1" in result.stdout
    assert "Exec" in (tmp_path / "c.md").read_text()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("kernelbench", "--levels", "9", "--out", "x"), "no level 9"),
        (("kernelbench", "--problems", "77", "--levels", "1", "--out", "x"), "no problem 77"),
        (("kernelbench", "--levels", "1", "--out", "run"), "dice eval resume"),
        (("resume", "nowhere"), "no run.json"),
        (("score", "run", "--thresholds", "x"), "write numbers"),
    ],
)
def test_bad_input_exits_with_2_and_says_what_to_do(finished, dataset, options, message):
    extra = ("--dataset", dataset) if options[0] == "kernelbench" else ()
    result = dice("eval", *options, *extra, cwd=finished)
    assert result.returncode == 2, result.stdout
    assert message in " ".join(result.stderr.split())
    assert not (finished / "x").exists()
