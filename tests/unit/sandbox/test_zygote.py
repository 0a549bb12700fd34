"""A confined worker: what it can do, what is refused and recorded, and how limits end it.

Where the kernel lacks a protection, its test is skipped and says so.
"""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dice.errors import SandboxError
from dice.sandbox import Limits, Zygote, features

ROOT = Path(__file__).parents[3]
LIMITS = Limits(wall_s=20.0, memory_mib=256, disk_mib=64)


@pytest.fixture(scope="module")
def zygote():
    with Zygote(preload=("tests.unit.sandbox.probe",), python_path=(str(ROOT),)) as zygote:
        yield zygote


@pytest.fixture(scope="module")
def needs():
    missing = features().missing

    def check(*names):
        for name in names:
            if name in missing:
                pytest.skip(f"this machine has no {name}")

    return check


def _run(zygote, action, limits=LIMITS, timeout_s=5.0, **message):
    with zygote.spawn("tests.unit.sandbox.probe:main", limits=limits) as child:
        child.send({"do": action, **message})
        answer = child.receive(timeout_s)
        return answer, child.finish(), child.directory


def test_a_worker_answers_and_ends(zygote):
    answer, result, directory = _run(zygote, "hello")
    assert answer == {"answer": directory}
    assert result.ok
    assert result.incidents == ()
    assert not Path(directory).exists()


def test_exit_code_is_reported(zygote):
    answer, result, _ = _run(zygote, "exit", exit_code=7)
    assert answer is None
    assert result.exit_code == 7


def test_secrets_of_the_environment_do_not_arrive(zygote, monkeypatch):
    monkeypatch.setenv("SECRET_TOKEN", "x")
    with Zygote(preload=("tests.unit.sandbox.probe",), python_path=(str(ROOT),)) as fresh:
        answer, _, directory = _run(fresh, "environment")
    assert "SECRET_TOKEN" not in answer["answer"]
    assert answer["answer"]["HOME"] == directory


@pytest.mark.parametrize(
    ("action", "kind"),
    [("fork", "process"), ("exec", "exec"), ("socket", "network")],
)
def test_processes_programs_and_sockets_are_refused_and_recorded(zygote, needs, action, kind):
    needs("seccomp", "seccomp_record")
    answer, result, _ = _run(zygote, action)
    assert answer == {"error": "PermissionError"}
    assert [incident.kind for incident in result.incidents] == [kind]


def test_signals_and_tracing_are_refused_and_recorded(zygote, needs):
    needs("seccomp", "seccomp_record")
    _, result, _ = _run(zygote, "kill", pid=os.getpid())
    assert [incident.kind for incident in result.incidents] == ["signal"]
    answer, result, _ = _run(zygote, "ptrace", pid=os.getpid())
    assert answer == {"answer": -1}
    assert [incident.kind for incident in result.incidents] == ["memory_snooping"]


def test_writing_outside_is_refused_and_recorded(zygote, needs, tmp_path):
    needs("landlock")
    target = tmp_path / "planted"
    answer, result, _ = _run(zygote, "touch", path=str(target))
    assert answer == {"error": "PermissionError"}
    assert not target.exists()
    needs("seccomp_record")
    assert [(one.kind, one.detail) for one in result.incidents] == [("write_outside", str(target))]


def test_links_do_not_lead_outside(zygote, needs, tmp_path):
    needs("landlock", "seccomp_record")
    outside = tmp_path / "file"
    outside.write_text("kept")
    with zygote.spawn("tests.unit.sandbox.probe:main", limits=LIMITS) as child:
        (Path(child.directory) / "link").symlink_to(outside)
        child.send({"do": "touch", "path": "link"})
        assert child.receive(5.0) == {"error": "PermissionError"}
        incidents = child.finish().incidents
    assert [one.detail for one in incidents] == [str(outside)]
    assert outside.read_text() == "kept"


