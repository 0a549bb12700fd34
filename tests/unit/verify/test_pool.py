"""The pool's promises, with a judge that does what candidates say: one outcome a job, whatever dies."""

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dice.errors import ProblemError, SandboxError, ToolchainError
from dice.types import Candidate, Problem
from dice.verify.policy import Policy
from dice.verify.pool import Job, Pool
from dice.verify.pool_queue import PATIENCE, JobQueue, Ticket

FAKE = "tests.unit.verify.fake_judge"
ROOT = Path(__file__).parents[3]


def job(code, problem="p", name=""):
    return Job(
        problem=Problem(name=problem, code=f"code of {problem}"),
        candidate=Candidate(problem=problem, code=code),
        id=name,
    )


def fake_pool(workers, **options):
    return Pool(workers, backend="simt", factory=f"{FAKE}:open_judge", **options)


def seen(verdict):
    pid, prepared, gpu = verdict.evidence[0].message.split()
    return int(pid), int(prepared), gpu


@pytest.fixture(scope="module")
def pool():
    with fake_pool(2, max_pending=3) as pool:
        yield pool


def test_every_job_has_one_verdict_its_own(pool):
    jobs = [job(f"say {n}", problem=f"p{n % 3}", name=str(n)) for n in range(40)]
    outcomes = list(pool.map(jobs))
    assert sorted(int(one.job.id) for one in outcomes) == list(range(40))
    assert all(one.verdict.notes == (f"say {one.job.id}",) for one in outcomes)
    assert {seen(one.verdict)[0] for one in outcomes} == set(pool.pids())


def test_outcomes_come_in_order_of_completion(pool):
    jobs = [job("sleep 0.4", name="slow"), *(job("say", name="quick") for _ in range(3))]
    assert [one.job.id for one in pool.map(jobs)][-1] == "slow"


def test_jobs_are_read_only_as_far_as_there_is_room(pool):
    read = []

    def endless():
        for n in range(1000):
            read.append(n)
            yield job("sleep 0.01", name=str(n))

    outcomes = pool.map(endless())
    for _ in range(10):
        next(outcomes)
    assert len(read) <= 10 + 3 + 2 + 2
    outcomes.close()


def test_a_problem_is_prepared_once_a_worker_at_most():
    with fake_pool(2) as pool:
        jobs = [job("sleep 0.01", problem=f"p{n % 4}") for n in range(40)]
        most = {}
        for one in pool.map(jobs):
            pid, prepared, _ = seen(one.verdict)
            most[pid] = max(most.get(pid, 0), prepared)
    # four problems over two workers; one that ran out of its own may have helped the other
    assert sum(most.values()) <= 6


def test_a_problem_that_cannot_be_used_is_an_error_of_its_own(pool):
    bad = Job(problem=Problem(name="b", code="bad"), candidate=Candidate(problem="b", code=""))
    first, second = pool.submit(bad), pool.submit(job("say"))
    assert isinstance(first.exception(30), ProblemError)
    assert second.result(30).correct


def test_a_worker_that_dies_is_replaced_and_its_job_tried_again(pool, tmp_path):
    before = set(pool.pids())
    future = pool.submit(job(f"die_once {tmp_path / 'mark'}"))
    assert future.result(30).correct
    assert set(pool.pids()) != before


@pytest.mark.parametrize("code", ["die", "raise the disk is full"])
def test_a_job_that_takes_two_workers_with_it_is_no_verdict(pool, code):
    error = pool.submit(job(code)).exception(60)
    assert isinstance(error, SandboxError)
    assert "no verdict" in str(error)
    assert pool.submit(job("say")).result(30).correct


def test_a_worker_killed_from_outside_costs_nothing(pool):
    futures = [pool.submit(job("sleep 0.2", name=str(n))) for n in range(3)]
    time.sleep(0.1)
    os.kill(pool.pids()[0], signal.SIGKILL)
    assert all(future.result(30).correct for future in futures)


def test_a_judge_that_hangs_is_replaced():
    with fake_pool(1, job_timeout_s=0.3) as pool:
        assert isinstance(pool.submit(job("sleep 60")).exception(30), SandboxError)
        assert pool.submit(job("say")).result(30).correct


