"""Comparisons against values computed by hand; what must not be compared is refused or named."""

import json

import pytest

from dice.errors import UserError
from dice.eval.compare import Run, compare
from dice.eval.report import comparison_json, comparison_markdown, comparison_rows, remarks
from tests.unit.eval.builders import Chosen, fill, verdict
from tests.unit.eval.test_report_text import tables

GPU = {"backend": "cuda", "gpu": "a GPU", "timing": True}


def run(path, table, **changes) -> Run:
    return Run.of(fill(path, table, **{"name": path.name, **changes}))


def result(found, measure, level=1):
    return next(r.paired for r in found.results if (r.measure, r.level) == (measure, level))


def test_single_samples_by_hand(tmp_path):
    """Of four problems b wins two, loses one: difference 1/4; of 8 signs 6 give a sum of at least 1."""
    right, wrong = verdict("correct"), verdict("wrong")
    a = run(
        tmp_path / "a", {(1, 0): right, (2, 0): wrong, (3, 0): wrong, (4, 0): right}, problems=4
    )
    b = run(
        tmp_path / "b", {(1, 0): right, (2, 0): right, (3, 0): right, (4, 0): wrong}, problems=4
    )
    found = compare(a, b)
    pair = result(found, "Exec")
    assert (pair.a, pair.b, pair.difference.value) == (0.5, 0.75, 0.25)
    assert (pair.wins, pair.losses, pair.p_value) == (2, 1, 1.0)
    assert [(c.problem_id, c.a, c.b) for c in found.changed] == [(2, 0, 1), (3, 0, 1), (4, 1, 0)]
    assert "judged on a CPU" not in str(found.not_compared)
    assert "no speed was measured for a and b" in found.not_compared["fast_1"]
    assert not [one for one in found.results if one.measure.startswith("best")]


def test_samples_filter_and_speed_by_hand(tmp_path):
    fast, slow = verdict("correct", speedup=2.0), verdict("correct", speedup=0.5)
    fake, wrong = verdict("no_custom_kernel", speedup=5.0), verdict("wrong")
    a = run(
        tmp_path / "a",
        {(1, 0): slow, (1, 1): slow, (2, 0): wrong, (2, 1): fake},
        samples=2,
        place=GPU,
    )
    b = run(
        tmp_path / "b",
        {(1, 0): fast, (1, 1): wrong, (2, 0): fast, (2, 1): fast},
        samples=2,
        place=GPU,
    )
    found = compare(a, b)
    values = {one.measure: (one.paired.a, one.paired.b) for one in found.results}
    assert values == {
        "Exec": (0.5, 0.75),
        "Exec, no filter": (0.75, 0.75),
        "best of 2": (0.5, 1.0),
        "fast_1 eager": (0.0, 0.75),
    }
    assert [(c.measure, c.problem_id, c.a, c.b) for c in found.changed] == [
        ("Exec", 1, 1.0, 0.5),
        ("Exec", 2, 0.0, 1.0),
        ("fast_1 eager", 1, 0.0, 0.5),
        ("fast_1 eager", 2, 0.0, 1.0),
    ]


def test_levels_and_all_of_them(tmp_path):
    problems = tuple(
        Chosen(level=level, problem_id=1, stem="1_Some", code_hash="hash1") for level in (1, 2)
    )
    right = {(1, 0): verdict("correct")}
    a = Run.of(fill(tmp_path / "a", right))
    both = []
    for one in (a, a):
        outcomes = [o for o in one.outcomes if o.problem_id == 1]
        from dataclasses import replace

        second = replace(outcomes[0], level=2, correct=len(both) == 1)
        config = one.config.model_copy(update={"problems": problems})
        both.append(Run(config=config, outcomes=(*outcomes, second), name=f"run {len(both)}"))
    found = compare(*both)
    assert [one.level for one in found.results if one.measure == "Exec"] == [1, 2, None]
    assert result(found, "Exec", 2).difference.value == 1.0
    assert result(found, "Exec", None).difference.value == 0.5


