"""`dice generate FILE`: candidates for one problem, denoised live, judged, and the best one written."""

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from dice.errors import UserError

if TYPE_CHECKING:
    from dice.engine import SamplingParams, StepEvent
    from dice.models.generation import GenerationDefaults
    from dice.rollout import Attempt, Rollout

MAX_ROWS = 64
"""Sequences decoded at a time."""


class DType(StrEnum):
    """What weights may be loaded as."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    FLOAT16 = "float16"


def command(
    problem_file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Problem file: Model, get_inputs, get_init_inputs."),
    ],
    model: Annotated[
        str, typer.Option(help='"nano" (in the package), a checkpoint folder or a hub id.')
    ] = "nano",
    adapter: Annotated[
        str | None,
        typer.Option(help="LoRA adapter (folder or hub id, peft's layout) for --model."),
    ] = None,
    device: Annotated[
        str | None, typer.Option(help="cpu, cuda or cuda:N; default a GPU where there is one.")
    ] = None,
    dtype: Annotated[
        DType | None, typer.Option(help="Of the weights; default float32 on a CPU.")
    ] = None,
    prefix: Annotated[
        Path | None,
        typer.Option(help="Start of the kernel file; with --suffix, fill in what is between."),
    ] = None,
    suffix: Annotated[Path | None, typer.Option(help="End of the kernel file.")] = None,
    candidates: Annotated[int, typer.Option(min=1, max=256, help="How many to sample.")] = 4,
    seed: Annotated[int, typer.Option(min=0, help="Same seed, same machine: same result.")] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(min=0.0, help="For all candidates but the first, which is always greedy."),
    ] = None,
    threshold: Annotated[
        float | None,
        typer.Option(min=0.0, max=1.0, help="Unmask what is at least this probable."),
    ] = None,
    steps: Annotated[
        int | None, typer.Option(min=1, help="Denoising steps a block, instead of a threshold.")
    ] = None,
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="Length limit.")] = None,
    backend: Annotated[
        str, typer.Option(help="Where to judge. auto: a GPU where there is one; simt; cuda.")
    ] = "auto",
    timing: Annotated[
        bool | None,
        typer.Option("--time/--no-time", help="Measure what is correct, on a GPU. Default: yes."),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="Drop-in file to write; default NAME_kernel.py, here.")
    ] = None,
    force: Annotated[
        bool, typer.Option("--force", help="Overwrite --out, whoever wrote it.")
    ] = False,
    trace: Annotated[
        Path | None, typer.Option(help="Write the decoding trace here, as JSON lines.")
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print everything as one JSON object.")
    ] = False,
) -> None:
    """Write CUDA kernels for a PyTorch module and prove them right.

    Of several correct candidates the fastest is kept, where they were timed, else the first. Exits with 0 when a candidate was verified correct, 1 when none was, 2 for bad input.
    """
    from rich.console import Console

    from dice import __version__
    from dice.cli.dropin import check_destination, write_dropin
    from dice.cli.machine import choose_backend
    from dice.problems import load_problem

    problem = load_problem(problem_file)
    destination = out or Path(f"{problem.name}_kernel.py")
    check_destination(destination, force=force)

    skeleton = _skeleton(prefix, suffix)
    chosen, with_time = choose_backend(backend, timing)

    # What follows imports torch, which takes seconds: not before the cheap checks.
    import torch

    from dice.cli.machine import open_judge, quiet_transformers
    from dice.cli.trace import TraceWriter
    from dice.engine import LLM, decoding_bytes, make_canvas
    from dice.models.load import choose_device, default_dtype, open_checkpoint
    from dice.prompts import render, render_infilling
    from dice.rollout import rollout

    quiet_transformers()
    place = choose_device(device)
    weight_type: torch.dtype = getattr(torch, dtype) if dtype else default_dtype(place)
    checkpoint = open_checkpoint(model)
    texts = checkpoint.generation.template_texts
    if skeleton is None:
        prompt = render(problem, checkpoint.template, texts=texts)
    else:
        prompt = render_infilling(problem, *skeleton, forced=True, texts=texts)
    params = sampling_plan(
        candidates,
        seed,
        checkpoint.generation,
        temperature=temperature,
        threshold=threshold,
        steps=steps,
        max_new_tokens=max_new_tokens,
    )
    canvases = [make_canvas(checkpoint, prompt, params[0])]
    cache_bytes = decoding_bytes(checkpoint, canvases, min(candidates, MAX_ROWS), weight_type)
    checkpoint.check_weights(device=place, dtype=weight_type, adapter=adapter, beside=cache_bytes)

    console = Console(highlight=False, quiet=as_json)
    status = Console(stderr=True, highlight=False)
    with (
        open_judge(status, seed=seed, backend=chosen, timing=with_time) as judge,
        TraceWriter(trace) as tracer,
    ):
        with status.status("Checking the problem and computing its reference ..."):
            prepared = judge.prepare(problem)
        with status.status(f"Loading {model} ..."):
            loaded = checkpoint.load(device=place, dtype=weight_type, adapter=adapter)
        llm = LLM(loaded, max_rows=MAX_ROWS)
        size = sum(p.numel() for p in llm.loaded.model.parameters())
        console.print(
            f"[bold]{problem_file}[/]: {candidates} candidate{'s' * (candidates != 1)} from "
            f"[bold]{model}[/] ({size / 1e6:.1f}M parameters, block size {llm.loaded.block_size}), "
            f"seed {seed}"
        )
        watcher = _Watcher(console, status, tracer, candidates)
        result = rollout(
            prepared, params, llm=llm, judge=judge, prompt=prompt, observer=watcher.observer()
        )
    best = result.best
    if best is not None:
        origin = f"{model}{f' with {adapter}' if adapter else ''}, seed {seed}"
        write_dropin(destination, problem, best, version=__version__, origin=origin)
    if as_json:
        typer.echo(json.dumps(_as_json(result, destination if best else None), indent=2))
    else:
        _print_outcome(console, result, destination)
    raise typer.Exit(0 if best else 1)


def sampling_plan(
    candidates: int,
    seed: int,
    defaults: "GenerationDefaults",
    *,
    temperature: float | None,
    threshold: float | None,
    steps: int | None,
    max_new_tokens: int | None,
) -> "list[SamplingParams]":
    """Parameters of each candidate: the first is greedy, the others are sampled with their own seeds.

    The checkpoint's generation config fills in what the user left open.
    """
    from dice.engine import SamplingParams

    warm = temperature if temperature is not None else (defaults.temperature or 1.0)
    return [
        SamplingParams.requested(
            defaults,
            seed=seed + i,
            temperature=0.0 if i == 0 else warm,
            threshold=threshold,
            steps=steps,
            max_new_tokens=max_new_tokens,
        )
        for i in range(candidates)
    ]


def _skeleton(prefix: Path | None, suffix: Path | None) -> tuple[str, str] | None:
    """Both texts of an infilling task, or `None` for the whole file.

    Raises:
        UserError: only one of the two, or a file that cannot be read.
    """
    if prefix is None and suffix is None:
        return None
    if prefix is None or suffix is None:
        raise UserError("--prefix and --suffix belong together; an empty file will do for either")
    return _read(prefix), _read(suffix)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UserError(f"{path} cannot be read: {e}") from e


class _Watcher:
    """Shows a rollout while it happens."""

    def __init__(self, console: Any, status: Any, tracer: Any, candidates: int) -> None:
        from dice.cli.live import denoising_view

        self._console, self._tracer, self._status = console, tracer, status
        self._view = denoising_view(console, candidates)
        self._spinner = status.status("")

    def observer(self) -> Any:
        from dice.rollout import Observer

        return Observer(
            on_prompt=self._on_prompt,
            on_step=self._on_step,
            on_completions=self._on_completions,
            on_judging=self._on_judging,
            on_attempt=self._on_attempt,
        )

    def _on_prompt(self, prompt: Any) -> None:
        self._view.__enter__()

    def _on_step(self, event: "StepEvent") -> None:
        self._view.on_step(event)
        self._tracer.on_step(event)

    def _on_completions(self, completions: list[Any]) -> None:
        self._view.__exit__(None, None, None)
        self._tracer.on_completions(completions)

    def _on_judging(self, index: int) -> None:
        self._spinner.update(f"Building and checking candidate {index + 1} ...")
        self._spinner.start()

    def _on_attempt(self, index: int, attempt: "Attempt") -> None:
        from dice.cli.report import print_verdict

        self._spinner.stop()
        title = attempt.candidate.name
        if attempt.same_as is not None:
            self._console.print(f"[bold]{title}:[/] same text as candidate {attempt.same_as + 1}")
        else:
            print_verdict(self._console, title, attempt.verdict)


def _print_outcome(console: Any, result: "Rollout", destination: Path) -> None:
    from dice.cli.report import print_notes

    notes = dict.fromkeys(note for a in result.attempts for note in a.verdict.notes)
    print_notes(console, tuple(notes))
    if result.best is None:
        console.print("\nNo candidate was verified correct; nothing was written.")
        return
    module = destination.stem
    console.print(f"\nWrote [bold]{destination}[/] ({result.best.candidate.name}). Use it:")
    console.print(
        f"  from {module} import ModelNew\n"
        "  fast = ModelNew(*init_args).cuda()\n"
        "  fast.load_state_dict(model.state_dict())"
    )


def _as_json(result: "Rollout", written: Path | None) -> dict[str, Any]:
    from dice.cli.report import verdict_json

    return {
        "problem": result.problem.name,
        "written": str(written) if written else None,
        "candidates": [
            {
                "name": a.candidate.name,
                "code": a.candidate.code,
                "verdict": verdict_json(a.verdict),
                "reward": a.reward.value,
                "same_as": a.same_as,
                "tokens": len(a.completion.token_ids),
                "forwards": a.completion.forwards,
                "finish_reason": a.completion.finish_reason,
                "seed": a.completion.seed,
            }
            for a in result.attempts
        ],
    }
