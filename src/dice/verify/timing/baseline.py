"""PyTorch's own speed on a problem, eager and compiled. Runs in a clean process, see `clean`."""

import random
import statistics
import time
from collections.abc import Callable
from dataclasses import asdict
from typing import Any

import torch

from dice.verify import trees
from dice.verify.measure import load_namespace
from dice.verify.timing.calls import TimedCalls
from dice.verify.timing.facts import timing_seed
from dice.verify.timing.loop import Stopwatch, size_of, stopwatch
from dice.verify.timing.plan import WARM_UP, calls_per_batch
from dice.verify.timing.settings import TimingSettings
from dice.verify.timing.stats import Batch
from dice.verify.trees import Tree

SEED = 1 << 40
"""Of the fresh values; a baseline has no reason to guess them."""


def time_problem(job: dict[str, Any], settings: TimingSettings) -> dict[str, Any]:
    """`{"batches": {name: [Batch as a dict, ...]}, "missing": {name: why}}`.

    `job` holds "code", "device", "construction_seed", "seed" (of the inputs) and "compile". Raises what the problem's own
    code raises; a baseline that cannot be compiled is `missing`.
    """
    device = job["device"]
    namespace = load_namespace(job["code"])
    torch.manual_seed(job["construction_seed"])
    init = namespace["get_init_inputs"]() if "get_init_inputs" in namespace else []
    torch.manual_seed(job["construction_seed"])
    model = namespace["Model"](*init).to(device)
    base = [_inputs(namespace, job, index) for index in range(settings.input_sets)]
    watch = stopwatch(device)
    free_bytes = torch.cuda.mem_get_info()[0] if device == "cuda" else 4 << 30
    sides: dict[str, _Side] = {"eager": _Side(watch, model, base, settings, free_bytes)}
    missing: dict[str, str] = {}
    if job["compile"]:
        try:
            compiled = torch.compile(model, dynamic=False)
            sides["compile"] = _Side(watch, compiled, base, settings, free_bytes)
        except Exception as error:
            lines = str(error).strip().splitlines() or [""]
            missing["compile"] = f"torch.compile: {type(error).__name__}: {lines[0][:200]}"
    order = [name for name in sides for _ in range(settings.batches)]
    random.Random(0).shuffle(order)  # a change of the clock rate meets both
    for name in order:
        sides[name].measure()
    batches = {name: [asdict(one) for one in side.batches] for name, side in sides.items()}
    return {"batches": batches, "missing": missing}


def _inputs(namespace: dict[str, Any], job: dict[str, Any], index: int) -> list[Tree]:
    """As the referee draws them."""
    seed = timing_seed(job["code"], job["seed"], index)
    random.seed(seed)
    torch.manual_seed(seed)
    with torch.device(job["device"]):
        inputs = namespace["get_inputs"]()
    return [trees.map_tensors(one, lambda tensor: tensor.to(job["device"])) for one in inputs]


class _Side:
    """One baseline: warmed up when made, then a batch at a time."""

    def __init__(
        self,
        watch: Stopwatch,
        model: Callable[..., Any],
        base: list[Tree],
        settings: TimingSettings,
        free_bytes: int,
    ) -> None:
        self.batches: list[Batch] = []
        self._timed = TimedCalls(watch, model, base)
        self._seed = SEED
        first = self._batch(WARM_UP)
        output = size_of(self._timed.outputs[0])
        per_call = max(size_of(one) for one in base) + output
        self._calls = calls_per_batch(
            call_us=statistics.median(first.calls_us),
            bytes_per_call=per_call,
            free_bytes=free_bytes,
            settings=settings,
        )
        self._batch(self._calls)  # the allocator's memory for a whole batch

    def measure(self) -> None:
        self.batches.append(self._batch(self._calls))

    def _batch(self, calls: int) -> Batch:
        self._timed.ready(calls, self._seed)
        self._seed += calls
        if torch.cuda.is_available():
            torch.cuda.synchronize()
        started = time.perf_counter_ns()
        calls_us = self._timed.go()
        return Batch(calls_us=tuple(calls_us), wall_us=(time.perf_counter_ns() - started) / 1e3)
