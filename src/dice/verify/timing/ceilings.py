"""What a device reaches at best, and what the timing loop costs on it. Runs in a clean process."""

import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from dice.verify.timing.loop import HostStopwatch, Stopwatch, stopwatch, time_calls

REPEATS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Ceilings:
    """Of one device, measured by the loop that times candidates."""

    gpu: str
    peak_gbps: float
    """Read and written together, copying a large tensor or adding one up, whichever is faster."""
    peak_tflops: float
    """Of a large float32 matrix product under PyTorch's default precision."""
    cache_bytes: int
    """Second-level cache."""
    memory_bytes: int
    """Free when a process has started CUDA and done nothing yet."""
    loop_us: float
    """One turn of the loop around a call that does nothing."""


def measure_ceilings(device: str) -> Ceilings:
    """On "cuda" or, with smaller tensors, on "cpu"."""
    watch, large = stopwatch(device), device == "cuda"
    memory_bytes = torch.cuda.mem_get_info()[0] if large else 4 << 30
    numbers = torch.ones((1 << 28) if large else (1 << 22), device=device)
    target = torch.empty_like(numbers)
    size = 8192 if large else 256
    square = torch.ones(size, size, device=device)
    copy_us = _best(watch, lambda: target.copy_(numbers))
    sum_us = _best(watch, lambda: numbers.sum())
    product_us = _best(watch, lambda: square @ square)
    moved = numbers.numel() * numbers.element_size()
    return Ceilings(
        gpu=torch.cuda.get_device_name() if large else "cpu",
        peak_gbps=max(2 * moved / copy_us, moved / sum_us) / 1e3,
        peak_tflops=2 * size**3 / product_us / 1e6,
        cache_bytes=_cache_bytes() if large else 0,
        memory_bytes=memory_bytes,
        loop_us=_loop_us(watch),
    )


def _best(watch: Stopwatch, call: Callable[[], object]) -> float:
    """The median of the faster half of some calls, after a few that warm up."""
    times = [watch.measure(call)[1] for _ in range(3 + REPEATS)][3:]
    return statistics.median(sorted(times)[: REPEATS // 2])


def _loop_us(watch: Stopwatch) -> float:
    def nothing() -> None:
        return None

    turns = []
    for _ in range(5):
        if not isinstance(watch, HostStopwatch):
            torch.cuda.synchronize()
        started = time.perf_counter_ns()
        _, calls_us = time_calls(watch, nothing, [()] * 100)
        wall_us = (time.perf_counter_ns() - started) / 1e3
        turns.append((wall_us - sum(calls_us)) / len(calls_us))
    return statistics.median(turns[1:])


def _cache_bytes() -> int:
    return int(torch.cuda.get_device_properties(0).L2_cache_size)
