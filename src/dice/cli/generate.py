"""`dice generate FILE`: candidates for one problem, denoised live, judged, and the best one written."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from dice.engine import SamplingParams, StepEvent
    from dice.models.generation import GenerationDefaults
    from dice.rollout import Attempt, Rollout


def command(
    problem_file: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="Problem file: Model, get_inputs, get_init_inputs."),
    ],
    model: Annotated[
        str, typer.Option(help='"nano" (in the package), a checkpoint folder or a hub id.')
    ] = "nano",
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

    Exits with 0 when a candidate was verified correct, 1 when none was, 2 for bad input.
    """
    from rich.console import Console

    from dice import __version__
    from dice.cli.dropin import check_destination, write_dropin
    from dice.problems import load_problem

    problem = load_problem(problem_file)
    destination = out or Path(f"{problem.name}_kernel.py")
    check_destination(destination, force=force)

    # What follows imports torch, which takes seconds: not before the cheap checks.
    from dice.cli.machine import open_judge, open_llm
    from dice.cli.trace import TraceWriter
    from dice.rollout import rollout

    console = Console(highlight=False, quiet=as_json)
    status = Console(stderr=True, highlight=False)
    with open_judge(status, seed=seed) as judge, TraceWriter(trace) as tracer:
        with status.status("Checking the problem and computing its reference ..."):
            prepared = judge.prepare(problem)
        llm = open_llm(model)
        size = sum(p.numel() for p in llm.loaded.model.parameters())
        console.print(
            f"[bold]{problem_file}[/]: {candidates} candidate{'s' * (candidates != 1)} from "
            f"[bold]{model}[/] ({size / 1e6:.1f}M parameters, block size {llm.loaded.block_size}), "
            f"seed {seed}"
        )
        params = sampling_plan(
            candidates,
            seed,
            llm.loaded.generation,
            temperature=temperature,
            threshold=threshold,
            steps=steps,
            max_new_tokens=max_new_tokens,
        )
        watcher = _Watcher(console, status, tracer, candidates)
        result = rollout(prepared, params, llm=llm, judge=judge, observer=watcher.observer())
    best = result.best
    if best is not None:
        origin = f"{model}, seed {seed}"
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

    fixed: dict[str, Any] = {
        "max_new_tokens": max_new_tokens or defaults.max_new_tokens or 1024,
        "denoising_steps": steps or defaults.denoising_steps,
        "remasking_strategy": defaults.remasking_strategy or "low_confidence_dynamic",
    }
    bound = threshold if threshold is not None else defaults.confidence_threshold
    if bound is not None:
        fixed["confidence_threshold"] = bound
    if threshold is not None:
        fixed["remasking_strategy"] = "low_confidence_dynamic"
    elif steps is not None:
        fixed["remasking_strategy"] = "low_confidence_static"
    warm = temperature if temperature is not None else (defaults.temperature or 1.0)
    return [
        SamplingParams(seed=seed + i, temperature=0.0 if i == 0 else warm, **fixed)
        for i in range(candidates)
    ]


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
