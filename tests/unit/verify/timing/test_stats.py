"""Sums over timed batches: medians against an oracle, clocks that agree or not, intervals."""

import random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dice.verify.timing.plan import FEWEST, LOOP_US, calls_per_batch
from dice.verify.timing.settings import TimingSettings
from dice.verify.timing.stats import Batch, disagreement, floor_us, runtime_of, speedup

SETTINGS = TimingSettings()
LOOP = 70.0


def batches(us, *, count=9, calls=200, reported=1.0, loop=LOOP, spread=0.02, seed=1):
    """A device that needs `us` a call and reports `reported` times that."""
    draw = random.Random(seed)
    made = []
    for _ in range(count):
        times = [us * draw.gauss(1, spread) for _ in range(calls)]
        wall = sum(times) + calls * loop + 300
        made.append(Batch(calls_us=tuple(reported * one for one in times), wall_us=wall))
    return made


@given(st.lists(st.floats(0.5, 1e5), min_size=1, max_size=60))
def test_median_and_spread_are_those_of_torch(times):
    runtime = runtime_of([Batch(calls_us=tuple(times), wall_us=sum(times))], 0.0)
    wanted = torch.tensor(times, dtype=torch.float64)
    for value, share in ((runtime.median_us, 0.5), (runtime.p10_us, 0.1), (runtime.p90_us, 0.9)):
        assert value == pytest.approx(torch.quantile(wanted, share).item())
    assert runtime.clock_us == pytest.approx(wanted.mean().item())


@pytest.mark.parametrize("us", [2.0, 20.0, 900.0])
def test_honest_clocks_agree(us):
    assert disagreement(batches(us), LOOP, SETTINGS) is None


@pytest.mark.parametrize("us", [60.0, 900.0])
def test_a_clock_that_runs_slow_or_work_outside_the_stream_is_seen(us):
    found = disagreement(batches(us, reported=0.5), LOOP, SETTINGS)
    assert found is not None
    assert "tampered" in found


def test_calls_that_took_no_time_are_seen():
    """More reported than the judge saw go by: the loop was not run, or its flush was switched off."""
    found = disagreement(batches(400.0, reported=1.6), LOOP, SETTINGS)
    assert found is not None
    assert "did not all happen" in found


def test_one_stall_of_the_machine_says_nothing():
    made = batches(50.0)
    stalled = Batch(calls_us=made[0].calls_us, wall_us=made[0].wall_us + 1e6)
    assert disagreement([stalled, *made[1:]], LOOP, SETTINGS) is None


def test_a_stall_in_every_batch_does_not_hide_a_clock_that_runs_slow():
    made = [
        Batch(calls_us=one.calls_us, wall_us=one.wall_us + 2e5)
        for one in batches(200.0, reported=0.1)
    ]
    assert disagreement(made, LOOP, SETTINGS) is not None


def test_the_speedup_is_the_ratio_of_medians_with_its_interval_around_it():
    found = speedup("eager", batches(300.0, seed=2), batches(100.0, seed=3), 0.95)
    assert found.over == "eager"
    assert found.low <= found.value <= found.high
    assert found.value == pytest.approx(3.0, rel=0.02)
    assert found.high - found.low < 0.1


def test_the_interval_holds_the_truth_about_as_often_as_it_says():
    """Clock rates differ from batch to batch by far more than calls within one do."""
    held = 0
    for trial in range(40):
        draw = random.Random(trial)

        def side(us, draw=draw):
            rates = [draw.gauss(1, 0.05) for _ in range(9)]
            return [
                Batch(calls_us=tuple(us * rate for _ in range(5)), wall_us=1.0) for rate in rates
            ]

        found = speedup("eager", side(200.0), side(100.0), 0.95)
        held += found.low <= 2.0 <= found.high
    assert held >= 34


def test_the_floor_counts_what_the_cache_cannot_hold():
    wanted = {"cache_bytes": 50_000_000, "peak_gbps": 4000.0}
    assert floor_us(read_bytes=4_000_000, written_bytes=0, **wanted) == pytest.approx(1.0)
    assert floor_us(read_bytes=0, written_bytes=50_000_000, **wanted) == 0
    assert floor_us(read_bytes=0, written_bytes=90_000_000, **wanted) == pytest.approx(10.0)


def test_a_batch_fills_its_time_and_fits_into_memory():
    def calls(us, per_call, free=10 << 30):
        return calls_per_batch(
            call_us=us, bytes_per_call=per_call, free_bytes=free, settings=SETTINGS
        )

    assert calls(1.0, 1000) == SETTINGS.max_calls
    assert calls(1000.0, 1000) == -(-50_000 // (1000 + LOOP_US))
    assert calls(1e6, 1000) == FEWEST
    assert calls(1.0, 1 << 30) == 3
    assert calls(1.0, 1 << 40) == 1
