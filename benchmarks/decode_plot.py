"""Draw the rows of `benchmarks/decode.py --scale` as one SVG: throughput and memory by batch.

    python benchmarks/decode_plot.py benchmarks/results/decode_scale.json

One column a model, one line a context; both axes are logarithmic. The file lies beside the JSON.
"""

import argparse
import json
import math
from html import escape
from pathlib import Path
from typing import Any

_PANELS = (("tokens_per_s", "response tokens/s"), ("peak_gib", "peak memory, GiB"))
_COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#17becf")
_WIDTH, _HEIGHT, _LEFT, _TOP = 300, 200, 70, 50


def draw(rows: list[dict[str, Any]], title: str) -> str:
    """The SVG's text. Cells without a figure leave a gap at the end of their line."""
    shapes = list(dict.fromkeys(row["shape"] for row in rows))
    contexts = sorted({row["context"] for row in rows})
    panels = [one for one in _PANELS if any(row[one[0]] is not None for row in rows)]
    if not panels:
        raise SystemExit("no row has a figure")
    across, down = _WIDTH + _LEFT + 20, _HEIGHT + _TOP + 40
    parts = [_text(_LEFT, 20, title, size=14)]
    for column, shape in enumerate(shapes):
        for line, (field, label) in enumerate(panels):
            mine = [row for row in rows if row["shape"] == shape and row[field] is not None]
            if not mine:
                continue
            inner = _panel(mine, contexts, field, f"{shape}: {label}")
            parts.append(
                f'<g transform="translate({column * across} {30 + line * down})">{inner}</g>'
            )
    for index, context in enumerate(contexts):
        x, y = _LEFT + 90 * index, 30 + len(panels) * down + 10
        parts.append(f'<rect x="{x}" y="{y - 9}" width="10" height="10" fill="{_colour(index)}"/>')
        parts.append(_text(x + 14, y, f"{context} tokens"))
    width, height = len(shapes) * across + 10, 50 + len(panels) * down
    body = "\n".join(parts)
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="sans-serif">\n'
        f'<rect width="100%" height="100%" fill="white"/>\n{body}\n</svg>\n'
    )


def _panel(rows: list[dict[str, Any]], contexts: list[int], field: str, title: str) -> str:
    batches = sorted({row["batch"] for row in rows})
    low, high = min(row[field] for row in rows), max(row[field] for row in rows)
    ticks = _ticks(low, high)
    bottom, top = min(low, ticks[0]), max(high, ticks[-1])

    def x(batch: int) -> float:
        return _LEFT + _WIDTH * _share(batch, batches[0], batches[-1])

    def y(value: float) -> float:
        return _TOP + _HEIGHT * (1 - _share(value, bottom, top))

    parts = [_text(_LEFT, _TOP - 10, title, size=12)]
    parts += [f'<path d="M{_LEFT} {y(tick):.1f}h{_WIDTH}" stroke="#ddd"/>' for tick in ticks]
    parts += [_text(_LEFT - 6, y(tick) + 4, f"{tick:g}", anchor="end") for tick in ticks]
    parts += [_text(x(one), _TOP + _HEIGHT + 16, str(one), anchor="middle") for one in batches]
    parts.append(_text(_LEFT + _WIDTH / 2, _TOP + _HEIGHT + 32, "batch", anchor="middle"))
    for index, context in enumerate(contexts):
        line = sorted((row["batch"], row[field]) for row in rows if row["context"] == context)
        points = [f"{x(batch):.1f},{y(value):.1f}" for batch, value in line]
        parts.append(
            f'<polyline points="{" ".join(points)}" fill="none" stroke="{_colour(index)}"/>'
        )
        parts += [
            f'<circle cx="{point.split(",")[0]}" cy="{point.split(",")[1]}" r="3" '
            f'fill="{_colour(index)}"/>'
            for point in points
        ]
    return "".join(parts)


def _share(value: float, low: float, high: float) -> float:
    return 0.5 if low == high else math.log(value / low) / math.log(high / low)


def _ticks(low: float, high: float) -> list[float]:
    """1, 2 and 5 times powers of ten from the last one at or below `low` to the first at or above `high`."""
    exponents = range(math.floor(math.log10(low)) - 1, math.ceil(math.log10(high)) + 2)
    steps = [m * 10.0**e for e in exponents for m in (1, 2, 5)]
    first = max(one for one in steps if one <= low * (1 + 1e-9))
    last = min(one for one in steps if one >= high * (1 - 1e-9))
    inside = [one for one in steps if first <= one <= last]
    return inside if len(inside) < 9 else inside[:: len(inside) // 5]


def _colour(index: int) -> str:
    return _COLOURS[index % len(_COLOURS)]


def _text(x: float, y: float, text: str, *, size: int = 11, anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" text-anchor="{anchor}">{escape(text)}</text>'


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("results", type=Path)
    path = parser.parse_args().results
    content = json.loads(path.read_text())
    machine = content["machine"]
    title = f"{machine.get('gpu') or machine['cpu']}, commit {machine['commit']}, {machine['date'][:10]}"
    target = path.with_suffix(".svg")
    target.write_text(draw(content["records"], title), encoding="utf-8")
    print(f"written to {target}")


if __name__ == "__main__":
    main()