def test_what_is_left_out_is_named(tmp_path):
    right, untestable = verdict("correct"), verdict("untestable")
    a = run(tmp_path / "a", {(n, 0): right for n in (1, 2, 3, 4)}, problems=5)
    b = run(
        tmp_path / "b", {(1, 0): right, (2, 0): None, (3, 0): untestable, (4, 0): right}, problems=4
    )
    changed = b.config.problems[3].model_copy(update={"code_hash": "other"})
    config = b.config.model_copy(update={"problems": (*b.config.problems[:3], changed)})
    found = compare(a, Run(config=config, outcomes=b.outcomes, name="b"))
    assert found.problems == 1
    assert {one.problem_id: one.why for one in found.left_out} == {
        2: "not finished in b",
        3: "untestable in b alone",
        4: "its code differs",
        5: "only in a",
    }
    assert "left out: 1 problems: its code differs" in remarks(found)


def test_untestable_in_both_counts_for_neither(tmp_path):
    table = {(1, 0): verdict("untestable"), (2, 0): verdict("correct")}
    found = compare(run(tmp_path / "a", table), run(tmp_path / "b", table))
    pair = result(found, "Exec")
    assert (pair.problems, pair.a, pair.b, pair.p_value) == (2, 0.5, 0.5, 1.0)
    assert found.changed == ()


def test_a_cpus_results_and_a_gpus_are_refused(tmp_path):
    table = {(1, 0): verdict("correct")}
    with pytest.raises(UserError, match="never compared"):
        compare(run(tmp_path / "a", table), run(tmp_path / "b", table, place=GPU))


def test_speeds_of_different_gpus_are_refused_and_correctness_is_not(tmp_path):
    table = {(n, 0): verdict("correct", speedup=2.0) for n in (1, 2)}
    a = run(tmp_path / "a", table, place=GPU)
    b = run(tmp_path / "b", table, place={**GPU, "gpu": "another GPU"})
    with pytest.raises(UserError, match="speeds of different GPUs"):
        compare(a, b)
    found = compare(a, b, speed=False)
    assert {one.measure for one in found.results} == {"Exec", "Exec, no filter"}
    assert any("different GPUs" in one for one in found.warnings)


def test_nothing_in_common_is_refused(tmp_path):
    a = run(tmp_path / "a", {(1, 0): verdict("correct")}, problems=1)
    b = run(tmp_path / "b", {(1, 0): None}, problems=1)
    with pytest.raises(UserError, match="no problem in common"):
        compare(a, b)


def test_differences_in_the_making_are_warned_of(tmp_path):
    table = {(1, 0): verdict("correct"), (2, 0): verdict("wrong")}
    a = run(tmp_path / "a", table, policy={"relative": 1e-4}, dataset_version="1")
    b = run(tmp_path / "b", table, policy={"relative": 1e-3}, dataset_version="2")
    text = " ".join(compare(a, b).warnings)
    assert "versions differ (1, 2)" in text
    assert "policies differ in relative" in text
    assert compare(a, a).warnings == ()


def test_different_numbers_of_samples(tmp_path):
    a = run(tmp_path / "a", {(1, 0): verdict("correct")}, problems=1)
    table = {(1, 0): verdict("correct"), (1, 1): verdict("wrong")}
    b = run(tmp_path / "b", table, problems=1, samples=2)
    found = compare(a, b)
    assert (result(found, "Exec").a, result(found, "Exec").b) == (1.0, 0.5)
    assert "more is better by itself" in found.not_compared["best of n"]


def test_json_markdown_and_rows(tmp_path):
    right, wrong = verdict("correct"), verdict("wrong")
    a = run(tmp_path / "a|b", {(1, 0): wrong, (2, 0): wrong}, problems=3, name="a|b`")
    b = run(tmp_path / "b", {(1, 0): right, (2, 0): wrong})
    found = compare(a, b)
    text = comparison_markdown(found)
    numbers, changed, left_out = tables(text)
    assert numbers[2][:4] == ["Exec", "1", "0.0 %", "50.0 %"]
    assert changed[2] == [r"level1/1\_Some", "Exec", "0 %", "100 %"]
    assert left_out[2] == [r"level1/3\_Some", r"only in a\|b\`"]
    rows = comparison_rows(found)
    assert {len(row) for row in rows.rows} == {len(rows.header)}
    assert rows.rows[0][-1] == "1/0"
    assert json.loads(json.dumps(comparison_json(found), allow_nan=False))["problems"] == 2
