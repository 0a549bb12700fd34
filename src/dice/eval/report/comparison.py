"""A comparison of two runs as JSON, Markdown and rows for a terminal."""

from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from dice.eval.compare import Comparison, Result
from dice.eval.report.md import escape, table
from dice.eval.report.table import Table


def comparison_json(found: Comparison) -> dict[str, Any]:
    """Plain data; `level` is null for all levels together."""
    return {"format": 1, **asdict(found)}


def comparison_rows(found: Comparison) -> Table:
    """A line per measure and level: both shares, the difference in points, the test, and on
    how many problems B is better and worse."""
    return Table(
        header=("measure", "level", "A", "B", "B - A, points", "p", "+/-"),
        rows=tuple(_row(one) for one in found.results),
    )


def _row(one: Result) -> tuple[str, ...]:
    pair = one.paired
    difference = pair.difference
    points = f"{100 * difference.value:+.1f} ({100 * difference.low:+.0f} to {100 * difference.high:+.0f})"
    return (
        one.measure,
        "all" if one.level is None else str(one.level),
        f"{100 * pair.a:.1f} %",
        f"{100 * pair.b:.1f} %",
        points,
        p_value(pair.p_value),
        f"{pair.wins}/{pair.losses}",
    )


def p_value(value: float) -> str:
    """Two digits, no more than the test has."""
    return "<0.001" if value < 0.001 else f"{value:.2g}" if value < 0.1 else f"{value:.2f}"


def remarks(found: Comparison) -> list[str]:
    """What a reader must know beside the numbers, a sentence each."""
    lines = [f"warning: {one}" for one in found.warnings]
    lines += [f"not compared: {name}: {why}" for name, why in found.not_compared.items()]
    reasons: dict[str, int] = {}
    for one in found.left_out:
        reasons[one.why] = reasons.get(one.why, 0) + 1
    lines += [f"left out: {count} problems: {why}" for why, count in reasons.items()]
    return lines


def comparison_markdown(found: Comparison) -> str:
    """With the list of the problems that changed."""
    return "\n".join(_parts(found))


def _parts(found: Comparison) -> Iterable[str]:
    yield f"# {escape(found.b)} beside {escape(found.a)}\n"
    yield (
        f"A is {escape(found.a)} ({found.samples[0]} samples of each problem), B is {escape(found.b)} "
        f"({found.samples[1]}); {found.problems} problems are compared.\n"
    )
    if lines := remarks(found):
        yield "".join(f"- {escape(line)}\n" for line in lines)
    rows = comparison_rows(found)
    yield table(
        [escape(one) for one in rows.header], [[escape(cell) for cell in row] for row in rows.rows]
    )
    yield (
        "Intervals hold the difference with 95 % confidence, by bootstrap over problems; p is of a two-sided "
        "sign-flip test over problems; +/- counts those on which B is better and worse.\n"
    )
    if found.changed:
        yield "## Problems that changed\n"
        yield table(
            ("problem", "measure", "A", "B"),
            [
                (
                    escape(f"level{one.level}/{one.stem}"),
                    escape(one.measure),
                    f"{100 * one.a:.0f} %",
                    f"{100 * one.b:.0f} %",
                )
                for one in found.changed
            ],
        )
    if found.left_out:
        yield "## Problems that were left out\n"
        yield table(
            ("problem", "why"),
            [(escape(f"level{one.level}/{one.stem}"), escape(one.why)) for one in found.left_out],
        )
