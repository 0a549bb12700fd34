"""The `dice` command: its verbs, and what its exit codes mean.

0: done (a candidate was verified correct); 1: no candidate was; 2: bad input, with a message that says
what to do; 3: this machine failed (sandbox, disk, driver); 130: interrupted.
"""

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.markup import escape

from dice import __version__
from dice.cli import data, doctor, evaluate, generate, train, verify
from dice.errors import DiceError, UserError

app = typer.Typer(
    name="dice",
    help="Diffusion language models that write CUDA kernels, and a verifier that proves them.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
app.command("generate")(generate.command)
app.command("verify")(verify.command)
app.command("doctor")(doctor.command)
app.add_typer(evaluate.app, name="eval", help="Evaluate models on KernelBench.")
app.add_typer(data.app, name="data", help="Build training data.")
app.add_typer(train.app, name="train", help="Train models.")


def _print_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"dice {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
) -> None:
    """Options before the verb."""


def main() -> None:
    """Entry point: runs the app and turns our exceptions into messages and exit codes."""
    # Idle OpenMP threads that spin slow small matrix products down manyfold on a busy machine.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    errors = Console(stderr=True, soft_wrap=True, highlight=False)
    try:
        app()
    except UserError as e:
        errors.print(f"[bold red]error:[/] {escape(str(e))}")
        sys.exit(2)
    except DiceError as e:
        errors.print(f"[bold red]this machine failed:[/] {escape(str(e))}")
        sys.exit(3)
    except KeyboardInterrupt:
        errors.print("interrupted")
        sys.exit(130)
