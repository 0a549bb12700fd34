"""Locks of a GPU: checks share it, a timing has it alone, and the dead hold nothing."""

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dice.verify.slots import GpuSlots, visible_device


def in_thread(work):
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_checks_run_together(tmp_path):
    slots = GpuSlots("0", directory=tmp_path)
    both_inside = threading.Barrier(2, timeout=5)

    def check():
        with slots.checking():
            both_inside.wait()

    other = in_thread(check)
    check()
    other.join(5)
    assert not both_inside.broken


def test_a_timing_is_alone(tmp_path):
    slots = GpuSlots("0", directory=tmp_path)
    inside, worst = [], []

    def work(name, enter):
        for _ in range(20):
            with enter():
                inside.append(name)
                time.sleep(0.0005)
                worst.append(tuple(inside))
                inside.remove(name)

    threads = [in_thread(lambda: work("check", slots.checking)) for _ in range(3)]
    threads += [in_thread(lambda n=n: work(f"time{n}", slots.timing)) for n in range(2)]
    for thread in threads:
        thread.join(20)
    assert len(worst) == 100
    assert all(len(names) == 1 for names in worst if any("time" in name for name in names))
    assert max(len(names) for names in worst) > 1


def test_a_steady_stream_of_checks_does_not_starve_a_timing(tmp_path):
    slots, stop, timed = GpuSlots("0", directory=tmp_path), threading.Event(), threading.Event()

    def check():
        while not stop.is_set():
            with slots.checking():
                time.sleep(0.005)

    def measure():
        with slots.timing():
            timed.set()

    checks = [in_thread(check) for _ in range(4)]
    time.sleep(0.02)
    waiting = in_thread(measure)
    assert timed.wait(5)
    stop.set()
    for thread in (*checks, waiting):
        thread.join(5)


def test_devices_do_not_share_a_lock(tmp_path):
    with GpuSlots("0", directory=tmp_path).timing(), GpuSlots("1", directory=tmp_path).timing():
        pass


def test_a_killed_holder_holds_nothing(tmp_path):
    program = (
        "import sys, time\nfrom pathlib import Path\nfrom dice.verify.slots import GpuSlots\n"
        "with GpuSlots('0', directory=Path(sys.argv[1])).timing():\n"
        "    print('in', flush=True)\n    time.sleep(60)\n"
    )
    source = str(Path(__file__).parents[3] / "src")
    with subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": source},
    ) as holder:
        assert holder.stdout.readline() == b"in\n"
        entered = threading.Event()

        def check():
            with GpuSlots("0", directory=tmp_path).checking():
                entered.set()

        waiting = in_thread(check)
        assert not entered.wait(0.2)
        holder.kill()
        assert entered.wait(5)
        waiting.join(5)


@pytest.mark.parametrize(("value", "device"), [("", "0"), ("3,1", "3"), ("GPU-ab12", "GPU-ab12")])
def test_the_visible_device_is_the_first_one_named(monkeypatch, value, device):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", value)
    assert visible_device() == device


def test_a_turn_is_a_check_that_a_timing_keeps_out(tmp_path):
    slots, inside, order = GpuSlots("0", directory=tmp_path), threading.Event(), []

    def check():
        inside.wait(5)
        with slots.checking_in_turn():
            order.append("check")

    thread = in_thread(check)
    with slots.timing():
        inside.set()
        time.sleep(0.1)
        order.append("timing")
    thread.join(5)
    assert order == ["timing", "check"]


def test_only_so_many_have_a_turn(tmp_path):
    slots, inside, most = GpuSlots("0", directory=tmp_path), [], []

    def check():
        with slots.checking_in_turn(places=2):
            inside.append(1)
            most.append(len(inside))
            time.sleep(0.02)
            inside.pop()

    threads = [in_thread(check) for _ in range(6)]
    for thread in threads:
        thread.join(5)
    assert len(most) == 6
    assert max(most) == 2
