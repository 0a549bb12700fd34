"""KernelBench's measures against their definitions, computed another way."""

import itertools
import math
import statistics

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dice.eval.metrics import geometric_mean, mean, paired, pass_at_k


@pytest.mark.parametrize("n", range(1, 7))
def test_pass_at_k_is_the_share_of_draws_with_a_success(n):
    for c, k in itertools.product(range(n + 1), range(1, n + 1)):
        draws = list(itertools.combinations(range(n), k))
        share = statistics.mean(any(i < c for i in draw) for draw in draws)
        assert pass_at_k(n, c, k) == pytest.approx(share)


def test_pass_at_k_says_nothing_beyond_the_samples():
    assert pass_at_k(3, 3, 4) is None
    with pytest.raises(ValueError, match="pass@1 of 4 successes in 3"):
        pass_at_k(3, 4, 1)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=40))
@settings(max_examples=30, deadline=None)
def test_an_interval_holds_its_mean_and_is_repeatable(values):
    found = mean(values)
    assert found is not None
    assert found == mean(values)
    assert found.value == pytest.approx(statistics.mean(values))
    assert found.low - 1e-9 <= found.value <= found.high + 1e-9
    assert 0 <= found.low <= found.high <= 1


def test_the_interval_of_a_share_is_close_to_the_normal_one():
    values = [1.0] * 40 + [0.0] * 60
    found = mean(values)
    assert found is not None
    half = 1.96 * math.sqrt(0.4 * 0.6 / 100)
    assert found.low == pytest.approx(0.4 - half, abs=0.02)
    assert found.high == pytest.approx(0.4 + half, abs=0.02)


def test_all_alike_is_no_certainty():
    """Wilson's interval for 0 and for all of 100: up to 3.7 %."""
    none, all_of_them = mean([0.0] * 100), mean([1.0] * 100)
    assert none is not None
    assert all_of_them is not None
    assert (none.low, none.high) == pytest.approx((0.0, 0.03699), abs=1e-4)
    assert (all_of_them.low, all_of_them.high) == pytest.approx((1 - 0.03699, 1.0), abs=1e-4)
    assert mean([0.5] * 4).low == 0.5


def test_nothing_to_average_is_none():
    assert mean([]) is None
    assert geometric_mean([]) is None
    assert paired([], []) is None


def test_the_geometric_mean_of_a_ratio_and_its_inverse_is_one():
    found = geometric_mean([4.0, 0.25])
    assert found is not None
    assert found.value == pytest.approx(1.0)
    for bad in ([0.0], [-1.0], [math.inf], [math.nan]):
        with pytest.raises(ValueError, match="positive, finite"):
            geometric_mean(bad)


def test_the_paired_test_is_exact_for_few_problems():
    """Of 2^4 signs of four equal differences two are as extreme as all alike: p = 2/16."""
    found = paired([0, 0, 0, 0, 1], [1, 1, 1, 1, 1])
    assert found is not None
    assert found.p_value == pytest.approx(2 / 16)
    assert (found.wins, found.losses) == (4, 0)
    assert (found.a, found.b) == pytest.approx((0.2, 1.0))


def test_mcnemar_and_the_sign_flip_test_agree_on_single_samples():
    """For 0/1 outcomes the test is the two-sided binomial test of wins against losses."""
    a = [0] * 12 + [1] * 4 + [1] * 30
    b = [1] * 12 + [0] * 4 + [1] * 30
    found = paired(a, b)
    assert found is not None
    tail = sum(math.comb(16, i) for i in range(5)) / 2**16
    assert found.p_value == pytest.approx(2 * tail)


def test_equal_runs_do_not_differ_and_large_ones_are_drawn():
    same = paired([0.5] * 30, [0.5] * 30)
    assert same is not None
    assert same.p_value == 1.0
    assert same.difference.value == 0.0
    clear = paired([0.0] * 40, [1.0] * 40)
    assert clear is not None
    assert clear.p_value < 1e-3
    with pytest.raises(ValueError, match="one value per problem"):
        paired([1.0], [1.0, 2.0])
