"""The judge's side of a timing: baselines, the candidate's batches, what they add up to.

The candidate runs in a fresh process. The judge's clock runs from the message that starts a batch to the one
that ends it; which outputs are looked at is drawn after that. Nobody else uses the GPU meanwhile.
"""

import json
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Protocol, TypeGuard

import torch

from dice import __version__
from dice.errors import SandboxError
from dice.sandbox import Child
from dice.sandbox.gpu import driver_version
from dice.sandbox.wire import Message
from dice.types import Evidence, Timing
from dice.verify import rules
from dice.verify.correctness import Comparison
from dice.verify.policy import Policy
from dice.verify.slots import GpuSlots
from dice.verify.timing import stats
from dice.verify.timing.ceilings import Ceilings
from dice.verify.timing.clean import run_clean
from dice.verify.timing.facts import Facts
from dice.verify.timing.plan import WARM_UP, calls_per_batch
from dice.verify.timing.settings import TimingSettings
from dice.verify.timing.stats import Batch
from dice.verify.trial import Measured, Prepared, Trial

SEED_BITS = 47
BATCH_S = 60.0
"""Processor seconds that one batch of a candidate may take."""


class TimedProblem(Prepared, Protocol):
    """A prepared problem that can be timed."""

    @property
    def code(self) -> str:
        """The problem's file."""

    def timing_facts(self) -> Facts:
        """What every implementation must move and compute."""

    def write_timing_input(self, index: int, path: Path) -> None:
        """Write base inputs that no check has used."""

    def compare_timed(self, index: int, seed: int, output: Path) -> Comparison:
        """Compare the output of a timed call on base inputs `index` with values from `seed`."""


class Session:
    """One candidate's process: batches of timed calls, and a look at some of their outputs."""

    def __init__(self, trial: Trial, settings: TimingSettings) -> None:
        self.batches: list[Batch] = []
        self._trial, self._settings = trial, settings
        self._outputs = 0

    def run(self, child: Child, prepared: TimedProblem, facts: Facts, free_bytes: int) -> None:
        """Everything, as long as the candidate goes along; what it does wrong is the trial's evidence."""
        self._child = child
        settings, directory = self._settings, Path(child.directory)
        paths = []
        for index in range(settings.input_sets):
            path = directory / f"timing_{index}.bin"
            if not self._trial.delivered(path, partial(prepared.write_timing_input, index, path)):
                return
            paths.append(path.name)
        if self._ask({"do": "inputs", "paths": paths}) is None:
            return
        if self._batch(WARM_UP) is None:  # what is done once only
            return
        warm = self._batch(WARM_UP)
        if warm is None:
            return
        calls = calls_per_batch(
            call_us=warm.wall_us / WARM_UP,
            bytes_per_call=facts.input_bytes + facts.output_bytes,
            free_bytes=free_bytes,
            settings=settings,
        )
        looked_at = sorted(
            secrets.SystemRandom().sample(
                range(settings.batches), min(settings.checked_outputs, settings.batches)
            )
        )
        for number in range(-1, settings.batches):  # the first fills the allocator
            seed = secrets.randbits(SEED_BITS)
            batch = self._batch(calls, seed)
            if batch is None:
                return
            if number >= 0:
                self.batches.append(batch)
            if number in looked_at and not self._look(prepared, calls, seed):
                return

    def _batch(self, calls: int, seed: int = 1) -> Batch | None:
        if self._ask({"do": "ready", "calls": calls, "seed": seed}) is None:
            return None
        started = time.perf_counter_ns()
        answer = self._ask({"do": "go"})
        wall_us = (time.perf_counter_ns() - started) / 1e3
        if answer is None:
            return None
        calls_us = answer.get("calls_us")
        if not _are_times(calls_us, calls):
            message = "the candidate reported times of calls that nobody asked for"
            self._trial.evidence.append(Evidence(kind="forged_verdict", message=message))
            return None
        return Batch(calls_us=tuple(map(float, calls_us)), wall_us=wall_us)

    def _look(self, prepared: TimedProblem, calls: int, seed: int) -> bool:
        """Whether one output of the last batch, drawn now, is right."""
        call = secrets.randbelow(calls)
        name = f"timed_{self._outputs}.bin"
        self._outputs += 1
        if self._ask({"do": "keep", "call": call, "path": name}) is None:
            return False
        path = Path(self._child.directory) / name
        found = prepared.compare_timed(call % self._settings.input_sets, seed + call, path)
        if not found.ok:
            self._trial.evidence += rules.from_comparison(found, "while it was timed")
        return found.ok

    def _ask(self, request: Message) -> Message | None:
        self._child.send(request)
        return self._trial.next_report(self._child, BATCH_S)


def _are_times(value: object, calls: int) -> TypeGuard[list[float]]:
    if not isinstance(value, list) or len(value) != calls:
        return False
    return all(type(us) in (int, float) and 0 < us < 1e12 for us in value)


