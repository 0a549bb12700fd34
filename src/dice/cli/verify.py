"""`dice verify REF CAND`: judge one candidate file against its problem."""

import json
from pathlib import Path
from typing import Annotated

import typer


def command(
    reference: Annotated[
        Path, typer.Argument(help="Problem file: Model, get_inputs, get_init_inputs.")
    ],
    candidate: Annotated[Path, typer.Argument(help="Candidate file: ModelNew.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print the verdict as JSON.")] = False,
    seed: Annotated[int, typer.Option(help="Seed of the inputs and weights.")] = 0,
) -> None:
    """Judge one candidate: is it correct, and if not, what is the evidence?

    Exits with 0 when it is verified correct, 1 when it is not, 2 for bad input.
    """
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
    with open_judge(status, seed=seed) as judge:
        prepared = judge.prepare(problem)
        verdict = judge.judge(
            prepared, Candidate(problem=problem.name, code=code, name=candidate.name)
        )
    if as_json:
        typer.echo(json.dumps(verdict_json(verdict), indent=2))
    else:
        print_verdict(console, candidate.name, verdict)
        print_notes(console, verdict.notes)
    raise typer.Exit(0 if verdict.correct else 1)
