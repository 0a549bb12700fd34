"""The pool over a Ray cluster of two machines, both emulated here; one of them is lost half-way."""

import os
import tempfile
import warnings

import pytest

from dice.errors import ProblemError, SandboxError, UserError
from dice.types import Candidate, Problem
from dice.verify.pool import Job
from dice.verify.ray_pool import RayPool
from tests.unit.verify.test_pool import FAKE, ROOT, job, seen

ray = pytest.importorskip("ray", reason="Ray is not installed (pip install 'dice-cuda[ray]')")

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # Ray's own, of many kinds
    pytest.mark.timeout(180),
]


@pytest.fixture(scope="module")
def cluster():
    from ray.cluster_utils import Cluster

    # not tmp_path: its name is too long for a local socket
    with (
        warnings.catch_warnings(),
        pytest.MonkeyPatch.context() as patch,
        tempfile.TemporaryDirectory(prefix="ray-", ignore_cleanup_errors=True) as directory,
    ):
        warnings.simplefilter("ignore")
        patch.setenv("RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO", "0")
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("RAY_TMPDIR", directory)
        cluster = Cluster(
            initialize_head=True,
            head_node_args={
                "num_cpus": 1,
                "object_store_memory": 80 << 20,
                "include_dashboard": False,
            },
        )
        cluster.second = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
        paths = os.pathsep.join([str(ROOT / "src"), str(ROOT)])
        ray.init(
            address=cluster.address,
            runtime_env={"env_vars": {"PYTHONPATH": paths}},
            log_to_driver=False,
            logging_level="ERROR",
        )
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture(scope="module")
def pool(cluster):
    with RayPool(2, backend="simt", factory=f"{FAKE}:open_judge") as pool:
        yield pool


def test_jobs_are_done_on_both_machines(pool):
    jobs = [job("sleep 0.02", problem=f"p{n % 4}", name=str(n)) for n in range(40)]
    outcomes = list(pool.map(jobs))
    assert sorted(int(one.job.id) for one in outcomes) == list(range(40))
    assert len({seen(one.verdict)[0] for one in outcomes}) == 2


def test_errors_are_told_apart(pool):
    bad = Job(problem=Problem(name="b", code="bad"), candidate=Candidate(problem="b", code=""))
    assert isinstance(pool.submit(bad).exception(60), ProblemError)
    assert isinstance(pool.submit(job("raise the disk is full")).exception(60), SandboxError)


def test_a_dead_actor_is_replaced(pool, tmp_path):
    assert pool.submit(job(f"die_once {tmp_path / 'mark'}")).result(60).correct


def test_a_lost_machine_costs_no_verdict(pool, cluster):
    futures = [pool.submit(job("sleep 0.3", name=str(n))) for n in range(8)]
    cluster.add_node(num_cpus=1, object_store_memory=80 << 20)
    cluster.remove_node(cluster.second, allow_graceful=False)
    assert all(future.result(120).correct for future in futures)


def test_a_cluster_is_needed(monkeypatch):
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    with pytest.raises(UserError, match=r"ray\.init"):
        RayPool(1)