class GpuTimer:
    """Times candidates on one GPU. `visible` is CUDA_VISIBLE_DEVICES of the clean processes."""

    def __init__(self, policy: Policy, slots: GpuSlots, visible: str) -> None:
        self._policy, self._slots, self._visible = policy, slots, visible
        self._machine = json.dumps(
            [torch.__version__, torch.version.cuda, driver_version(), __version__, visible]
        )

    def time(self, trial: Trial, prepared: TimedProblem, spawn: Callable[[], Child]) -> Measured:
        """A timing of the candidate of a trial, in a process from `spawn`.

        Where the machine cannot (too little memory, say) a note says so.
        """
        try:
            return self._time(trial, prepared, spawn)
        except SandboxError as error:
            return Measured(notes=(f"not timed: {error}",))

    def _time(self, trial: Trial, prepared: TimedProblem, spawn: Callable[[], Child]) -> Measured:
        with self._slots.checking_in_turn():
            facts = prepared.timing_facts()
        if facts.stateful:
            return Measured(notes=("not timed: the outputs depend on the calls before",))
        timed = Trial(trial.backend, prepared, trial.candidate, timing=True)
        notes: list[str] = []
        with self._slots.timing():
            ceilings = self._ceilings()
            baselines = self._baselines(prepared.code, notes)
            session = Session(timed, self._policy.timing)
            with spawn() as child:
                if timed.open(child) is not None:
                    session.run(child, prepared, facts, ceilings.memory_bytes)
                result = child.finish()
        faults = [
            *timed.evidence,
            *rules.from_ending(result, early=timed.early),
            *rules.from_incidents(result.incidents),
        ]
        if faults or len(session.batches) < self._policy.timing.batches:
            return Measured(evidence=tuple(faults), notes=tuple(notes))
        timing = summarise(
            session.batches,
            baselines,
            facts=facts,
            ceilings=ceilings,
            settings=self._policy.timing,
        )
        return Measured(timing=timing, notes=tuple(notes))

    def _ceilings(self) -> Ceilings:
        job = {"do": "ceilings", "device": "cuda"}
        return Ceilings(**run_clean(job, key=self._machine, visible=self._visible))

    def _baselines(self, code: str, notes: list[str]) -> dict[str, list[Batch]]:
        """PyTorch's batches by name; why one is missing becomes a note."""
        job = {
            "do": "baselines",
            "device": "cuda",
            "code": code,
            "construction_seed": self._policy.construction_seed,
            "seed": 0,
            "compile": True,
            "settings": asdict(self._policy.timing),
        }
        try:
            result = run_clean(job, key=self._machine, visible=self._visible)
        except SandboxError as error:
            notes.append(f"no baseline: {error}")
            return {}
        notes += result["missing"].values()
        return {
            name: [Batch(calls_us=tuple(one["calls_us"]), wall_us=one["wall_us"]) for one in of]
            for name, of in result["batches"].items()
        }


def summarise(
    batches: Sequence[Batch],
    baselines: Mapping[str, Sequence[Batch]],
    *,
    facts: Facts,
    ceilings: Ceilings,
    settings: TimingSettings,
) -> Timing:
    """The record of one timing; `refused` where its clocks or the roofline speak against it."""
    runtime = stats.runtime_of(batches, ceilings.loop_us)
    floor = stats.floor_us(
        read_bytes=facts.read_bytes,
        written_bytes=facts.output_bytes,
        cache_bytes=ceilings.cache_bytes,
        peak_gbps=ceilings.peak_gbps,
    )
    refused = stats.disagreement(batches, ceilings.loop_us, settings)
    if refused is None and runtime.median_us < settings.roofline_margin * floor:
        refused = (
            f"{runtime.median_us:.1f} us a call is faster than the memory: moving its "
            f"{(facts.read_bytes + facts.output_bytes) / 1e6:.1f} MB takes {floor:.1f} us at "
            f"{ceilings.peak_gbps:.0f} GB/s"
        )
    notes = []
    tflops = facts.flops / runtime.median_us / 1e6
    if tflops > ceilings.peak_tflops:
        notes.append(
            f"its {tflops:.0f} TFLOP/s are more than a float32 matrix product reaches here "
            f"({ceilings.peak_tflops:.0f}): it does less arithmetic than the reference, or coarser"
        )
    return Timing(
        runtime=runtime,
        baselines={name: stats.runtime_of(of, ceilings.loop_us) for name, of in baselines.items()},
        speedups=tuple(
            stats.speedup(name, of, batches, settings.confidence) for name, of in baselines.items()
        ),
        refused=refused,
        gbps=(facts.read_bytes + facts.output_bytes) / runtime.median_us / 1e3,
        tflops=tflops,
        peak_gbps=ceilings.peak_gbps,
        peak_tflops=ceilings.peak_tflops,
        gpu=ceilings.gpu,
        notes=tuple(notes),
    )
