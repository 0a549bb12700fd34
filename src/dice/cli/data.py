"""`dice data ...`: build training data."""

import time
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True)


@app.callback()
def _group() -> None:
    """Build training data."""


@app.command()
def build(
    config: Annotated[Path, typer.Argument(help="TOML file, such as configs/nano_data.toml.")],
    out: Annotated[Path, typer.Option(help="Folder of the dataset; continued if it was begun.")],
    overrides: Annotated[
        list[str] | None, typer.Option("--set", help="Override, such as build.pairs=1000.")
    ] = None,
    vocab_size: Annotated[
        int, typer.Option(min=300, help="Of the tokenizer trained on it.")
    ] = 4096,
) -> None:
    """Synthesise problem-kernel pairs, keep those that run right, and train a tokenizer on them."""
    from rich.console import Console

    from dice.config.load import load_config
    from dice.config.schema import DataConfig
    from dice.data.build import BuildProgress, build_dataset
    from dice.data.records import read_records
    from dice.data.tokenize import training_texts
    from dice.data.tokenizer import save_tokenizer, train_tokenizer

    settings = load_config(config, DataConfig, overrides or ()).build
    console = Console(highlight=False)
    last = float("-inf")

    def report(progress: BuildProgress) -> None:
        nonlocal last
        if time.monotonic() - last > 5.0 or progress.done == progress.total:
            last = time.monotonic()
            dropped = sum(progress.rejected.values())
            console.print(
                f"{progress.stage}: {progress.done}/{progress.total}, {dropped} rejected, "
                f"{progress.elapsed_s:.0f} s"
            )

    try:
        result = build_dataset(settings, out, on_progress=report)
    except KeyboardInterrupt:
        console.print(f"Interrupted. Go on with: dice data build {config} --out {out}")
        raise
    tokenizer = train_tokenizer(training_texts(read_records(result.train)), vocab_size=vocab_size)
    save_tokenizer(tokenizer, out / "tokenizer")
    console.print(f"Wrote {result.train}, {result.held_out} and {out / 'tokenizer'}")
