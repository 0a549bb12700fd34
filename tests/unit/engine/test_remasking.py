"""Remasking strategies on hand-made confidences, and their shared guarantee by property."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dice.engine.remasking import STRATEGIES, Candidates, scheduled_number


def make(probs: list[float], entropies: list[float] | None = None) -> Candidates:
    return Candidates(logprobs=[math.log(p) for p in probs], entropies=entropies)


@pytest.mark.parametrize(
    ("strategy", "scheduled", "bound", "expected"),
    [
        ("sequential", 1, 0.9, [0]),
        ("sequential", 2, 0.9, [0, 1]),
        ("low_confidence_static", 1, 0.9, [2]),
        ("low_confidence_static", 2, 0.9, [1, 2]),
        ("low_confidence_dynamic", 1, 0.9, [1, 2]),
        ("low_confidence_dynamic", 1, 0.99, [2]),
        ("low_confidence_dynamic", 3, 0.9, [1, 2, 3]),
        ("low_confidence_dynamic", 1, 0.0, [0, 1, 2, 3]),
        ("entropy_bounded", 1, 0.05, [2]),
        ("entropy_bounded", 1, 0.5, [1, 2]),
        ("entropy_bounded", 1, 0.0, [2]),
        ("entropy_bounded", 3, 0.0, [1, 2, 3]),
        ("entropy_bounded", 1, 99.0, [0, 1, 2, 3]),
    ],
)
def test_chosen_positions(strategy: str, scheduled: int, bound: float, expected: list[int]) -> None:
    candidates = make([0.3, 0.95, 0.97, 0.5], [2.0, 0.4, 0.1, 1.0])
    assert STRATEGIES[strategy](candidates, scheduled, bound) == expected


def test_ties_go_to_the_left() -> None:
    for strategy in STRATEGIES.values():
        assert strategy(make([0.5, 0.5, 0.5], [1.0, 1.0, 1.0]), 1, 0.6) == [0]


@given(
    probs=st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=16),
    scheduled=st.integers(1, 16),
    bound=st.floats(0.0, 1.0),
    name=st.sampled_from(sorted(STRATEGIES)),
)
def test_at_least_the_scheduled_number_is_chosen(
    probs: list[float], scheduled: int, bound: float, name: str
) -> None:
    candidates = make(probs, [1.0 - p for p in probs])
    chosen = STRATEGIES[name](candidates, scheduled, bound)
    assert chosen == sorted(set(chosen))
    assert set(chosen) <= set(range(len(probs)))
    assert len(chosen) >= min(scheduled, len(probs))


@given(block_size=st.integers(1, 32), data=st.data())
def test_the_schedule_spreads_the_block_over_its_steps(
    block_size: int, data: st.DataObject
) -> None:
    steps = data.draw(st.integers(1, block_size))
    numbers = [scheduled_number(step, block_size, steps) for step in range(steps)]
    assert sum(numbers) == block_size
    assert max(numbers) - min(numbers) <= 1
    assert numbers == sorted(numbers, reverse=True)