def test_gpus_are_dealt_out_in_turn(monkeypatch):
    monkeypatch.setattr("dice.verify.backends.gpus", lambda: ("0", "1"))
    with Pool(3, backend="cuda", factory=f"{FAKE}:open_judge") as pool:
        outcomes = list(pool.map([job("sleep 0.3", problem=str(n)) for n in range(3)]))
    assert sorted(seen(one.verdict)[2] for one in outcomes) == ["0", "0", "1"]


def test_progress_and_policy_reach_the_judge():
    heard = []
    with fake_pool(1, policy=Policy(seed=7), on_progress=heard.append):
        pass
    assert heard == ["opening simt with seed 7"]


def test_a_machine_that_cannot_judge_says_so_at_once():
    with pytest.raises(ToolchainError, match="g\\+\\+"):
        Pool(2, backend="simt", factory=f"{FAKE}:cannot_open")
    with pytest.raises(SandboxError, match="did not start"):
        Pool(2, backend="simt", factory=f"{FAKE}:dies_at_once")


def test_leaving_on_an_error_ends_everything_at_once():
    started = time.monotonic()
    pool = fake_pool(2)
    running = pool.submit(job("sleep 60"))
    time.sleep(0.2)
    pids, directory = pool.pids(), pool._directory
    pool.__exit__(KeyError, KeyError(), None)
    assert time.monotonic() - started < 15
    assert isinstance(running.exception(1), SandboxError)
    assert not directory.exists()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    with pytest.raises(SandboxError):
        pool.submit(job("say"))


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_pools_process_ends(tmp_path, number):
    program = (
        "from tests.unit.verify.test_pool import fake_pool, job\n"
        "import signal, time\n"
        "if __name__ == '__main__':\n"
        "    signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "    with fake_pool(2) as pool:\n"
        "        futures = [pool.submit(job('sleep 60', problem=str(n))) for n in range(2)]\n"
        "        time.sleep(1.5)\n"
        "        print(*pool.pids(), flush=True)\n"
        "        time.sleep(60)\n"
    )
    environment = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}",
    }
    with subprocess.Popen(
        [sys.executable, "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        cwd=ROOT,
    ) as process:
        pids = [int(word) for word in process.stdout.readline().split()]
        process.send_signal(number)
        process.wait(20)
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        alive = [pid for pid in pids if Path(f"/proc/{pid}").exists()]
        if not alive and not list(tmp_path.iterdir()):
            break
        time.sleep(0.05)
    assert len(pids) == 2
    assert alive == []
    assert list(tmp_path.iterdir()) == []


# -- the queue -------------------------------------------------------------------------------------


def fill(queue, keys):
    for key in keys:
        queue.put(Ticket(key=key, job=None, future=None))


def test_a_worker_prefers_its_own_problems_then_free_ones():
    queue = JobQueue(limit=100)
    fill(queue, "abab")
    assert queue.take(0).key == "a"
    assert queue.take(1).key == "b"
    assert [queue.take(0).key, queue.take(1).key] == ["a", "b"]


def test_a_worker_without_work_helps_where_most_waits():
    queue = JobQueue(limit=100)
    fill(queue, "abbb")
    queue.holds(0, ["a", "b"])
    assert queue.take(1).key == "b"


def test_nobody_waits_forever_behind_a_popular_problem():
    queue = JobQueue(limit=1000)
    queue.holds(0, ["popular"])
    fill(queue, ["popular", "lonely"])
    taken = []
    for _ in range(PATIENCE + 10):
        fill(queue, ["popular"])
        taken.append(queue.take(0).key)
    assert "lonely" in taken


def test_a_full_queue_makes_its_caller_wait():
    queue = JobQueue(limit=1)
    fill(queue, "a")
    assert not queue.put(Ticket(key="b", job=None, future=None), timeout_s=0.05)
    taker = threading.Timer(0.05, lambda: queue.take(0))
    taker.start()
    assert queue.put(Ticket(key="b", job=None, future=None), timeout_s=5)
    taker.join()
