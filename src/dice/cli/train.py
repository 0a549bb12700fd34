"""`dice train ...`: train models."""

from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Train models."""


@app.command()
def sft(
    config: Annotated[Path, typer.Argument(help="TOML file, such as configs/nano_sft.toml.")],
    out: Annotated[Path, typer.Option(help="Run folder.")],
    data: Annotated[
        Path | None,
        typer.Option(help="Folder that `dice data build` wrote, instead of the file's."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Continue the run in --out.")] = False,
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override, such as train.lr=1e-3.")
    ] = None,
) -> None:
    """Supervised training of a block-diffusion model; the result is a checkpoint folder."""
    from rich.console import Console

    from dice.config.load import load_config
    from dice.config.schema import SftConfig
    from dice.train.meter import StepReport
    from dice.train.run import run_sft

    paths = (
        [f"data.train={data / 'train.jsonl'}", f"data.tokenizer={data / 'tokenizer'}"]
        if data
        else []
    )
    settings = load_config(config, SftConfig, [*paths, *(overrides or [])])
    console = Console(highlight=False)

    def report(step: StepReport) -> None:
        console.print(
            f"step {step.step}  {step.done:.1%}  loss {step.loss:.4f}  nll {step.nll:.4f}  "
            f"lr {step.lr:.2e}  {step.tokens / 1e6:.1f}M tokens, {step.tokens_per_s:,.0f}/s"
        )

    run = run_sft(settings, out, resume=resume, on_progress=report)
    if run.result.interrupted:
        again = " ".join(["--resume", *(f"--set {o}" for o in overrides or [])])
        folder = f" --data {data}" if data else ""
        console.print(
            f"Interrupted. Go on with: dice train sft {config} --out {out}{folder} {again}"
        )
        raise typer.Exit(130)
    console.print(f"Model: {run.model}")
