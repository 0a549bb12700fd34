"""The measures of a run as rows of short texts: what the terminal, Markdown and HTML all print."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from dice.eval.report.facts import RunFacts
from dice.eval.report.formats import NONE, money, number, percent, ratio
from dice.eval.summary import LevelSummary, Scores

BASELINES = {"eager": "PyTorch eager", "compile": "torch.compile"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One value; `why` says why there is none, or what it leaves out."""

    text: str
    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Measure:
    """One line of a table of scores."""

    label: str
    meaning: str
    cell: Callable[[Scores], Cell]
    group: str = "correctness"
    """What it is a measure of: correctness, or speed over one baseline."""
    terminal: Literal["both", "filtered", "no"] = "both"
    """Shown there with and without the filter, with it only, or not at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """One count or median of a level."""

    label: str
    meaning: str
    value: Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """Plain text, every row as long as the header."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def baselines(levels: Sequence[LevelSummary]) -> list[str]:
    """Those that anything was timed against, eager first."""
    found = {over for one in levels for s in (one.filtered, one.unfiltered) for over in s.fast}
    return sorted(found, key=lambda over: (over != "eager", over))


def thresholds(levels: Sequence[LevelSummary]) -> list[float]:
    """The p of fast_p that need a time; fast_0 is Exec."""
    scores = [s for one in levels for s in (one.filtered, one.unfiltered)]
    return sorted({p for s in scores for fast in s.fast.values() for p in fast if p > 0})


def no_speed(run: RunFacts) -> str:
    """Why there is no time at all."""
    if run.judged_by == "kernelbench":
        return "the imported run names no times, or no baseline's times were given"
    if run.place.backend == "simt":
        return "judged on a CPU, where no speed is measured"
    if not run.place.timing:
        return "timing was switched off"
    return "no correct candidate has a time that is believed"


_EXEC = "share of samples that are correct, over all problems; KernelBench's fast_0"
_TESTABLE = "the same without the problems that cannot tell a right candidate from a wrong one"
_NO_FILTER = Cell(text=NONE, why="KernelBench's scripts have no hack filter")


def measures(run: RunFacts, levels: Sequence[LevelSummary]) -> list[Measure]:
    """All that the levels have, in the order in which tables show them."""
    n = run.samples
    found = [
        Measure(label="Exec", meaning=_EXEC, cell=lambda s: _cell(percent(s.exec), "no problem")),
        Measure(
            label="Exec, testable only",
            meaning=_TESTABLE,
            cell=lambda s: _cell(percent(s.exec_testable), "every problem is untestable"),
            terminal="filtered",
        ),
    ]
    if n > 1:
        found.append(
            Measure(
                label=f"best of {n}",
                meaning=f"share of problems with a correct one among {n} samples",
                cell=lambda s: _cell(percent(s.best), "no problem"),
            )
        )
        ks = {k for one in levels for s in (one.filtered, one.unfiltered) for k in s.pass_at}
        found += [_pass_at(k) for k in sorted(ks - {1})]
    known = baselines(levels)
    for over in known:
        found += _speeds(over, n, thresholds(levels))
    if not known:
        why = Cell(text=NONE, why=no_speed(run))
        fast = "share of samples that are correct and more than p times as fast as a baseline"
        found.append(Measure(label="fast_p", meaning=fast, cell=lambda s: why, group="speed"))
        mean = "geometric mean over correct samples"
        found.append(
            Measure(
                label="speedup",
                meaning=mean,
                cell=lambda s: why,
                group="speed",
                terminal="filtered",
            )
        )
    return found


def _pass_at(k: int) -> Measure:
    return Measure(
        label=f"pass@{k}",
        meaning=f"chance that one of {k} samples is correct, estimated without bias",
        cell=lambda s: _cell(percent(s.pass_at.get(k)), f"a problem has fewer than {k} samples"),
        terminal="filtered",
    )


_NO_TIME = "no correct sample of this level has a time that is believed"


def _speeds(over: str, samples: int, ps: Sequence[float]) -> list[Measure]:
    name = BASELINES.get(over, over)
    group = f"speed over {name}"
    found = [one for p in ps for one in _fast(over, p, samples, group)]
    found.append(
        Measure(
            label=f"speedup {over}",
            meaning=f"geometric mean over correct samples with a believed time, over {name}",
            cell=lambda s: _cell(ratio(s.speedup.get(over)), _NO_TIME),
            group=group,
            terminal="filtered",
        )
    )
    if samples > 1:
        found.append(
            Measure(
                label=f"speedup {over}, best of {samples}",
                meaning=f"geometric mean of each problem's fastest correct sample, over {name}",
                cell=lambda s: _cell(ratio(s.best_speedup.get(over)), _NO_TIME),
                group=group,
                terminal="no",
            )
        )
    return found


