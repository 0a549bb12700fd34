"""One sample's outcome, from its log lines: the only thing that scores and reports look at.

Correct has two meanings here. *Filtered*: the judge calls the candidate correct. *Unfiltered*: its outputs
matched, whatever else the judge found (no kernel of its own, a race, a forbidden call): what a check of
outputs alone reports. Where the judge stopped a candidate before its last output, a match is not known and
does not count.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

from dice.eval.records import Chosen, Generation, Judged, Key, Upstream, verdict_of
from dice.eval.store import Log
from dice.types import Timing, Verdict, VerdictKind

NOT_GENERATED, NOT_JUDGED, MACHINE_ERROR = "not generated", "not judged", "machine error"
"""What a sample has instead of a verdict's kind while its run is not finished."""
UNFINISHED = frozenset((NOT_GENERATED, NOT_JUDGED, MACHINE_ERROR))


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one sample."""

    level: int
    problem_id: int
    sample: int
    stem: str
    status: str
    """A verdict's kind, a generation's failure ("context_overflow", "refused"), or one of UNFINISHED."""
    correct: bool = False
    correct_unfiltered: bool = False
    speedups: tuple[tuple[str, float], ...] = ()
    """Over each baseline; none where no time is believed."""
    refused: bool = False
    """It was timed and the measurement is not believed."""
    runtime_us: float | None = None
    generation: Generation | None = None
    judged: Judged | None = None
    verdict: Verdict | None = None

    @property
    def key(self) -> Key:
        return self.level, self.problem_id, self.sample

    @property
    def untestable(self) -> bool:
        return self.status == VerdictKind.UNTESTABLE

    def speedup(self, over: str) -> float | None:
        return dict(self.speedups).get(over)


def outcomes(
    log: Log, problems: Iterable[Chosen], samples: int, *, earns: dict[str, str] | None = None
) -> list[Outcome]:
    """Every sample of a run, in order, also those that are not done yet.

    Args:
        earns: what each attribution label earns ("correct" or "no_custom_kernel") instead of what the
            run's policy said.
    """
    found = []
    for chosen in problems:
        for sample in range(samples):
            key = (chosen.level, chosen.problem_id, sample)
            found.append(_outcome(log, chosen, key, earns))
    return found


def _outcome(log: Log, chosen: Chosen, key: Key, earns: dict[str, str] | None) -> Outcome:
    level, problem_id, sample = key
    generation, judged = log.generations.get(key), log.verdicts.get(key)
    base = Outcome(
        level=level,
        problem_id=problem_id,
        sample=sample,
        stem=chosen.stem,
        status=NOT_GENERATED,
        generation=generation,
        judged=judged,
    )
    if generation is None:
        return base
    if generation.failure is not None:
        return replace(base, status=generation.failure)
    if judged is None:
        return replace(base, status=NOT_JUDGED)
    verdict = verdict_of(judged)
    if verdict is None:
        return replace(base, status=MACHINE_ERROR)
    if earns is not None:
        verdict = rescored(verdict, earns)
    timing = verdict.timing
    return replace(
        base,
        status=str(verdict.kind),
        correct=verdict.correct,
        correct_unfiltered=verdict.correct or verdict.outputs_match is True,
        speedups=_speedups(timing),
        refused=timing is not None and timing.refused is not None,
        runtime_us=None if timing is None else timing.runtime.median_us,
        verdict=verdict,
    )


def _speedups(timing: Timing | None) -> tuple[tuple[str, float], ...]:
    if timing is None or timing.refused is not None:
        return ()
    return tuple((one.over, one.value) for one in timing.speedups if math.isfinite(one.value))


def rescored(verdict: Verdict, earns: dict[str, str]) -> Verdict:
    """The verdict under another policy on who may make the output. Faults stay faults."""
    if verdict.attribution is None:
        return verdict
    if verdict.kind in (VerdictKind.CORRECT, VerdictKind.NO_CUSTOM_KERNEL):
        return replace(verdict, kind=VerdictKind(earns[verdict.attribution]))
    return verdict


def upstream_outcomes(log: Log, problems: Iterable[Chosen], samples: int) -> list[Outcome]:
    """The same from what KernelBench's own scripts said. It has no hack filter."""
    found = []
    for chosen in problems:
        for sample in range(samples):
            line = log.upstream.get((chosen.level, chosen.problem_id, sample))
            found.append(_upstream_outcome(chosen, sample, line))
    return found


def _upstream_outcome(chosen: Chosen, sample: int, line: Upstream | None) -> Outcome:
    fields: dict[str, Any] = {
        "level": chosen.level,
        "problem_id": chosen.problem_id,
        "sample": sample,
        "stem": chosen.stem,
    }
    if line is None:
        return Outcome(status=NOT_JUDGED, **fields)
    if not line.correctness:
        kind = VerdictKind.WRONG if line.compiled else VerdictKind.COMPILE_ERROR
        return Outcome(status=str(kind), **fields)
    runtime = line.runtime_ms
    usable = runtime is not None and runtime > 0
    ratios = {over: ms / runtime for over, ms in line.baseline_ms.items()} if usable else {}  # type: ignore[operator]
    return Outcome(
        status=str(VerdictKind.CORRECT),
        correct=True,
        correct_unfiltered=True,
        speedups=tuple(ratios.items()),
        runtime_us=1e3 * runtime if usable and runtime is not None else None,
        **fields,
    )
