"""The numbers of a run against the definitions, computed by hand."""

import numpy as np
import pytest

from dice.eval.outcomes import outcomes, rescored
from dice.eval.summary import as_json, summarise
from dice.types import VerdictKind
from tests.unit.eval.builders import fill, verdict


def _levels(store, **options):
    config = store.config
    found = outcomes(store.log, config.problems, config.sampling.samples)
    return summarise(found, **options)


def test_fast_p_equals_kernelbenchs_definition(tmp_path):
    """fast_p = (1/N) sum over problems of [correct and baseline/own > p], strictly."""
    speedups = {1: 0.4, 2: 0.8, 3: 1.0, 4: 1.2, 5: 2.0, 6: 3.0}
    table = {(n, 0): verdict("correct", speedup=s) for n, s in speedups.items()}
    table |= {(7, 0): verdict("wrong"), (8, 0): verdict("compile_error")}
    [level] = _levels(fill(tmp_path / "run", table, problems=8))
    right = np.array([True] * 6 + [False] * 2)
    own = np.array([1 / s for s in speedups.values()] + [1.0, 1.0])
    for p in (0.0, 0.5, 0.8, 1.0, 1.5, 2.0):
        expected = float(((1.0 / own > p) & right).sum() / 8)
        assert level.filtered.fast["eager"][p].value == pytest.approx(expected), p
    assert level.filtered.exec.value == level.filtered.fast["eager"][0.0].value == 6 / 8
    expected = float(np.prod(list(speedups.values())) ** (1 / 6))
    assert level.filtered.speedup["eager"].value == pytest.approx(expected)
    assert level.kinds == {"correct": 6, "wrong": 1, "compile_error": 1}


def test_the_hack_filter_takes_away_what_only_its_outputs_made_right(tmp_path):
    table = {
        (1, 0): verdict("correct", speedup=2.0),
        (2, 0): verdict("no_custom_kernel", speedup=3.0),
        (3, 0): verdict("unsafe"),
    }
    [level] = _levels(fill(tmp_path / "run", table, problems=3))
    assert level.filtered.exec.value == pytest.approx(1 / 3)
    assert level.unfiltered.exec.value == pytest.approx(2 / 3)
    assert level.filtered.fast["eager"][1.0].value == pytest.approx(1 / 3)
    assert level.unfiltered.fast["eager"][1.0].value == pytest.approx(2 / 3)


def test_several_samples(tmp_path):
    table = {
        (1, 0): verdict("correct", speedup=0.5),
        (1, 1): verdict("correct", speedup=4.0),
        (1, 2): verdict("wrong"),
        (1, 3): verdict("wrong"),
        (2, 0): verdict("wrong"),
        (2, 1): verdict("wrong"),
        (2, 2): verdict("wrong"),
        (2, 3): "context_overflow",
    }
    [level] = _levels(fill(tmp_path / "run", table, samples=4))
    scores = level.filtered
    assert scores.exec.value == pytest.approx(0.25)
    assert scores.best.value == 0.5
    assert scores.pass_at[1].value == pytest.approx(0.25)
    assert scores.pass_at[2].value == pytest.approx(0.5 * (1 - 1 / 6))
    assert scores.pass_at[4].value == 0.5
    assert 8 not in scores.pass_at
    assert scores.fast["eager"][1.0].value == pytest.approx(1 / 8)
    assert scores.best_fast["eager"][1.0].value == 0.5
    assert scores.best_speedup["eager"].value == pytest.approx(4.0)
    assert scores.speedup["eager"].value == pytest.approx(2.0**0.5)
    assert level.kinds["context_overflow"] == 1


def test_a_refused_time_is_correct_and_not_fast(tmp_path):
    table = {(1, 0): verdict("correct", speedup=50.0, refused="faster than the memory")}
    [level] = _levels(fill(tmp_path / "run", table, problems=1))
    assert level.filtered.exec.value == 1.0
    assert level.filtered.untimed == 1
    assert level.filtered.fast == {}


def test_untestable_problems_count_and_are_shown(tmp_path):
    table = {(1, 0): verdict("correct"), (2, 0): verdict("untestable")}
    [level] = _levels(fill(tmp_path / "run", table))
    assert level.untestable == ("level1/2_Some",)
    assert level.filtered.exec.value == 0.5
    assert level.filtered.exec_testable.value == 1.0


@pytest.mark.parametrize(
    ("table", "kinds"),
    [
        ({}, {"not generated": 2}),
        ({(1, 0): None, (2, 0): None}, {"not judged": 2}),
        ({(1, 0): verdict("untestable"), (2, 0): verdict("untestable")}, {"untestable": 2}),
        ({(1, 0): "context_overflow", (2, 0): "refused"}, {"context_overflow": 1, "refused": 1}),
    ],
)
def test_corners_have_numbers_and_no_nan(tmp_path, table, kinds):
    levels = _levels(fill(tmp_path / "run", table))
    assert levels[0].kinds == kinds
    assert levels[0].filtered.exec.value == 0.0
    assert levels[0].filtered.speedup == {}
    assert "nan" not in repr(as_json(levels)).lower()


def test_another_policy_rescores_attributions_and_nothing_else():
    earns = dict.fromkeys(("custom", "mixed", "library", "pytorch"), "correct")
    assert rescored(verdict("no_custom_kernel"), earns).kind is VerdictKind.CORRECT
    assert rescored(verdict("wrong"), earns).kind is VerdictKind.WRONG
    strict = dict.fromkeys(earns, "no_custom_kernel")
    assert rescored(verdict("correct"), strict).kind is VerdictKind.NO_CUSTOM_KERNEL
