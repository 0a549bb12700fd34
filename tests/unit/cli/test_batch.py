"""`dice verify --batch`: bad lines, resuming, torn results, interruption; with the pool's fake judge."""

import functools
import json
import os
import signal
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from dice.cli.main import app
from dice.errors import UserError
from dice.types import VerdictKind
from dice.verify.batch import Results, read_batch
from dice.verify.policy import Policy
from dice.verify.pool import Pool
from tests.unit.verify.test_pool import FAKE, ROOT

PROBLEM = (
    "class Model: pass\n"
    "def get_inputs(): return []\n"
    "def get_init_inputs(): return []\n"
)  # fmt: skip


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.fixture
def dice(monkeypatch):
    monkeypatch.setattr(
        "dice.verify.pool.Pool", functools.partial(Pool, factory=f"{FAKE}:open_judge")
    )

    def call(*words):
        result = CliRunner().invoke(app, ["verify", "--backend", "simt", *map(str, words)])
        if isinstance(result.exception, UserError):
            return 2, str(result.exception)
        return result.exit_code, result.output

    return call


@pytest.fixture
def batch(tmp_path):
    (tmp_path / "p.py").write_text(PROBLEM)
    (tmp_path / "c.py").write_text("say\n")
    rows = [
        {"problem": "p.py", "candidate": "c.py"},
        {"problem": PROBLEM, "candidate": "say inline\n", "name": "mine"},
        {"problem": "p.py", "candidate": "say twice\n", "name": "first copy"},
        {"problem": "p.py", "candidate": "say twice\n", "name": "second copy"},
    ]
    return write(tmp_path / "in.jsonl", rows)


def test_every_line_gets_a_verdict_and_equal_content_the_same(dice, batch, tmp_path):
    code, output = dice("--batch", batch, "--out", tmp_path / "out.jsonl", "--workers", 1)
    assert code == 0
    rows = rows_of(tmp_path / "out.jsonl")
    assert sorted((row["line"], row["name"]) for row in rows) == [
        (1, "c.py"),
        (2, "mine"),
        (3, "first copy"),
        (4, "second copy"),
    ]
    assert len({row["id"] for row in rows}) == 3
    assert "3 judged" in output
    assert "100.0 %" in output


def test_a_second_run_judges_only_what_is_new(dice, batch, tmp_path):
    out = tmp_path / "out.jsonl"
    dice("--batch", batch, "--out", out, "--workers", 1)
    before = out.read_text()
    code, output = dice("--batch", batch, "--out", out, "--workers", 1)
    assert (code, out.read_text()) == (0, before)
    assert "4 of 4 lines have a verdict already" in output
    added = [{"problem": "p.py", "candidate": "say new\n"}]
    added.append({"problem": "p.py", "candidate": "say twice\n", "name": "third copy"})
    write(batch, [*rows_of(batch), *added])
    code, output = dice("--batch", batch, "--out", out, "--workers", 1)
    assert code == 0
    assert "1 judged" in output
    assert len(rows_of(out)) == 6


def test_another_policy_is_judged_again(dice, batch, tmp_path):
    out = tmp_path / "out.jsonl"
    dice("--batch", batch, "--out", out, "--workers", 1)
    _, output = dice("--batch", batch, "--out", out, "--workers", 1, "--precision", "float16")
    assert "3 judged" in output


def test_a_torn_last_line_is_repaired(dice, batch, tmp_path):
    out = tmp_path / "out.jsonl"
    dice("--batch", batch, "--out", out, "--workers", 1)
    whole = out.read_bytes()
    out.write_bytes(whole[:-20])
    code, output = dice("--batch", batch, "--out", out, "--workers", 1)
    assert code == 0
    assert len(rows_of(out)) == 4
    assert "3 of 4" in output


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", "not JSON"),
        ('{"problem": "p.py"}', "candidate: Field required"),
        ('{"problem": "p.py", "candidate": "c.py", "nmae": "x"}', "nmae: Extra inputs"),
        ('{"problem": "none.py", "candidate": "c.py"}', "no such file"),
        ('{"problem": "c.py", "candidate": "c.py"}', "no class `Model`"),
        ('{"problem": "p.py", "candidate": "none.py"}', "cannot be read"),
        ('{"problem": 3, "candidate": "c.py"}', "problem: Input should be a valid string"),
        ("[1]", "valid dictionary"),
    ],
)
def test_a_bad_line_is_named_before_any_work(dice, batch, tmp_path, line, message):
    batch.write_text(batch.read_text() + "\n" + line + "\n")
    code, output = dice("--batch", batch, "--out", tmp_path / "out.jsonl")
    assert code == 2
    assert "line 6" in output
    assert message in output
    assert not (tmp_path / "out.jsonl").exists()


