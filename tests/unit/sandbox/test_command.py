"""A sandboxed command: result, limits and what it cannot touch."""

import signal
import subprocess
import time
from pathlib import Path

import pytest

from dice.sandbox import Limits, features, run


def test_output_and_exit_code():
    result = run(["sh", "-c", "echo out; echo err >&2; exit 3"])
    assert (result.exit_code, result.stdout, result.stderr) == (3, "out\n", "err\n")


def test_death_by_signal():
    result = run(["sh", "-c", "kill -SEGV $$"])
    assert (result.exit_code, result.signal) == (None, signal.SIGSEGV)


def test_processor_time_is_limited():
    result = run(["sh", "-c", "while :; do :; done"], limits=Limits(cpu_s=1, wall_s=30))
    assert (result.limit, result.timed_out) == ("cpu", True)


def test_wall_clock_ends_background_processes_too():
    marker = "31415.9"
    started = time.monotonic()
    result = run(["sh", "-c", f"sleep {marker} & sleep {marker}"], limits=Limits(wall_s=0.5))
    assert result.limit == "wall"
    assert time.monotonic() - started < 10
    time.sleep(0.2)
    found = subprocess.run(["ps", "-eo", "args"], capture_output=True, text=True, check=True)
    assert f"sleep {marker}" not in found.stdout.splitlines()


def test_process_count_is_limited():
    script = "i=0; while [ $i -lt 60 ]; do sleep 20 & i=$((i+1)); done; sleep 20"
    result = run(["sh", "-c", script], limits=Limits(threads=16, wall_s=15))
    assert result.limit == "threads"


def test_memory_is_limited():
    result = run(["sh", "-c", "x=$(head -c 400000000 /dev/zero | tr '\\0' x); echo ${#x}"],
                 limits=Limits(memory_mib=128, wall_s=20))  # fmt: skip
    assert "400000000" not in result.stdout


def test_writes_go_only_where_allowed(tmp_path):
    if "landlock" in features().missing:
        pytest.skip("this machine has no landlock")
    allowed, forbidden = tmp_path / "a", tmp_path / "b"
    allowed.mkdir()
    forbidden.mkdir()
    script = f"echo x > {allowed}/f; echo x > {forbidden}/f"
    run(["sh", "-c", script], writable=[str(allowed)])
    assert (allowed / "f").read_text() == "x\n"
    assert not (forbidden / "f").exists()


def test_private_files_are_unreadable(tmp_path):
    if "landlock" in features().missing:
        pytest.skip("this machine has no landlock")
    (tmp_path / "secret").write_text("x")
    assert run(["cat", str(tmp_path / "secret")]).stdout == ""
    assert run(["cat", str(tmp_path / "secret")], readable=[str(tmp_path)]).stdout == "x"


def test_environment_is_clean_and_home_is_private(monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    result = run(["sh", "-c", "env; echo $HOME"])
    assert "SECRET_TOKEN" not in result.stdout
    assert not Path(result.stdout.splitlines()[-1]).exists()


def test_a_missing_program_is_an_exit_code():
    assert run(["no-such-program-anywhere"]).exit_code == 127