def test_its_own_directory_is_writable(zygote):
    answer, result, _ = _run(zygote, "touch", path="mine")
    assert answer == {"answer": None}
    assert result.incidents == ()


def test_files_of_the_user_are_unreadable(zygote, needs, tmp_path):
    needs("landlock")
    secret = tmp_path / "secret"
    secret.write_text("x")
    assert _run(zygote, "read", path=str(secret))[0] == {"error": "PermissionError"}


def test_memory_of_others_is_unreadable_and_the_attempt_recorded(zygote, needs):
    needs("seccomp_record")
    answer, result, _ = _run(zygote, "read", path=f"/proc/{os.getpid()}/environ")
    assert answer == {"error": "PermissionError"}
    assert [incident.kind for incident in result.incidents] == ["memory_snooping"]


def test_memory_limit(zygote):
    assert _run(zygote, "allocate", mib=64)[0] == {"answer": 64 << 20}
    assert _run(zygote, "allocate", mib=512)[0] == {"error": "MemoryError"}


def test_thread_limit(zygote):
    limits = Limits(memory_mib=4096, threads=8)
    answer, result, _ = _run(zygote, "threads", limits=limits, count=20)
    assert answer is None
    assert result.limit == "threads"


def test_wall_clock_limit(zygote):
    answer, result, _ = _run(zygote, "spin", timeout_s=0.5)
    assert answer is None
    assert (result.limit, result.timed_out) == ("wall", True)
    assert result.wall_s < 5.0


def test_processor_time_limit(zygote):
    _, result, _ = _run(zygote, "spin", limits=Limits(cpu_s=1), timeout_s=30.0)
    assert (result.limit, result.timed_out) == ("cpu", True)


def test_processor_time_of_one_request(zygote):
    with zygote.spawn("tests.unit.sandbox.probe:main", limits=LIMITS) as child:
        child.send({"do": "spin"})
        assert child.receive(60.0, cpu_s=0.3) is None
        assert child.finish().limit == "cpu"


def test_a_sleeper_meets_the_wall_clock(zygote):
    with zygote.spawn("tests.unit.sandbox.probe:main", limits=LIMITS) as child:
        child.send({"do": "sleep"})
        assert child.receive(0.5, cpu_s=5.0) is None
        assert child.finish().limit == "wall"


def test_disk_limit(zygote):
    _, result, _ = _run(zygote, "fill", timeout_s=30.0)
    assert result.limit == "disk"


def test_open_file_limit(zygote):
    assert _run(zygote, "open_many", limits=Limits(open_files=64), count=100)[0] == {
        "error": "OSError"
    }


def test_output_is_captured_and_capped(zygote):
    _, result, _ = _run(zygote, "print", limits=Limits(output_kib=1), count=5000)
    assert result.stdout == "x" * 1024


def test_a_child_that_is_left_is_ended(zygote):
    with zygote.spawn("tests.unit.sandbox.probe:main", limits=LIMITS) as child:
        child.send({"do": "spin"})
        pid = child._pid
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_nothing_is_left_when_the_supervising_process_is_killed(tmp_path):
    program = (
        "from dice.sandbox import Zygote, Limits\n"
        f"zygote = Zygote(preload=('tests.unit.sandbox.probe',), python_path=({str(ROOT)!r},))\n"
        "child = zygote.spawn('tests.unit.sandbox.probe:main', limits=Limits())\n"
        "child.send({'do': 'spin'})\n"
        "print(zygote.root, child._pid, flush=True)\n"
        "import os; os.kill(os.getpid(), 9)\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    root, pid = ended.stdout.split()
    deadline = time.monotonic() + 10
    while Path(root).exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not Path(root).exists()
    assert not Path(f"/proc/{pid}").exists()


def test_a_module_that_does_not_import_is_an_error_of_the_machine():
    with pytest.raises(SandboxError, match="no_such_module"):
        Zygote(preload=("no_such_module",))
