"""Markdown, JSON and the rows of a terminal: the same numbers, whatever is missing."""

import json
import re
from dataclasses import asdict

import pytest

from dice.eval import plan, report
from dice.eval.outcomes import outcomes, upstream_outcomes
from dice.eval.records import Upstream
from dice.eval.report.formats import NONE, money, number, percent, ratio
from dice.eval.report.md import escape
from dice.eval.report.table import level_facts, measures
from dice.eval.summary import summarise
from dice.verify import Policy
from tests.unit.eval.builders import config, fill, verdict

GPU = {"backend": "cuda", "gpu": "a GPU", "timing": True}


def scored(store, **options):
    found = outcomes(store.log, store.config.problems, store.config.sampling.samples, **options)
    return found, summarise(found)


def cells(line: str) -> list[str]:
    return [one.strip() for one in re.split(r"(?<!\\)\|", line)[1:-1]]


def tables(text: str) -> list[list[list[str]]]:
    """Every table, cell by cell. Raises AssertionError for one that GitHub would not show."""
    found, rows = [], []
    for line in [*text.splitlines(), ""]:
        if line.startswith("|"):
            rows.append(cells(line))
        elif rows:
            found.append(rows)
            rows = []
    for one in found:
        assert len(one) >= 2
        assert all(re.fullmatch("---:?", cell) for cell in one[1])
        assert len({len(row) for row in one}) == 1
    return found


CORNERS = {
    "empty": {},
    "unjudged": {(1, 0): None, (2, 0): None},
    "untestable": {(1, 0): verdict("untestable"), (2, 0): verdict("untestable")},
    "failures": {(1, 0): "context_overflow", (2, 0): "refused"},
    "refused": {(1, 0): verdict("correct", speedup=9.0, refused="clocks differ")},
    "half": {(1, 0): verdict("correct", speedup=2.0)},
}


@pytest.mark.parametrize("place", [{"backend": "simt"}, GPU], ids=["cpu", "gpu"])
@pytest.mark.parametrize("samples", [1, 3])
@pytest.mark.parametrize("corner", CORNERS)
def test_every_corner_has_tables_rows_and_finite_json(tmp_path, corner, samples, place):
    store = fill(tmp_path / "run", CORNERS[corner], samples=samples, place=place)
    found, levels = scored(store)
    text = report.markdown(store, found, levels)
    assert tables(text)
    assert not {"nan", "none", "inf"} & set(text.lower().split())
    plain = report.run_json(store, found, levels)
    assert json.loads(json.dumps(plain, allow_nan=False)) == json.loads(json.dumps(plain))
    run = report.facts(store, found)
    table = report.rows(run, levels)
    assert {len(row) for row in table.rows} == {len(table.header)} == {2}
    assert run.finished == (corner in ("untestable", "failures") and samples == 1)
    for measure in measures(run, levels):
        for cell in (measure.cell(levels[0].filtered), measure.cell(levels[0].unfiltered)):
            assert bool(cell.why) == (cell.text == NONE)


def test_a_run_without_problems(tmp_path):
    store = fill(tmp_path / "run", {}, problems=0)
    assert "no problems" in report.markdown(store, [], [])
    assert report.rows(report.facts(store, []), []).header == ("",)
    assert report.run_json(store, [], [])["levels"] == []


def test_the_numbers_are_the_summarys(tmp_path):
    table = {(1, 0): verdict("correct", speedup=3.0), (2, 0): verdict("no_custom_kernel")}
    table |= {(3, 0): verdict("untestable"), (4, 0): verdict("correct", speedup=0.5)}
    store = fill(tmp_path / "run", table, problems=4, place=GPU)
    found, levels = scored(store)
    filtered = levels[0].filtered
    lines = dict(report.rows(report.facts(store, found), levels).rows)
    assert lines["Exec"] == percent(filtered.exec) == "50.0 % (0–100)"
    assert lines["fast_1 eager"].startswith("25.0 %")
    assert lines["speedup eager"] == ratio(filtered.speedup["eager"])
    overview, measured, *_ = tables(report.markdown(store, found, levels))[1:]
    assert ["Exec", percent(filtered.exec)] in overview
    assert ["Exec, without hack filter", percent(levels[0].unfiltered.exec)] in overview
    row = next(row for row in measured if row[0] == "Exec, testable only")
    assert row[1:] == [percent(filtered.exec_testable), percent(levels[0].unfiltered.exec_testable)]
    plain = report.run_json(store, found, levels)["levels"][0]
    assert plain["filtered"]["exec"]["value"] == filtered.exec.value
    assert plain["untestable"] == ["level1/3_Some"]


def test_three_levels_fit_a_terminal_of_80_columns(tmp_path):
    from dice.eval.outcomes import Outcome

    found = [
        Outcome(
            level=level,
            problem_id=n,
            sample=s,
            stem=f"{n}_Some",
            status="correct",
            correct=True,
            correct_unfiltered=True,
            speedups=(("eager", 1.5 + n), ("compile", 0.7)),
        )
        for level in (1, 2, 3)
        for n in range(20)
        for s in range(16)
    ]
    store = fill(tmp_path / "run", {}, problems=1, samples=16, place=GPU)
    table = report.rows(report.facts(store, found), summarise(found))
    widths = [max(map(len, column)) for column in zip(table.header, *table.rows, strict=True)]
    assert sum(widths) + 2 * (len(widths) - 1) <= 80


