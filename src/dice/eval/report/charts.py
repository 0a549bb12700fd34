"""Where the marks of the report's two charts go; the template draws them."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from dice.eval.outcomes import Outcome
from dice.eval.report.table import BASELINES
from dice.eval.summary import LevelSummary

KINDS = (
    *(
        "correct",
        "no_custom_kernel",
        "hack",
        "unsafe",
        "wrong",
        "launch_error",
        "crashed",
        "timeout",
    ),
    *("compile_error", "untestable", "context_overflow", "refused", "rejected"),
    *("machine error", "not judged", "not generated"),
)
"""From what came furthest to what is not there yet."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One kind's share of a bar; `x` and `width` in percent."""

    kind: str
    css: str
    count: int
    x: float
    width: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    level: int
    samples: int
    parts: tuple[Part, ...]
    text: str
    """The bar in words."""


def bars(levels: Sequence[LevelSummary]) -> list[Bar]:
    """Of each level, how its samples ended."""
    return [_bar(one) for one in levels if one.samples]


def _bar(level: LevelSummary) -> Bar:
    order = {kind: place for place, kind in enumerate(KINDS)}
    parts, x = [], 0.0
    for kind, count in sorted(level.kinds.items(), key=lambda pair: order.get(pair[0], len(order))):
        width = 100 * count / level.samples
        parts.append(
            Part(kind=kind, css=css(kind), count=count, x=round(x, 3), width=round(width, 3))
        )
        x += width
    words = ", ".join(f"{one.count} {one.kind.replace('_', ' ')}" for one in parts)
    return Bar(
        level=level.level,
        samples=level.samples,
        parts=tuple(parts),
        text=f"Level {level.level}, {level.samples} samples: {words}.",
    )


def css(kind: str) -> str:
    """The class of a kind's colour."""
    return f"k-{kind.replace(' ', '_')}" if kind in KINDS else "k-other"


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One bin, in pixels."""

    x: float
    y: float
    width: float
    height: float
    count: int
    label: str
    """As in "1.41x to 2x"."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tick:
    x: float
    label: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Histogram:
    """Speedups of one baseline on a logarithmic axis."""

    over: str
    count: int
    faster: int
    width: int
    height: int
    floor: float
    """Where the axis is."""
    columns: tuple[Column, ...]
    ticks: tuple[Tick, ...]
    one_x: float
    """Where the line at 1x is."""
    text: str


_HEIGHT, _TOP, _BOTTOM, _SIDE = 190, 24, 34, 22


def histogram(outcomes: Sequence[Outcome], over: str, width: int) -> Histogram | None:
    """Of all correct samples with a believed time; None without one."""
    values = [s for one in outcomes if one.correct and (s := one.speedup(over)) and s > 0]
    if not values:
        return None
    lowest, highest = math.log2(min(values)), math.log2(max(values))
    step = next(one for one in (0.5, 1.0, 2.0, 4.0, 8.0, 200.0) if highest - lowest <= 24 * one)
    first = min(math.floor(lowest / step), -2)
    last = max(math.floor(highest / step) + 1, 2)
    counts = [0] * (last - first)
    for value in values:
        counts[min(math.floor(math.log2(value) / step) - first, len(counts) - 1)] += 1
    room, floor = (width - 2 * _SIDE) / len(counts), _HEIGHT - _BOTTOM
    columns = []
    for i, count in enumerate(counts):
        height = (floor - _TOP) * count / max(counts)
        columns.append(
            Column(
                x=round(_SIDE + i * room + 1, 2),
                y=round(floor - height, 2),
                width=round(room - 2, 2),
                height=round(height, 2),
                count=count,
                label=f"{_x((first + i) * step)} to {_x((first + i + 1) * step)}",
            )
        )
    every = max(1, math.ceil(len(counts) * 46 / (width - 2 * _SIDE)))
    ticks = [
        Tick(x=round(_SIDE + (edge - first) * room, 2), label=_x(edge * step))
        for edge in range(first, last + 1)
        if edge % every == 0
    ]
    faster = sum(value > 1 for value in values)
    return Histogram(
        over=over,
        count=len(values),
        faster=faster,
        width=width,
        height=_HEIGHT,
        floor=floor,
        columns=tuple(columns),
        ticks=tuple(ticks),
        one_x=round(_SIDE - first * room, 2),
        text=(
            f"Speedup over {BASELINES.get(over, over)} of {len(values)} correct samples with a believed "
            f"time: from {min(values):.3g}x to {max(values):.3g}x, {faster} above 1x."
        ),
    )


def _x(exponent: float) -> str:
    return f"{2**exponent:.3g}x"
