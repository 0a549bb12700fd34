"""A worker that is started ahead is one candidate's alone, and its failure is the machine's."""

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

from dice.errors import SandboxError
from dice.sandbox import Limits, Zygote
from dice.verify.standby import Standby

ROOT = Path(__file__).parents[3]
LIMITS = Limits(wall_s=20.0, memory_mib=256, disk_mib=64)
PROBE = "tests.unit.verify.standby_probe"


@pytest.fixture(scope="module")
def zygote():
    with Zygote(preload=(PROBE,), python_path=(str(ROOT),)) as zygote:
        yield zygote


def _standby(zygote, entry, beside=contextlib.nullcontext):
    return Standby(lambda: zygote.spawn(f"{PROBE}:{entry}", limits=LIMITS), beside)


def _gone(pid: int) -> bool:
    deadline = time.monotonic() + 5.0
    while time.monotonic() < deadline:
        if not Path(f"/proc/{pid}").exists():
            return True
        time.sleep(0.01)
    return False


def test_every_candidate_gets_a_process_and_a_folder_of_its_own(zygote):
    with contextlib.closing(_standby(zygote, "warm")) as standby:
        seen = []
        for _ in range(3):
            with standby.take() as child:
                pid = int((Path(child.directory) / "started").read_text())
                child.send({"read": "started"})
                assert child.receive(5.0) == {"pid": pid, "read": True}
                seen.append((pid, child.directory))
                assert child.finish().incidents == ()
        assert len({pid for pid, _ in seen}) == len({folder for _, folder in seen}) == 3
        assert all(_gone(pid) for pid, _ in seen)


def test_what_is_private_is_decided_when_it_is_taken(zygote, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("expected output")
    with contextlib.closing(_standby(zygote, "warm")) as standby, standby.take() as child:
        child.private = (str(tmp_path),)
        child.send({"read": str(secret)})
        answer = child.receive(5.0)
        assert answer is not None
        if "seccomp" in child.active:
            assert [one.kind for one in child.finish().incidents] == ["read_outside"]


def test_the_next_one_is_started_meanwhile(zygote):
    with contextlib.closing(_standby(zygote, "slow")) as standby:
        standby.take().close()
        time.sleep(0.8)
        started = time.monotonic()
        standby.take().close()
        assert time.monotonic() - started < 0.4


def test_starting_waits_for_its_turn(zygote):
    turn = threading.Lock()
    with turn:
        standby = _standby(zygote, "warm", lambda: turn)
        standby._begin()
        time.sleep(0.3)
        assert standby._thread.is_alive()
    standby.take().close()
    standby.close()


def test_a_worker_that_never_gets_warm_is_the_machines_fault(zygote):
    standby = _standby(zygote, "ends")
    with pytest.raises(SandboxError, match="no device"):
        standby.take()
    standby.close()


def test_closing_ends_the_one_that_waits(zygote):
    standby = _standby(zygote, "warm")
    with standby.take() as child:
        pid = int((Path(child.directory) / "started").read_text())
    standby.close()
    assert _gone(pid)
    assert os.listdir(zygote.root) == []
