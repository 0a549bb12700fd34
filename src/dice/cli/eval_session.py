"""Runs an evaluation for a person: opens the model and the judges, shows progress, writes the report."""

import json
import shlex
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dice.errors import UserError

if TYPE_CHECKING:
    from dice.engine.backends import Backend
    from dice.eval.records import Generation, Judged
    from dice.eval.store import Store
    from dice.problems import Benchmark
    from dice.verify import Policy

_PLAIN_EVERY_S = 10.0
_MAY_CHANGE = {"device", "path", "notes", "input_price", "output_price"}
"""Of a model's description, between the start of a run and its resumption."""


@contextmanager
def open_model(options: dict[str, Any]) -> "Iterator[Backend]":
    """The backend that these options of `dice eval kernelbench` name.

    Raises UserError or ModelError for what cannot be opened, before any work.
    """
    from rich.console import Console

    from dice.cli.machine import quiet_transformers
    from dice.engine.backends import BackendSettings, open_backend

    quiet_transformers()
    status = Console(stderr=True, highlight=False, soft_wrap=True)
    known = {name: value for name, value in options.items() if value is not None}
    with status.status(f"Loading {options['model']} ..."):
        backend = open_backend(
            BackendSettings(**known), on_pause=lambda text: status.print(text, markup=False)
        )
    with backend:
        yield backend


def same_model(store: "Store", backend: "Backend") -> None:
    """Raise UserError where a run would go on with another model than it began with."""
    before = json.loads(json.dumps(store.config.model, default=str))
    now = json.loads(json.dumps(backend.describe(), default=str))
    names = {*before, *now} - _MAY_CHANGE
    changed = sorted(name for name in names if before.get(name) != now.get(name))
    if changed:
        raise UserError(
            f"this run was made with another model or settings ({', '.join(changed)}: "
            f"{before.get(changed[0])} then, {now.get(changed[0])} now): start another run"
        )


def run(
    store: "Store",
    benchmark: "Benchmark",
    backend: "Backend | None",
    *,
    policy: "Policy",
    workers: int | None,
    gpus: str | None,
) -> int:
    """Do what is left of a run and report; the exit code."""
    from dataclasses import replace

    from rich.console import Console

    from dice.cli.machine import Steps
    from dice.eval.outcomes import MACHINE_ERROR, outcomes
    from dice.eval.run import Watch, evaluate
    from dice.verify import Pool

    status = Console(stderr=True, highlight=False, soft_wrap=True)
    place = store.config.place
    if place.timing:  # what the hack filter takes away is shown with its speed
        policy = replace(policy, timing=replace(policy.timing, rejected=True))
    try:
        with store, Steps(status) as steps:
            pool = Pool(
                workers,
                policy=policy,
                backend=place.backend,
                timing=place.timing,
                gpus=None if gpus is None else [word.strip() for word in gpus.split(",")],
                on_progress=steps.show,
            )
            steps.done()
            with pool, _Progress(status, store) as progress:
                watch = Watch(generated=progress.generated, judged=progress.judged)
                evaluate(store, benchmark, pool, backend, watch=watch)
    except KeyboardInterrupt:
        status.print(f"interrupted; what is done is in {store.path}. To go on:")
        command = shlex.join(["dice", "eval", "resume", str(store.path)])
        status.print(f"  {command}", markup=False)
        return 130
    finish(store, store.path)
    found = outcomes(store.log, store.config.problems, store.config.sampling.samples)
    return 1 if any(one.status == MACHINE_ERROR for one in found) else 0


def finish(
    store: "Store",
    out: Path,
    *,
    thresholds: Sequence[float] | None = None,
    pass_k: Sequence[int] | None = None,
    earns: dict[str, str] | None = None,
    claims: bool = False,
    as_json: bool = False,
) -> None:
    """Score the log, write summary, report and KernelBench's files to `out`, and print the numbers."""
    import typer
    from rich.console import Console

    from dice.cli.eval_view import print_levels
    from dice.eval import report, upstream
    from dice.eval.outcomes import outcomes, upstream_outcomes
    from dice.eval.store import write_text
    from dice.eval.summary import PASS_K, THRESHOLDS, summarise

    config = store.config
    samples = config.sampling.samples
    if claims:
        found = upstream_outcomes(store.log, config.problems, samples)
    else:
        found = outcomes(store.log, config.problems, samples, earns=earns)
    levels = summarise(found, thresholds=thresholds or THRESHOLDS, pass_k=pass_k or PASS_K)
    out.mkdir(parents=True, exist_ok=True)
    suffix = "_upstream" if claims else ""
    summary = report.run_json(store, found, levels)
    write_text(out / f"summary{suffix}.json", json.dumps(summary, indent=1) + "\n")
    write_text(out / f"report{suffix}.md", report.markdown(store, found, levels))
    report.write_html(store, found, levels, out / f"report{suffix}.html")
    if not claims and earns is None:
        upstream.write_results(out, found)
        upstream.write_baselines(out, found)
    if as_json:
        typer.echo(json.dumps(summary, indent=1))
        return
    console = Console(highlight=False, soft_wrap=False)
    print_levels(console, store, found, levels)
    console.print(f"report: {out / f'report{suffix}.html'}", markup=False, soft_wrap=True)


class _Progress:
    """Two bars on a terminal, a line every few seconds elsewhere. `judged` may come from any thread."""

    def __init__(self, console: Any, store: "Store") -> None:
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
        from rich.progress import TimeRemainingColumn as Remaining
        from rich.table import Column

        config, log = store.config, store.log
        self._console = console
        self._total = len(config.problems) * config.sampling.samples
        if config.model.get("kind") == "imported":
            self._total = len(log.generations)
        self._written = len(log.generations)
        self._judged = sum(
            line.verdict is not None or line.key not in log.generations
            for line in log.verdicts.values()
        ) + sum(line.failure is not None for line in log.generations.values())
        self._said = time.monotonic()
        self._bars: Progress | None = None
        if console.is_terminal:
            last = Column(ratio=1, no_wrap=True, overflow="ellipsis")
            self._bars = Progress(
                TextColumn("{task.fields[what]:9}"),
                *(BarColumn(bar_width=20), MofNCompleteColumn(), Remaining()),
                TextColumn("{task.description}", table_column=last, markup=False),
                console=console,
                transient=True,
                expand=True,
            )
            add = self._bars.add_task
            self._writing = add("", what="written", total=self._total, completed=self._written)
            self._judging = add("", what="judged", total=self._total, completed=self._judged)

    def generated(self, line: "Generation") -> None:
        self._written += 1
        if line.failure is not None:
            self._judged += 1
        if self._bars is not None:
            name = f"level {line.level}, problem {line.problem_id}, sample {line.sample}"
            text = name if line.failure is None else f"{name}: {line.failure}"
            self._bars.update(self._writing, completed=self._written, description=text)
            self._bars.update(self._judging, completed=self._judged)
        self._say()

    def judged(self, line: "Judged") -> None:
        self._judged += 1
        kind = "machine error" if line.verdict is None else str(line.verdict["kind"])
        if self._bars is not None:
            text = f"{kind}: level {line.level}, problem {line.problem_id}"
            self._bars.update(self._judging, completed=self._judged, description=text)
        self._say()

    def _say(self) -> None:
        if self._bars is None and time.monotonic() - self._said > _PLAIN_EVERY_S:
            self._said = time.monotonic()
            self._console.print(
                f"{self._written} of {self._total} written, {self._judged} judged", markup=False
            )

    def __enter__(self) -> "_Progress":
        if self._bars is not None:
            self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._bars is not None:
            self._bars.stop()
