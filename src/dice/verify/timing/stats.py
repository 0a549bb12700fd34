"""What batches of timed calls add up to: medians with spread, agreement of clocks, speedups. Torch-free.

A batch has two clocks. For a candidate the second one is the judge's own, over the messages that start and
end the batch, so code in the candidate's process cannot move it; for a baseline it is the process's.
"""

import random
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from dice.types import Runtime, Speedup
from dice.verify.timing.settings import TimingSettings

DRAWS = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """Calls one after another: the time of each by the device, of all by the other clock."""

    calls_us: tuple[float, ...]
    wall_us: float

    def clock_us(self, overhead_us: float) -> float:
        """One call by the other clock, without what the loop around it takes."""
        return self.wall_us / len(self.calls_us) - overhead_us


def runtime_of(batches: Sequence[Batch], overhead_us: float) -> Runtime:
    """Of at least one batch with at least one call."""
    calls = sorted(us for batch in batches for us in batch.calls_us)
    return Runtime(
        median_us=statistics.median(calls),
        p10_us=_quantile(calls, 0.1),
        p90_us=_quantile(calls, 0.9),
        clock_us=statistics.median(batch.clock_us(overhead_us) for batch in batches),
        calls=len(calls),
        batches=len(batches),
    )


def disagreement(
    batches: Sequence[Batch], overhead_us: float, settings: TimingSettings
) -> str | None:
    """Why the two clocks do not tell the same story; None when they do.

    Batches are compared one by one and the median difference counts, so that one stall of the machine
    says nothing.
    """
    gaps = sorted((_gap(batch, overhead_us, settings) for batch in batches), key=lambda gap: gap[0])
    excess, device_us, clock_us = gaps[len(gaps) // 2]
    low, low_device_us, low_clock_us = gaps[(len(gaps) - 1) // 2]
    if excess > 1:
        return (
            f"the device's clock says {device_us:.1f} us a call, the judge's {clock_us:.1f} us: work "
            "outside the timed stream, or a clock that was tampered with"
        )
    if low < -1:
        return (
            f"the device's clock says {low_device_us:.1f} us a call, the judge's only "
            f"{low_clock_us:.1f} us: the calls did not all happen as they were reported"
        )
    return None


def _gap(batch: Batch, overhead_us: float, settings: TimingSettings) -> tuple[float, float, float]:
    """The clocks' difference in units of what is tolerated, and both times of a call."""
    device_us = statistics.fmean(batch.calls_us)
    clock_us = batch.clock_us(overhead_us)
    slack_us = settings.clock_slack_us / len(batch.calls_us)
    # where the loop costs more than the call, an error of its calibration must not count as the call's
    allowed = settings.clock_tolerance * max(device_us, clock_us, overhead_us) + slack_us
    return (clock_us - device_us) / allowed, device_us, clock_us


def speedup(
    over: str, baseline: Sequence[Batch], candidate: Sequence[Batch], confidence: float
) -> Speedup:
    """Ratio of medians. The interval resamples whole batches: calls of one batch share its clock rate."""
    ratio = _median(baseline) / _median(candidate)
    draw = random.Random(0)
    ratios = sorted(
        _median(_resampled(baseline, draw)) / _median(_resampled(candidate, draw))
        for _ in range(DRAWS)
    )
    tail = (1 - confidence) / 2
    return Speedup(
        over=over,
        value=ratio,
        low=_quantile(ratios, tail),
        high=_quantile(ratios, 1 - tail),
        confidence=confidence,
    )


def floor_us(*, read_bytes: int, written_bytes: int, cache_bytes: int, peak_gbps: float) -> float:
    """The least time that moving these bytes takes; what the cache can still hold at the end is free."""
    moved = read_bytes + max(0, written_bytes - cache_bytes)
    return moved / (peak_gbps * 1e3)


def _resampled(batches: Sequence[Batch], draw: random.Random) -> list[Batch]:
    return draw.choices(batches, k=len(batches))


def _median(batches: Sequence[Batch]) -> float:
    return statistics.median(us for batch in batches for us in batch.calls_us)


def _quantile(ordered: Sequence[float], share: float) -> float:
    """Between neighbours by linear interpolation."""
    at = share * (len(ordered) - 1)
    below = int(at)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (at - below) * (ordered[above] - ordered[below])