def _fast(over: str, p: float, samples: int, group: str) -> list[Measure]:
    faster = f"correct and more than {p:g} times as fast as {BASELINES.get(over, over)}"
    found = [
        Measure(
            label=f"fast_{p:g} {over}",
            meaning=f"share of samples that are {faster}",
            cell=lambda s: _cell(percent(s.fast.get(over, {}).get(p)), _NO_TIME),
            group=group,
        )
    ]
    if samples > 1:
        found.append(
            Measure(
                label=f"fast_{p:g} {over}, best of {samples}",
                meaning=f"share of problems with a sample that is {faster}",
                cell=lambda s: _cell(percent(s.best_fast.get(over, {}).get(p)), _NO_TIME),
                group=group,
                terminal="no",
            )
        )
    return found


def _cell(text: str, why: str) -> Cell:
    return Cell(text=text, why=why if text == NONE else None)


def filtered(measure: Measure, level: LevelSummary, run: RunFacts) -> Cell:
    """With the hack filter, where there is one."""
    return _NO_FILTER if run.judged_by == "kernelbench" else measure.cell(level.filtered)


def level_facts(level: LevelSummary, run: RunFacts) -> list[Fact]:
    """The counts and medians of one level."""
    refused = run.refused_times.get(level.level, 0)
    timed = bool(baselines([level])) or refused > 0
    unknown = "the model's backend does not say"

    def fact(label: str, meaning: str, text: str, why: str = unknown) -> Fact:
        return Fact(label=label, meaning=meaning, value=_cell(text, why))

    return [
        fact("problems", "untestable ones included", number(level.problems)),
        fact("untestable problems", "they count as failures", number(len(level.untestable))),
        fact("samples", "of all problems", number(level.samples)),
        fact(
            "without a result", "not generated, not judged, machine error", number(level.unfinished)
        ),
        fact(
            "correct without a time",
            "they count as not faster",
            number(level.filtered.untimed if timed else None),
            no_speed(run),
        ),
        fact(
            "of these, time refused",
            "measured, and not believed: clocks disagree, or faster than the memory",
            number(refused if timed else None),
            no_speed(run),
        ),
        fact("tokens per forward", "median over samples", number(level.tokens_per_forward)),
        fact("tokens per sample", "median", number(level.tokens)),
        fact("generation per sample", "mean", number(level.generation_s, "s")),
        fact(
            "verification per candidate",
            "median, build and run",
            number(level.verification_s, "s"),
            "nothing was judged",
        ),
        fact("prompt tokens", "of all samples", number(level.prompt_tokens or None)),
        fact("completion tokens", "of all samples", number(level.completion_tokens or None)),
        fact("cost", "of all samples", money(level.cost_usd), "no price was given"),
    ]


def overview(
    run: RunFacts, levels: Sequence[LevelSummary], ps: Sequence[float] = (1.0, 2.0)
) -> list[Measure]:
    """The measures that a table of all levels shows."""
    hidden = tuple(f"fast_{p:g} " for p in thresholds(levels) if p not in ps)
    found = measures(run, levels)
    return [one for one in found if one.terminal != "no" and not one.label.startswith(hidden)]


def rows(
    run: RunFacts, levels: Sequence[LevelSummary], *, ps: Sequence[float] = (1.0, 2.0)
) -> Table:
    """For a terminal of 80 columns, up to four levels: a line per measure, a column per level.

    Args:
        ps: thresholds of fast_p to show; what was not computed is left out.
    """
    digits = 1 if len(levels) <= 3 else 0
    lines: list[tuple[str, ...]] = []
    for one in overview(run, levels, ps):
        lines.append((one.label, *(_short(filtered(one, x, run), digits) for x in levels)))
        if one.terminal == "both":
            plain = (_short(one.cell(x.unfiltered), digits) for x in levels)
            lines.append(("  without filter", *plain))
    counts = [("problems", [str(one.problems) for one in levels])]
    if any(one.untestable for one in levels):
        counts.append(("untestable", [str(len(one.untestable)) for one in levels]))
    if any(one.unfinished for one in levels):
        counts.append(("without a result", [str(one.unfinished) for one in levels]))
    lines += [(label, *cells) for label, cells in counts]
    return Table(header=("", *(f"level {one.level}" for one in levels)), rows=tuple(lines))


def _short(cell: Cell, digits: int) -> str:
    """Where there is no room: percentages without decimals, ratios without their interval."""
    return cell.text if digits else re.sub(r"\.\d(?= %)|(?<=x) \(.*\)", "", cell.text)
