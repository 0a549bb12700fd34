"""`dice verify REF CAND`: judge one candidate file; `dice verify --batch FILE`: judge many."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dice.verify import Policy


def command(
    reference: Annotated[
        Path | None,
        typer.Argument(metavar="REF", help="Problem file: Model, get_inputs, get_init_inputs."),
    ] = None,
    candidate: Annotated[
        Path | None, typer.Argument(metavar="CAND", help="Candidate file: ModelNew.")
    ] = None,
    batch: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE.jsonl", help="Judge many: a problem and a candidate on each line."
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="RESULTS.jsonl", help="Verdicts of --batch; a later run goes on from there."
        ),
    ] = None,
    workers: Annotated[
        int | None, typer.Option(min=1, help="Of --batch: how many at once; default one a core.")
    ] = None,
    gpus: Annotated[
        str | None, typer.Option(help="Of --batch: indices of the GPUs to use, as in 0,1.")
    ] = None,
    backend: Annotated[
        str, typer.Option(help="auto: a GPU where there is one; simt: the CPU; cuda: the GPU.")
    ] = "auto",
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE.toml", help="Tolerances, credit, limits.")
    ] = None,
    precision: Annotated[
        str | None,
        typer.Option(help="float32, or float16 or bfloat16 where that is precise enough for you."),
    ] = None,
    sanitize: Annotated[
        str | None,
        typer.Option(
            metavar="TOOLS", help="On a GPU, run compute-sanitizer too: memcheck,racecheck."
        ),
    ] = None,
    timing: Annotated[
        bool | None,
        typer.Option(
            "--time/--no-time",
            help="Measure the speed of what is correct, on a GPU. Default: yes, with --batch no.",
        ),
    ] = None,
    seed: Annotated[
        int | None, typer.Option(help="Of inputs and weights; default: secret, drawn afresh.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
) -> None:
    """Judge a candidate: is it correct, and if not, what is the evidence?

    Exits with 0 when it is verified correct, 1 when it is not, 2 for bad input. With --batch: 0 when
    every line has a verdict, 1 when the machine or a problem's own code failed for some.
    """
    from dice.cli.machine import choose_backend
    from dice.errors import UserError

    chosen, with_time = choose_backend(backend, timing)
    rules = _policy(policy, precision=precision, seed=seed)
    if batch is not None:
        if reference is not None:
            raise UserError("give either REF and CAND, or --batch FILE.jsonl")
        if out is None:
            raise UserError("--batch needs --out RESULTS.jsonl")
        if as_json or sanitize:
            raise UserError("--json and --sanitize are for one candidate; --out is JSON anyway")
        from dice.cli.batch import run_batch

        wanted = None if gpus is None else [word.strip() for word in gpus.split(",")]
        raise typer.Exit(
            run_batch(
                *(batch, out),
                policy=rules,
                backend=chosen,
                timing=bool(timing),
                workers=workers,
                gpus=wanted,
            )
        )
    if reference is None or candidate is None:
        raise UserError("give a problem file and a candidate file, or --batch FILE.jsonl")
    if out is not None or workers is not None or gpus is not None:
        raise UserError("--out, --workers and --gpus go with --batch")
    tools = tuple(word.strip() for word in sanitize.split(",")) if sanitize else ()
    if tools and chosen != "cuda":
        raise UserError("--sanitize needs a GPU; the CPU backend always checks for these faults")
    settings = {"backend": chosen, "sanitizer": tools, "timing": with_time}
    raise typer.Exit(_judge_one(reference, candidate, rules, settings, as_json))


def _judge_one(
    reference: Path,
    candidate: Path,
    policy: "Policy",
    settings: dict[str, Any],
    as_json: bool,
) -> int:
    from rich.console import Console

    from dice.cli.machine import open_judge
    from dice.cli.report import print_notes, print_verdict, verdict_json
    from dice.errors import UserError
    from dice.problems import load_problem
    from dice.types import Candidate

    problem = load_problem(reference)
    try:
        code = candidate.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"{candidate} cannot be read as a candidate file: {e}") from e
    console = Console(highlight=False)
    status = Console(stderr=True, highlight=False, quiet=as_json)
    with open_judge(status, policy=policy, **settings) as judge:
        prepared = judge.prepare(problem)
        verdict = judge.judge(
            prepared, Candidate(problem=problem.name, code=code, name=candidate.name)
        )
    if as_json:
        typer.echo(json.dumps(verdict_json(verdict), indent=2))
    else:
        print_verdict(console, candidate.name, verdict)
        print_notes(console, verdict.notes)
    return 0 if verdict.correct else 1


def _policy(path: Path | None, *, precision: str | None, seed: int | None) -> "Policy":
    from dataclasses import replace

    from dice.errors import UserError
    from dice.verify import Policy

    policy = Policy() if path is None else Policy.from_toml(path)
    if precision is not None:
        if precision not in ("float32", "float16", "bfloat16"):
            raise UserError(f"--precision {precision} is none of float32, float16, bfloat16")
        policy = replace(policy, precision=precision)
    return policy if seed is None else replace(policy, seed=seed)
