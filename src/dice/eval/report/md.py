"""A run's numbers as GitHub Markdown."""

import json
import re
from collections.abc import Iterable, Sequence
from typing import Any

from dice.eval.outcomes import Outcome
from dice.eval.plan import describe
from dice.eval.report.facts import RunFacts, facts
from dice.eval.report.formats import NONE
from dice.eval.report.table import Cell, filtered, level_facts, measures, overview
from dice.eval.store import Store
from dice.eval.summary import LevelSummary

_SPECIAL = re.compile(r"([\\`*_{}\[\]#|<>~$&@])")
_HASH = re.compile(r"[0-9a-f]{40,}")
_UNSEEN = re.compile(r"[\x00-\x1f\x7f\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")


def escape(text: str) -> str:
    """Text that GitHub shows as it is, within a line or a table's cell."""
    return _SPECIAL.sub(r"\\\1", _UNSEEN.sub(" ", text).strip())


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table of cells that are escaped already; the first column is text, the others numbers."""
    rule = ["---", *["---:"] * (len(header) - 1)]
    lines = [header, rule, *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"


def markdown(store: Store, outcomes: Sequence[Outcome], levels: Sequence[LevelSummary]) -> str:
    """The whole report; notes below each table say why a value is missing."""
    run = facts(store, outcomes)
    parts = [f"# {escape(run.name)}\n", *_header(run)]
    if not levels:
        parts.append("The run has no problems.\n")
    else:
        parts.append(_overview(run, levels))
        parts += [_level(run, one, levels) for one in levels]
        parts.append(
            "Intervals hold the value with 95 % confidence, by bootstrap over problems. Where all "
            "problems ended alike an interval is Wilson's.\n"
        )
    parts.append(_provenance(run))
    return "\n".join(parts)


def _header(run: RunFacts) -> Iterable[str]:
    for one in run.limits:
        yield f"> **{escape(one)}**\n"
    if not run.finished:
        counts = ", ".join(f"{count} {status}" for status, count in run.unfinished.items())
        yield f"> **The run is not finished: {escape(counts)}. These samples count as failures.**\n"
    if run.rescored:
        yield f"> {run.rescored} verdicts differ from the run's: scored under another attribution policy.\n"
    yield table(
        ("", ""),
        [(escape(name), escape(value)) for name, value in described(run)],
    ).replace("---:", "---")


def described(run: RunFacts) -> list[tuple[str, str]]:
    """Name and value of what made a run, for people."""
    model = run.model
    name = model.get("model") or model.get("from") or model.get("kind") or NONE
    own = {key: value for key, value in model.items() if key not in ("model", "from")}
    found = [("model", plain(name))]
    if settings := _listed(own):
        found.append(("model settings", settings))
    found += [
        ("dataset", f"{run.dataset}, version {run.dataset_version}"),
        ("problems, samples of each", f"{run.problems}, {run.samples}"),
    ]
    if model.get("kind") != "imported":
        given = {key: value for key, value in run.sampling.items() if key != "samples"}
        found.append(("sampling", f"{_listed(given)}; all else the model's own"))
    if run.judged_by == "kernelbench":
        found.append(("judged by", "KernelBench's own scripts"))
    else:
        found.append(("judged on", describe(run.place)))
        changes = [
            f"{c.name} {plain(c.run)} (default {plain(c.default)})" for c in run.policy_changes
        ]
        found.append(("policy", "; ".join(changes) or "the default"))
    return found


def _listed(values: dict[str, Any]) -> str:
    known = {key: value for key, value in values.items() if value not in (None, [], {}, "")}
    return ", ".join(f"{key.replace('_', ' ')} {_shortened(plain(v))}" for key, v in known.items())


def _shortened(text: str) -> str:
    """A hash by its beginning."""
    return f"{text[:12]}…" if _HASH.fullmatch(text) else text


def plain(value: Any) -> str:
    """Any plain data on one line."""
    if value is None:
        return NONE
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, default=str)


def _overview(run: RunFacts, levels: Sequence[LevelSummary]) -> str:
    rows = []
    for one in overview(run, levels):
        rows.append([escape(one.label), *(_text(filtered(one, x, run)) for x in levels)])
        if one.terminal == "both":
            cells = (_text(one.cell(x.unfiltered)) for x in levels)
            rows.append([escape(f"{one.label}, without hack filter"), *cells])
    return table(("", *(f"level {one.level}" for one in levels)), rows)


def _level(run: RunFacts, level: LevelSummary, levels: Sequence[LevelSummary]) -> str:
    rows, notes = [], dict[str, None]()
    for one in measures(run, levels):
        cells = (filtered(one, level, run), one.cell(level.unfiltered))
        rows.append([escape(one.label), *(_text(cell) for cell in cells)])
        notes.update(dict.fromkeys(f"{one.label}: {cell.why}" for cell in cells if cell.why))
    facts_ = level_facts(level, run)
    notes.update(
        dict.fromkeys(f"{fact.label}: {fact.value.why}" for fact in facts_ if fact.value.why)
    )
    parts = [
        f"## Level {level.level}\n",
        table(("", "with hack filter", "without"), rows),
        table(("", "level"), [(escape(f.label), _text(f.value)) for f in facts_]),
        table(
            ("how samples ended", "samples"),
            [(escape(kind), str(count)) for kind, count in level.kinds.items()],
        ),
    ]
    if level.untestable:
        parts.append("Untestable, counted as failures:\n")
        parts.append("".join(f"- {escape(name)}\n" for name in level.untestable))
    if notes:
        parts.append(f"{NONE} is for a missing value:\n")
        parts.append("".join(f"- {escape(note)}\n" for note in notes))
    return "\n".join(parts)


def _text(cell: Cell) -> str:
    return escape(cell.text)


def _provenance(run: RunFacts) -> str:
    if not run.provenance:
        return "## Made with\n\nNothing is recorded.\n"
    names = list(run.provenance[0])
    rows = [[escape(plain(one.get(name))) for name in names] for one in run.provenance]
    return "## Made with\n\n" + table([escape(name) for name in names], rows).replace("---:", "---")
