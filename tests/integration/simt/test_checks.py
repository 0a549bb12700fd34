"""Every fault that check mode reports, with the thread that commits it, and correct twins of each."""

import types

import pytest
import torch

from dice.toolchain.simt.runtime import Runtime
from tests.integration.simt.conftest import Loader


@pytest.fixture
def checks(compiled: Loader) -> types.ModuleType:
    return compiled("checks", True)


def run(checks: types.ModuleType, name: str, size: int) -> torch.Tensor | None:
    """The result, or None when the launch was aborted."""
    x = torch.randn(size, generator=torch.Generator().manual_seed(1))
    try:
        return getattr(checks, name)(x)
    except RuntimeError:
        return None


FAULTS = [
    # name, elements, kind, array, thread block, thread, bytes
    ("bounds", 100, "out_of_bounds", "x", (1, 0, 0), (36, 0, 0), 4),
    ("write_only", 32, "out_of_bounds", "y", (0, 0, 0), (5, 0, 0), 4),
    ("shared_bounds", 64, "out_of_bounds", "left", (0, 0, 0), (63, 0, 0), 4),
    ("dynamic_bounds", 64, "out_of_bounds", "dynamic", (0, 0, 0), (60, 0, 0), 4),
    ("shared_unset", 64, "uninitialised", "sum", (0, 0, 0), (0, 0, 0), 4),
    ("global_unset", 64, "uninitialised", "y", (0, 0, 0), (0, 0, 0), 4),
    ("shared_race", 64, "race", "s", (0, 0, 0), (1, 0, 0), 4),
    ("shift_race", 64, "race", "s", (0, 0, 0), (0, 0, 0), 4),
    ("global_race", 64, "race", "y", (0, 0, 0), (1, 0, 0), 4),
    ("block_race", 64, "race", "y", (1, 0, 0), (0, 0, 0), 4),
    ("atomic_mix_race", 64, "race", "s", (0, 0, 0), (1, 0, 0), 4),
    ("divergent", 64, "divergent_barrier", "", (0, 0, 0), (16, 0, 0), 0),
    ("asserts", 32, "assert", "", (0, 0, 0), (3, 0, 0), 0),
    ("traps", 32, "trap", "", (1, 0, 0), (2, 0, 0), 0),
]


@pytest.mark.parametrize("fault", FAULTS, ids=[fault[0] for fault in FAULTS])
def test_a_fault_is_reported_with_its_thread(checks, emulator, fault):
    name, size, kind, array, block, thread, size_bytes = fault
    run(checks, name, size)
    found = [one for one in emulator.diagnostics() if one.kind == kind]
    assert found, emulator.diagnostics()
    assert found[0].kernel == f"{name}_kernel"
    assert (found[0].thread_block, found[0].thread, found[0].bytes) == (block, thread, size_bytes)
    assert array in found[0].array


@pytest.mark.parametrize(
    "name",
    [
        "bounds_ok", "shared_bounds_ok", "dynamic_bounds_ok", "shared_set_ok", "global_set_ok",
        "shared_race_ok", "shift_race_ok", "same_value_ok", "warp_sync_ok", "half_cells_ok",
        "copies_ok",
    ],
)  # fmt: skip
def test_a_correct_twin_is_not_reported(checks, emulator, name):
    sizes = {"warp_sync_ok": 32}
    for _ in range(2):
        assert run(checks, name, sizes.get(name, 64)) is not None
    assert emulator.diagnostics() == []


def test_a_barrier_that_others_never_reach_ends_the_launch(checks, emulator):
    assert run(checks, "divergent", 64) is None
    run(checks, "deadlock", 32)
    assert {"divergent_barrier", "warp_mask"} >= {one.kind for one in emulator.diagnostics()}


def test_threads_that_returned_do_not_hold_a_barrier_up(checks, emulator):
    out = run(checks, "early_return", 64)
    assert out is not None
    assert (out[:40] == out[0]).all()
    assert out[40:].isnan().all()
    assert emulator.diagnostics() == []


def test_an_endless_loop_meets_the_step_limit(checks, emulator):
    emulator.set_step_limit(100_000)
    assert run(checks, "endless", 32) is None
    assert [one.kind for one in emulator.diagnostics()] == ["step_limit"]


def test_a_launch_after_an_aborted_one_runs_clean(checks, emulator):
    assert run(checks, "divergent", 64) is None
    emulator.clear()
    assert run(checks, "shared_race_ok", 64) is not None
    assert emulator.diagnostics() == []


@pytest.mark.parametrize("threads", [1, 2])
def test_faults_are_found_with_several_os_threads(checks, emulator, threads):
    emulator.set_threads(threads)
    run(checks, "block_race", 64)
    assert [one.kind for one in emulator.diagnostics()] == ["race"]


@pytest.mark.parametrize("check", [True, False])
@pytest.mark.parametrize(
    ("grid", "block", "shared", "code"),
    [
        (1, 1025, 0, 9),
        (0, 32, 0, 9),
        (1, 0, 0, 9),
        (1, 32, 49153, 1),
        (1, 32, 1 << 20, 9),
    ],
)
def test_a_refused_launch_leaves_an_error_and_a_finding(
    compiled, emulator: Runtime, check, grid, block, shared, code
):
    x = torch.zeros(1)
    assert compiled("features", check).refused(x, grid, block, shared).item() == code
    assert [one.kind for one in emulator.diagnostics()] == ["launch_error"]
    assert x[0] == 0, "the kernel must not run"


def test_poisoned_outputs_show_what_was_not_written(checks, emulator):
    x = torch.ones(64)
    emulator.poison(x.data_ptr(), 4 * 64)
    assert x.isnan().all()
    checks.bounds_ok(x)
    assert [one.kind for one in emulator.diagnostics()] == ["uninitialised"]


@pytest.mark.parametrize("name", ["unset_max", "unset_min", "unset_array"])
def test_a_local_without_a_value_shows_within_a_few_launches(checks, name):
    """A maximum that starts anywhere below the data is right; one launch in a few starts it above."""
    shown = [not bool((run(checks, name, 64).abs() < 100).all()) for _ in range(4)]
    assert any(shown)


def test_locals_that_are_set_before_they_are_read_are_no_fault(checks, emulator):
    x = torch.randn(64, generator=torch.Generator().manual_seed(1))
    factors = torch.tensor([2.0, 3.0]).repeat(32)
    assert torch.equal(checks.set_later(x), x * factors)
    assert emulator.diagnostics() == []
