"""A run's numbers on a terminal."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dice.eval.compare import Comparison
    from dice.eval.outcomes import Outcome
    from dice.eval.report import Table
    from dice.eval.store import Store
    from dice.eval.summary import LevelSummary

_SHOWN_KINDS = 8
_SHOWN_CHANGES = 20


def print_levels(
    console: Any, store: "Store", outcomes: "Sequence[Outcome]", levels: "Sequence[LevelSummary]"
) -> None:
    """What the run was, its measures by level, how candidates ended."""
    from dice.eval.report import facts, rows

    run = facts(store, outcomes)
    model = run.model.get("model") or run.model.get("from") or run.model.get("kind")
    console.print(
        f"{run.name}: {model}, {run.problems} problems, {run.samples} sample"
        f"{'s' * (run.samples != 1)} each, KernelBench {run.dataset_version}",
        markup=False,
    )
    for limit in run.limits:
        console.print(limit, style="yellow", markup=False)
    if not run.finished:
        counts = ", ".join(f"{count} {status}" for status, count in run.unfinished.items())
        console.print(f"not finished: {counts}", style="bold red", markup=False)
    print_table(console, rows(run, levels))
    for level in levels:
        kinds = list(level.kinds.items())
        text = ", ".join(f"{count} {kind}" for kind, count in kinds[:_SHOWN_KINDS])
        more = sum(count for _, count in kinds[_SHOWN_KINDS:])
        console.print(
            f"level {level.level}: {text}{f', {more} others' if more else ''}", markup=False
        )


def print_comparison(console: Any, found: "Comparison") -> None:
    """Differences with their intervals, what was left out, which problems changed."""
    from dice.eval.report import comparison_rows, remarks

    for remark in remarks(found):
        console.print(remark, style="yellow", markup=False)
    print_table(console, comparison_rows(found))
    for one in found.changed[:_SHOWN_CHANGES]:
        console.print(
            f"level {one.level}, {one.stem}: {one.measure} {one.a:g} -> {one.b:g}", markup=False
        )
    more = len(found.changed) - _SHOWN_CHANGES
    if more > 0:
        console.print(f"and {more} more: --json or --markdown FILE has them all", markup=False)


def print_table(console: Any, table: "Table") -> None:
    """Texts in columns; the first to the left, the others to the right."""
    from rich import box
    from rich.table import Table as Columns
    from rich.text import Text

    shown = Columns(box=box.SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(table.header):
        shown.add_column(Text(name), justify="left" if index == 0 else "right", no_wrap=index > 0)
    for row in table.rows:
        dim = row[0].startswith(" ")
        shown.add_row(*(Text(cell) for cell in row), style="dim" if dim else "")
    console.print(shown)