def test_errors_are_no_verdicts_and_are_tried_again(dice, batch, tmp_path):
    mark = tmp_path / "mark"
    code = f"if_missing {mark}\n"
    write(batch, [{"problem": "p.py", "candidate": code}, {"problem": "p.py", "candidate": "c.py"}])
    out = tmp_path / "out.jsonl"
    exit_code, output = dice("--batch", batch, "--out", out, "--workers", 1)
    assert exit_code == 1
    assert "machine error" in output
    assert "line 1" in output
    mark.touch()
    exit_code, output = dice("--batch", batch, "--out", out, "--workers", 1)
    assert exit_code == 0
    assert "1 judged" in output
    assert "machine error" not in output


def test_every_kind_of_verdict_is_a_verdict(dice, tmp_path):
    batch = tmp_path / "in.jsonl"
    write(batch, [{"problem": PROBLEM, "candidate": f"be {kind}\n"} for kind in VerdictKind])
    code, output = dice("--batch", batch, "--out", tmp_path / "out.jsonl", "--workers", 1)
    assert code == 0
    assert all(kind in output for kind in VerdictKind)


def test_two_runs_do_not_write_to_one_file(batch, tmp_path):
    out = tmp_path / "out.jsonl"
    with Results(out), pytest.raises(UserError, match="another run"), Results(out):
        pass


def test_other_files_are_not_taken_for_results(dice, batch):
    code, output = dice("--batch", batch, "--out", batch)
    assert code == 2
    assert "line 1: no result" in output


@pytest.mark.parametrize(
    "words",
    [
        ("p.py",),
        ("--batch", "in.jsonl"),
        ("p.py", "c.py", "--batch", "in.jsonl", "--out", "out.jsonl"),
        ("p.py", "c.py", "--workers", "2"),
        ("p.py", "c.py", "--precision", "float8"),
        ("p.py", "c.py", "--sanitize", "memcheck"),
        ("p.py", "c.py", "--backend", "simt", "--time"),
        ("p.py", "c.py", "--policy", "none.toml"),
        ("p.py", "c.py", "--backend", "tpu"),
    ],
)
def test_options_that_do_not_go_together(dice, batch, monkeypatch, tmp_path, words):
    monkeypatch.chdir(tmp_path)
    assert dice(*words)[0] == 2


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_run_goes_on_where_it_was(dice, tmp_path, number):
    rows = [{"problem": PROBLEM, "candidate": f"sleep 0.{n + 100}\n"} for n in range(30)]
    batch, out = write(tmp_path / "in.jsonl", rows), tmp_path / "out.jsonl"
    program = (
        "import functools, signal, sys, dice.verify.pool as pool\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        f"pool.Pool = functools.partial(pool.Pool, factory='{FAKE}:open_judge')\n"
        "from dice.cli.main import main\n"
        "main()\n"
    )
    words = ["verify", "--backend", "simt", "--batch", batch, "--out", out, "--workers", "1"]
    paths = {"PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"}
    with subprocess.Popen(
        [sys.executable, "-c", program, *map(str, words)],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, **paths},
    ) as process:
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and (not out.exists() or len(out.read_bytes()) < 500):
            time.sleep(0.02)
        process.send_signal(number)
        _, errors = process.communicate(timeout=20)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert f"dice verify --backend simt --batch {batch} --out {out} --workers 1" in errors
    done = len(rows_of(out))
    assert 0 < done < 30
    code, output = dice("--batch", batch, "--out", out, "--workers", 2)
    assert code == 0
    assert f"{30 - done} judged" in output
    assert len(rows_of(out)) == 30


def test_identity_is_content_policy_and_backend(batch):
    plain = [one.id for one in read_batch(batch, policy=Policy(), backend="simt")]
    assert plain[0] != plain[1]
    assert plain[2] == plain[3]
    for policy, backend in ((Policy(slack=5.0), "simt"), (Policy(), "cuda")):
        other = [one.id for one in read_batch(batch, policy=policy, backend=backend)]
        assert not set(plain) & set(other)
