"""Which masked positions of a block are unmasked at a denoising step.

Every strategy unmasks at least the scheduled number of positions, so `denoising_steps` bounds the
forwards a block takes. Ties go to the leftmost position. Names follow SDAR's generation code.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidates:
    """The masked positions of one block, left to right, with what the model says about each."""

    logprobs: Sequence[float]
    """Untempered log-probability of the token that would be placed."""
    entropies: Sequence[float] | None
    """Entropy over the vocabulary, in nats; only for strategies that need it."""


def scheduled_number(step: int, block_size: int, denoising_steps: int) -> int:
    """Positions to unmask at a 0-based step: the block spread evenly, the remainder first."""
    if step >= denoising_steps:
        return 1
    base, remainder = divmod(block_size, denoising_steps)
    return base + (step < remainder)


def sequential(candidates: Candidates, scheduled: int, bound: float) -> list[int]:
    """The leftmost scheduled positions."""
    return list(range(min(scheduled, len(candidates.logprobs))))


def low_confidence_static(candidates: Candidates, scheduled: int, bound: float) -> list[int]:
    """The scheduled number of positions, by highest probability."""
    logprobs = candidates.logprobs
    order = sorted(range(len(logprobs)), key=lambda index: -logprobs[index])
    return sorted(order[:scheduled])


def low_confidence_dynamic(candidates: Candidates, scheduled: int, bound: float) -> list[int]:
    """Every position whose probability exceeds `bound`; the static choice where those are too few."""
    limit = math.log(bound) if bound > 0 else -math.inf
    sure = [index for index, logprob in enumerate(candidates.logprobs) if logprob > limit]
    return sure if len(sure) >= scheduled else low_confidence_static(candidates, scheduled, bound)


def entropy_bounded(candidates: Candidates, scheduled: int, bound: float) -> list[int]:
    """Positions by lowest entropy while the entropies add up to at most `bound` nats."""
    entropies = candidates.entropies
    assert entropies is not None
    order = sorted(range(len(entropies)), key=lambda index: entropies[index])
    total, count = 0.0, 0
    for index in order:
        total += entropies[index]
        if total > bound:
            break
        count += 1
    return sorted(order[: max(count, scheduled)])


Strategy = Callable[[Candidates, int, float], list[int]]

STRATEGIES: dict[str, Strategy] = {
    "sequential": sequential,
    "low_confidence_static": low_confidence_static,
    "low_confidence_dynamic": low_confidence_dynamic,
    "entropy_bounded": entropy_bounded,
}
