"""KernelBench's measures, with intervals: Exec and fast_p, pass@k, geometric-mean speedup.

    fast_p = share of problems whose candidate is correct and more than p times as fast as the baseline
             (Ouyang et al., "KernelBench", 2025); fast_0 is Exec
    pass@k = mean over problems of 1 - C(n - c, k) / C(n, k) (Chen et al., "Evaluating Large Language Models
             Trained on Code", 2021), unbiased for n >= k samples of which c succeed

With n samples a problem's fast_p is the share of its samples, so that the mean over problems is pass@1. An
interval is the percentile bootstrap over problems, which are what a benchmark samples. Nothing here is NaN:
where there is nothing to average the value is None.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

DRAWS, CONFIDENCE = 2000, 0.95
_QUANTILE = 1.96
"""Of the normal distribution, for this confidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A value with the interval that holds it with 95 % confidence."""

    value: float
    low: float
    high: float


def pass_at_k(samples: int, successes: int, k: int) -> float | None:
    """The unbiased estimator for one problem; None where there are fewer samples than k.

    Raises ValueError for counts that cannot be.
    """
    if k < 1 or not 0 <= successes <= samples:
        raise ValueError(f"pass@{k} of {successes} successes in {samples} samples")
    if samples < k:
        return None
    if samples - successes < k:
        return 1.0
    return 1.0 - math.comb(samples - successes, k) / math.comb(samples, k)


def mean(values: Sequence[float], *, seed: int = 0) -> Estimate | None:
    """Mean over problems of shares between 0 and 1, and its bootstrap interval.

    Where all are 0, or all 1, a bootstrap sees no spread; the interval then ends where Wilson's does.
    """
    found = _bootstrap(np.asarray(values, dtype=np.float64), seed)
    if found is None or found.low != found.high or found.value not in (0.0, 1.0):
        return found
    reach = _QUANTILE**2 / (len(values) + _QUANTILE**2)
    if found.value == 0.0:
        return Estimate(value=0.0, low=0.0, high=reach)
    return Estimate(value=1.0, low=1.0 - reach, high=1.0)


def geometric_mean(values: Sequence[float], *, seed: int = 0) -> Estimate | None:
    """Of positive ratios."""
    if any(not value > 0 or not math.isfinite(value) for value in values):
        raise ValueError("a geometric mean takes positive, finite values")
    found = _bootstrap(np.log(np.asarray(values, dtype=np.float64)), seed)
    if found is None:
        return None
    return Estimate(value=math.exp(found.value), low=math.exp(found.low), high=math.exp(found.high))


def median(values: Sequence[float]) -> float | None:
    return float(np.median(values)) if len(values) else None


def _bootstrap(values: NDArray[np.float64], seed: int) -> Estimate | None:
    if values.size == 0:
        return None
    rng = np.random.default_rng(seed)
    draws = values[rng.integers(values.size, size=(DRAWS, values.size))].mean(axis=1)
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.percentile(draws, [tail, 100 - tail])
    return Estimate(value=float(values.mean()), low=float(low), high=float(high))


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """Two runs on the same problems: b - a."""

    problems: int
    a: float
    b: float
    difference: Estimate
    p_value: float
    """Two-sided, of a sign-flip permutation test: how often as large a difference comes about when on
    every problem it is a coin's toss which run is called which."""
    wins: int
    """Problems on which b is better."""
    losses: int


_EXACT = 16
_FLIPS = 20_000


def paired(a: Sequence[float], b: Sequence[float], *, seed: int = 0) -> Paired | None:
    """Compare two runs, given one value per problem, in the same order. None without a problem."""
    first, second = np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)
    if first.shape != second.shape:
        raise ValueError("one value per problem of each run")
    differences = second - first
    difference = _bootstrap(differences, seed)
    if difference is None:
        return None
    return Paired(
        problems=differences.size,
        a=float(first.mean()),
        b=float(second.mean()),
        difference=difference,
        p_value=_sign_flip(differences[differences != 0], seed),
        wins=int((differences > 0).sum()),
        losses=int((differences < 0).sum()),
    )


def _sign_flip(differences: NDArray[np.float64], seed: int) -> float:
    """Problems without a difference say nothing; with few others every combination of signs is tried."""
    count = differences.size
    if count == 0:
        return 1.0
    exact = count <= _EXACT
    if exact:
        bits = (np.arange(1 << count)[:, None] >> np.arange(count)) & 1
        signs = 1.0 - 2.0 * bits
    else:
        signs = np.random.default_rng(seed).choice([-1.0, 1.0], size=(_FLIPS, count))
    sums = np.abs(signs @ differences)
    as_large = int((sums >= abs(differences.sum()) - 1e-12).sum())
    return as_large / len(sums) if exact else (as_large + 1) / (len(sums) + 1)
