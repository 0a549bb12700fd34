"""From outcomes to the numbers of a run: plain data that the terminal, JSON, Markdown and HTML all show."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dice.eval.metrics import Estimate, geometric_mean, mean, median, pass_at_k
from dice.eval.outcomes import UNFINISHED, Outcome

THRESHOLDS = (0.0, 0.5, 0.8, 1.0, 1.5, 2.0)
"""The p of fast_p."""
PASS_K = (1, 2, 4, 8, 16, 32, 64, 128, 256)


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """One level under one meaning of correct."""

    exec: Estimate | None
    """fast_0: the share of samples that are correct, over all problems."""
    exec_testable: Estimate | None
    """The same without the problems that no candidate can fail."""
    best: Estimate | None
    """Share of problems with a correct sample."""
    pass_at: dict[int, Estimate]
    fast: dict[str, dict[float, Estimate]]
    """By baseline that anything of the run was timed against, then p; p = 0 is `exec`. Samples without a
    believed time count as not faster."""
    best_fast: dict[str, dict[float, Estimate]]
    """Share of problems with a sample that is correct and faster than p."""
    speedup: dict[str, Estimate]
    """By baseline, geometric mean over correct samples with a time, each problem weighing the same."""
    best_speedup: dict[str, Estimate]
    """Of each problem's fastest correct sample."""
    untimed: int
    """Correct samples without a believed time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelSummary:
    """One level of one run."""

    level: int
    problems: int
    untestable: tuple[str, ...]
    """Problems that cannot tell a right candidate from a wrong one; they count as failures."""
    samples: int
    unfinished: int
    kinds: dict[str, int]
    """Samples by how they ended."""
    filtered: Scores
    unfiltered: Scores
    tokens_per_forward: float | None
    tokens: float | None
    """Medians over samples."""
    generation_s: float | None
    """Mean over samples: those that are written together share their time."""
    verification_s: float | None
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None


def summarise(
    outcomes: Sequence[Outcome],
    *,
    thresholds: Sequence[float] = THRESHOLDS,
    pass_k: Sequence[int] = PASS_K,
    seed: int = 0,
) -> list[LevelSummary]:
    """One summary per level, in order."""
    levels = sorted({one.level for one in outcomes})
    baselines = sorted({over for one in outcomes for over, _ in one.speedups})
    return [
        _level(
            level, [o for o in outcomes if o.level == level], thresholds, pass_k, baselines, seed
        )
        for level in levels
    ]


def _level(
    level: int,
    outcomes: list[Outcome],
    thresholds: Sequence[float],
    pass_k: Sequence[int],
    baselines: Sequence[str],
    seed: int,
) -> LevelSummary:
    problems = by_problem(outcomes)
    generations = [o.generation for o in outcomes if o.generation is not None]
    per_forward = [
        g.completion_tokens / g.forwards for g in generations if g.forwards and g.completion_tokens
    ]
    untestable = [name for name, ones in problems.items() if any(o.untestable for o in ones)]
    costs = [g.cost_usd for g in generations if g.cost_usd is not None]
    judged = [o.judged for o in outcomes if o.judged is not None and o.judged.same_as is None]
    return LevelSummary(
        level=level,
        problems=len(problems),
        untestable=tuple(untestable),
        samples=len(outcomes),
        unfinished=sum(o.status in UNFINISHED for o in outcomes),
        kinds=dict(Counter(o.status for o in outcomes).most_common()),
        filtered=_scores(problems, thresholds, pass_k, baselines, seed, unfiltered=False),
        unfiltered=_scores(problems, thresholds, pass_k, baselines, seed, unfiltered=True),
        tokens_per_forward=median(per_forward),
        tokens=median([g.completion_tokens for g in generations if g.completion_tokens]),
        generation_s=_mean([g.seconds for g in generations if g.seconds is not None]),
        verification_s=median([j.seconds for j in judged if j.seconds is not None]),
        prompt_tokens=sum(g.prompt_tokens or 0 for g in generations),
        completion_tokens=sum(g.completion_tokens or 0 for g in generations),
        cost_usd=sum(costs) if costs else None,
    )


def by_problem(outcomes: Iterable[Outcome]) -> dict[str, list[Outcome]]:
    """Samples of each problem, by its file name, in order."""
    found: dict[str, list[Outcome]] = {}
    for one in outcomes:
        found.setdefault(f"level{one.level}/{one.stem}", []).append(one)
    return found


def is_correct(outcome: Outcome, *, unfiltered: bool) -> bool:
    return outcome.correct_unfiltered if unfiltered else outcome.correct


def is_fast(outcome: Outcome, over: str, p: float, *, unfiltered: bool) -> bool:
    """Correct, and more than p times as fast; p = 0 asks for no time."""
    if not is_correct(outcome, unfiltered=unfiltered):
        return False
    ratio = outcome.speedup(over)
    return p <= 0 or (ratio is not None and ratio > p)


def _scores(
    problems: dict[str, list[Outcome]],
    thresholds: Sequence[float],
    pass_k: Sequence[int],
    baselines: Sequence[str],
    seed: int,
    *,
    unfiltered: bool,
) -> Scores:
    groups = list(problems.values())
    counts = [sum(is_correct(o, unfiltered=unfiltered) for o in ones) for ones in groups]
    rates = [count / len(ones) for count, ones in zip(counts, groups, strict=True)]
    testable = [
        rate
        for rate, ones in zip(rates, groups, strict=True)
        if not any(o.untestable for o in ones)
    ]
    pass_at: dict[int, Estimate] = {}
    for k in pass_k:
        found = [pass_at_k(len(ones), c, k) for c, ones in zip(counts, groups, strict=True)]
        values = [value for value in found if value is not None]
        estimate = mean(values, seed=seed) if len(values) == len(groups) else None
        if estimate is not None:
            pass_at[k] = estimate
    correct = [[o for o in ones if is_correct(o, unfiltered=unfiltered)] for ones in groups]
    fast: dict[str, dict[float, Estimate]] = {}
    best_fast: dict[str, dict[float, Estimate]] = {}
    speedup: dict[str, Estimate] = {}
    best_speedup: dict[str, Estimate] = {}
    for over in baselines:
        fast[over], best_fast[over] = {}, {}
        for p in thresholds:
            hits = [[is_fast(o, over, p, unfiltered=unfiltered) for o in ones] for ones in groups]
            share = mean([sum(one) / len(one) for one in hits], seed=seed)
            best = mean([float(any(one)) for one in hits], seed=seed)
            if share is not None and best is not None:
                fast[over][p], best_fast[over][p] = share, best
        ratios = [[r for o in ones if (r := o.speedup(over))] for ones in correct]
        timed = [ones for ones in ratios if ones]
        middle = geometric_mean([_geometric(ones) for ones in timed], seed=seed)
        best = geometric_mean([max(ones) for ones in timed], seed=seed)
        if middle is not None and best is not None:
            speedup[over], best_speedup[over] = middle, best
    return Scores(
        exec=mean(rates, seed=seed),
        exec_testable=mean(testable, seed=seed),
        best=mean([float(count > 0) for count in counts], seed=seed),
        pass_at=pass_at,
        fast=fast,
        best_fast=best_fast,
        speedup=speedup,
        best_speedup=best_speedup,
        untimed=sum(not o.speedups for ones in correct for o in ones),
    )


def _mean(values: Sequence[float]) -> float | None:
    return sum(values) / len(values) if values else None


def _geometric(ratios: Sequence[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def as_json(levels: Sequence[LevelSummary]) -> list[dict[str, Any]]:
    """Plain data; keys that are numbers become text."""
    return [_keys_as_text(asdict(level)) for level in levels]


def _keys_as_text(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            f"{key:g}" if isinstance(key, float) else str(key): _keys_as_text(one)
            for key, one in value.items()
        }
    if isinstance(value, list | tuple):
        return [_keys_as_text(one) for one in value]
    return value
