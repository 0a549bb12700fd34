"""A small soak: verdicts as they must be, nothing left behind; and the watch itself notices leaks."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dice.errors import ToolchainError
from dice.toolchain.compiler import find_compiler

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
WATCH = """
import os, subprocess, sys
from pathlib import Path
import soak_watch
soak_watch.adopt_orphans()
own, name = Path(sys.argv[1]), sys.argv[2]
before = soak_watch.Outside.now()
subprocess.run(["sh", "-c", "sleep 60 &"], check=True)
(own / "forgotten").mkdir()
Path("/dev/shm", name).touch()
found = soak_watch.left_behind(before, own, set(), patience_s=0.2)
os.unlink(f"/dev/shm/{name}")
for pid in soak_watch.tree(os.getpid()):
    os.kill(pid, 9)
print("\\n".join(found))
"""


def run(words, **environment):
    path = os.pathsep.join([str(BENCHMARKS), *sys.path])
    environment = {**os.environ, "PYTHONPATH": path, "OMP_NUM_THREADS": "1", **environment}
    return subprocess.run(
        [sys.executable, *words], capture_output=True, text=True, timeout=300, env=environment
    )


def test_a_small_soak_loses_nothing_and_leaves_nothing(tmp_path):
    try:
        find_compiler()
    except ToolchainError as error:
        pytest.skip(str(error))
    out = tmp_path / "soak.json"
    words = [str(BENCHMARKS / "soak.py"), "--count", "10", "--workers", "2", "--out", str(out)]
    result = run(words)
    assert result.returncode == 0, result.stdout + result.stderr
    summary = json.loads(out.read_text())["summary"]
    assert (summary["jobs"], summary["verdicts"]) == (10, 10)
    assert (summary["hostile"], summary["hostile caught"]) == (1, 1)
    assert summary["complaints"] == []


@pytest.mark.skipif(not os.path.isdir("/dev/shm"), reason="no /dev/shm")
def test_the_watch_sees_processes_files_and_shared_memory(tmp_path):
    own = tmp_path / "own"
    own.mkdir()
    name = f"dice-test-{os.getpid()}"
    result = run(["-c", WATCH, str(own), name], DICE_CACHE=str(tmp_path / "cache"))
    assert result.returncode == 0, result.stderr
    found = result.stdout.splitlines()
    assert any("sleep 60" in line for line in found)
    assert any("forgotten" in line for line in found)
    assert f"shared memory {name} is left" in found
