"""`dice verify --batch`: progress, results on disk as they come, a summary, resuming."""

import shlex
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dice.verify import Policy

_PLAIN_EVERY_S = 10.0


def run_batch(
    batch: Path,
    out: Path,
    *,
    policy: "Policy",
    backend: str,
    timing: bool,
    workers: int | None,
    gpus: Sequence[str] | None,
) -> int:
    """Judge what has no verdict yet; the exit code. Raises UserError before any work is done."""
    from rich.console import Console

    from dice.cli.machine import Steps
    from dice.verify.batch import NO_VERDICT, Results, as_row, counts, jobs, pending, read_batch
    from dice.verify.pool import Pool

    console = Console(highlight=False, soft_wrap=True)
    status = Console(stderr=True, highlight=False)
    items = read_batch(batch, policy=policy, backend=backend, timing=timing)
    with Results(out) as results:
        left = pending(items, results)
        done = len(items) - sum(len(same) for same in left.values())
        if done:
            status.print(f"{done} of {len(items)} lines have a verdict already")
        started, judged = time.monotonic(), 0
        try:
            if left:
                with Steps(status) as steps:
                    pool = Pool(
                        _workers(workers, len(left)),
                        policy=policy,
                        backend=backend,
                        timing=timing,
                        gpus=gpus,
                        on_progress=steps.show,
                    )
                started = time.monotonic()
                with pool, _Progress(status, len(items), done) as progress:
                    for outcome in pool.map(jobs(left)):
                        row = as_row(outcome)
                        for item in left[outcome.job.id]:
                            results.append(item, row)
                            progress.advance(item.name, row)
                        judged += 1
        except KeyboardInterrupt:
            status.print(f"interrupted; the verdicts so far are in {out}. To go on:")
            status.print(f"  {resume_command()}", soft_wrap=True, markup=False)
            return 130
        found = counts(items, results)
        _print_summary(console, found, judged, time.monotonic() - started)
        for item in items:
            error = results.rows[item.id, item.name].get("error")
            if error is not None:
                console.print(f"line {item.line} ({item.name}): {error['message']}", markup=False)
        console.print(f"written to {out}", markup=False)
    return 1 if NO_VERDICT & set(found) else 0


def resume_command() -> str:
    """The command that was given: it skips what is done."""
    return shlex.join(["dice", *sys.argv[1:]])


def _workers(wanted: int | None, jobs: int) -> int:
    import os

    return min(wanted or len(os.sched_getaffinity(0)), jobs)


class _Progress:
    """A bar on a terminal, a line every few seconds elsewhere."""

    def __init__(self, console: Any, total: int, done: int) -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining
        from rich.table import Column

        self._console, self._total, self._done, self._first = console, total, done, done
        self._started = self._said = time.monotonic()
        self._bar: Progress | None = None
        if console.is_terminal:
            last = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            self._bar = Progress(
                *(BarColumn(bar_width=20), MofNCompleteColumn(), Remaining()),
                TextColumn("{task.fields[rate]}"),
                TextColumn("{task.description}", table_column=last, markup=False),
                console=console,
                transient=True,
                expand=True,
            )
            self._task = self._bar.add_task("", total=total, completed=done, rate="")

    def advance(self, name: str, row: dict[str, Any]) -> None:
        self._done += 1
        minutes = (time.monotonic() - self._started) / 60
        rate = f"{(self._done - self._first) / max(minutes, 1e-9):.0f}/min"
        if self._bar is not None:
            ending = row["verdict"]["kind"] if "verdict" in row else "error"
            text = f"{ending}: {name}"
            self._bar.update(self._task, advance=1, description=text, rate=rate)
        elif time.monotonic() - self._said > _PLAIN_EVERY_S:
            self._said = time.monotonic()
            self._console.print(f"{self._done} of {self._total} ({rate})")

    def __enter__(self) -> "_Progress":
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bar is not None:
            self._bar.stop()


def _print_summary(console: Any, found: dict[str, int], judged: int, seconds: float) -> None:
    from rich import box
    from rich.table import Table

    from dice.cli.report import style_of

    total = sum(found.values())
    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("verdict")
    table.add_column("lines", justify="right")
    table.add_column("share", justify="right")
    for kind, count in sorted(found.items(), key=lambda pair: -pair[1]):
        table.add_row(f"[{style_of(kind)}]{kind}[/]", str(count), f"{100 * count / total:.1f} %")
    console.print(table)
    if judged:
        rate = 60 * judged / max(seconds, 1e-9)
        console.print(f"{judged} judged in {seconds:.0f} s: {rate:.0f} candidates a minute")
