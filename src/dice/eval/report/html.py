"""A run as one HTML file that needs no network: numbers and charts in it, samples drawn on demand.

Candidates are hostile text. The template escapes everything, the script only ever sets text, the data lie in
a block that cannot be left, and the page's own policy forbids every script and style but its own.
"""

import base64
import gzip
import hashlib
import json
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from dice.eval.outcomes import Outcome
from dice.eval.records import clean
from dice.eval.report import charts
from dice.eval.report.detail import REPLAYS, Extent, details, smaller
from dice.eval.report.facts import RunFacts, facts
from dice.eval.report.md import described, plain
from dice.eval.report.table import (
    BASELINES,
    Cell,
    baselines,
    filtered,
    level_facts,
    measures,
    no_speed,
    overview,
)
from dice.eval.store import Store, write_text
from dice.eval.summary import LevelSummary

LIMIT_MIB = 24.0
"""Of the file; replays, then code, are left out above it."""
_PACKED = 1 << 20
"""Bytes of data from which on they are compressed."""
_SCRIPTS = ("dom.js", "code.js", "replay.js", "sample.js", "report.js")


def write_html(
    store: Store,
    outcomes: Sequence[Outcome],
    levels: Sequence[LevelSummary],
    path: Path,
    *,
    replays: int = REPLAYS,
    limit_mib: float = LIMIT_MIB,
) -> None:
    """Write the report, whole or not at all.

    Args:
        replays: samples of each problem whose denoising can be replayed: the best one, the first, others.
        limit_mib: where the file would be larger, replays and then code are left out, which it says.
    """
    write_text(path, page(store, outcomes, levels, replays=replays, limit_mib=limit_mib))


def page(
    store: Store,
    outcomes: Sequence[Outcome],
    levels: Sequence[LevelSummary],
    *,
    replays: int = REPLAYS,
    limit_mib: float = LIMIT_MIB,
) -> str:
    """The page. The last resort, without any code, may be larger than the limit."""
    run = facts(store, outcomes)
    data: dict[str, Any] = {}
    block = Markup("")
    for extent in smaller(Extent(replays=replays)):
        data = details(store, outcomes, extent)
        block = embed(data)
        if len(block) <= limit_mib * (1 << 20):
            break
    style, script = _asset("report.css"), f'"use strict";\n{_script()}'
    return _template().render(
        run=run,
        made_by=run.provenance[-1] if run.provenance else {},
        described=described(run),
        plain=plain,
        levels=levels,
        tables=[_tables(run, one, levels) for one in levels],
        overview=_overview(run, levels),
        bars=charts.bars(levels),
        kinds=[kind for kind in charts.KINDS if any(kind in one.kinds for one in levels)],
        css=charts.css,
        histograms=_histograms(outcomes, levels),
        baselines=BASELINES,
        no_speed=no_speed(run),
        left_out=data["left_out"],
        data=block,
        style=Markup(style),
        script=Markup(script),
        style_hash=_hash(style),
        script_hash=_hash(script),
    )


def embed(data: dict[str, Any]) -> Markup:
    """A block that holds the data for the script; large ones compressed."""
    text = clean(json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":")))
    raw = text.encode()
    if len(raw) < _PACKED:
        for character in "<>&\u2028\u2029":
            text = text.replace(character, f"\\u{ord(character):04x}")
        return Markup(f'<script type="application/json" id="data">{text}</script>')
    packed = base64.b64encode(gzip.compress(raw, 6, mtime=0)).decode()
    return Markup(f'<script type="application/gzip" id="data">{packed}</script>')


def _tables(run: RunFacts, level: LevelSummary, levels: Sequence[LevelSummary]) -> dict[str, Any]:
    groups: dict[str, list[tuple[str, str, Cell, Cell]]] = {}
    missing: dict[str, None] = {}
    for one in measures(run, levels):
        cells = (filtered(one, level, run), one.cell(level.unfiltered))
        groups.setdefault(one.group, []).append((one.label, one.meaning, *cells))
        missing |= {f"{one.label}: {cell.why}": None for cell in cells if cell.why}
    counts = level_facts(level, run)
    missing |= {f"{one.label}: {one.value.why}": None for one in counts if one.value.why}
    return {"groups": groups, "facts": counts, "missing": list(missing)}


def _overview(run: RunFacts, levels: Sequence[LevelSummary]) -> list[tuple[str, str, list[Cell]]]:
    rows = []
    for one in overview(run, levels):
        rows.append((one.label, one.meaning, [filtered(one, x, run) for x in levels]))
        if one.terminal == "both":
            cells = [one.cell(x.unfiltered) for x in levels]
            rows.append(("without hack filter", f"{one.label}, outputs alone", cells))
    return rows


def _histograms(
    outcomes: Sequence[Outcome], levels: Sequence[LevelSummary]
) -> list[tuple[charts.Histogram, charts.Histogram]]:
    """Wide and narrow, of each baseline."""
    found = []
    for over in baselines(levels):
        wide, narrow = (charts.histogram(outcomes, over, width) for width in (760, 340))
        if wide is not None and narrow is not None:
            found.append((wide, narrow))
    return found


def _hash(text: str) -> str:
    """As a content security policy names a source."""
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"


def _asset(name: str) -> str:
    return (resources.files("dice.eval.report") / "assets" / name).read_text(encoding="utf-8")


def _script() -> str:
    return "(() => {\n" + "\n".join(_asset(name) for name in _SCRIPTS) + "})();\n"


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    return environment.from_string(_asset("report.html.jinja"))