def test_a_level_without_times_is_not_faster_where_another_level_was_timed(tmp_path):
    from dataclasses import replace

    found, _ = scored(fill(tmp_path / "run", {(1, 0): verdict("correct", speedup=2.0)}))
    levels = summarise([replace(found[0], level=1), replace(found[1], level=2)])
    assert levels[1].filtered.fast["eager"][1.0].value == 0.0
    assert levels[1].filtered.speedup == {}


def test_where_and_how_it_was_judged(tmp_path):
    policy = {**plan.policy_record(Policy()), "relative": 1e-3}
    policy = {**policy, "limits": {**policy["limits"], "wall_s": 9.0}}
    store = fill(tmp_path / "run", {(1, 0): verdict("correct")}, policy=policy)
    found, levels = scored(store)
    run = report.facts(store, found)
    assert {one.name: one.run for one in run.policy_changes} == {
        "relative": 1e-3,
        "limits.wall_s": 9.0,
    }
    text = report.markdown(store, found, levels)
    assert "relative 0.001 (default 0.0001)" in text
    assert "emulation on a CPU: correctness only, at reduced problem sizes" in text
    assert "1 not generated" in text
    assert run.unfinished == {"not generated": 1}


def test_a_run_that_was_scored_anew_says_so(tmp_path):
    store = fill(tmp_path / "run", {(1, 0): verdict("no_custom_kernel"), (2, 0): verdict("wrong")})
    found, levels = scored(
        store, earns=dict.fromkeys(("custom", "mixed", "library", "pytorch"), "correct")
    )
    assert report.facts(store, found).rescored == 1
    assert "1 verdicts differ" in report.markdown(store, found, levels)


def test_what_kernelbenchs_scripts_said_is_not_called_judged(tmp_path):
    model = {"kind": "imported", "from": "their run"}
    store = fill(tmp_path / "run", {(1, 0): None, (2, 0): None}, model=model, place=GPU)
    with store:
        store.append(
            Upstream(
                level=1,
                problem_id=1,
                sample=0,
                compiled=True,
                correctness=True,
                runtime_ms=1.0,
                baseline_ms={"eager": 2.0},
            )
        )
    found = upstream_outcomes(store.log, store.config.problems, 1)
    levels = summarise(found)
    run = report.facts(store, found)
    assert (run.judged_by, run.finished) == ("kernelbench", True)
    lines = dict(report.rows(run, levels).rows[:2])
    assert lines["Exec"] == NONE
    assert lines["  without filter"].startswith("50.0 %")
    assert any("no hack filter" in one for one in run.limits)
    assert any("nothing about 1 samples" in one for one in run.limits)
    assert "KernelBench's own scripts" in report.markdown(store, found, levels)


def test_refused_times_are_counted(tmp_path):
    table = {(1, 0): verdict("correct", speedup=50.0, refused="x"), (2, 0): verdict("wrong")}
    store = fill(tmp_path / "run", table, place=GPU)
    found, levels = scored(store)
    run = report.facts(store, found)
    counts = {one.label: one.value.text for one in level_facts(levels[0], run)}
    assert counts["correct without a time"] == counts["of these, time refused"] == "1"
    assert counts["tokens per forward"] == "2.5"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a|b`c`", r"a\|b\`c\`"),
        ("line\nbreak\x00 \u202e", "line break"),
        ("<script>&amp;", r"\<script\>\&amp;"),
        ("[x](javascript:1)", r"\[x\](javascript:1)"),
        ("+41.0 % (-32 to 50)", "+41.0 % (-32 to 50)"),
        ("41.0 % (32–50)", "41.0 % (32–50)"),
        ("fast_1 *x* @who #3", r"fast\_1 \*x\* \@who \#3"),
    ],
)
def test_text_cannot_leave_its_cell(text, shown):
    assert escape(text) == shown


def test_short_numbers():
    assert (number(None), number(0), number(1234.4), number(2.5, "s")) == (
        "—",
        "0",
        "1,234",
        "2.5 s",
    )
    assert (money(None), money(0.0), money(0.00123), money(1234.5)) == (
        *("—", "$0.00", "$0.0012"),
        "$1,234.50",
    )
    assert percent(None) == ratio(None) == NONE


def test_summary_json_names_no_folder_and_no_command(tmp_path):
    store = fill(
        tmp_path / "run",
        {},
        dataset="/home/me/kb.jsonl",
        options={"model": "/home/me/secret"},
        provenance=({"time": "now", "command": ["/home/me/dice"]},),
    )
    plain = report.run_json(store, *scored(store))
    assert plain["run"]["dataset"] == "kb.jsonl"
    assert "/home/me" not in json.dumps(plain)
    assert asdict(report.facts(store, []))["name"] == config().name
