"""`dice eval`: run a model over KernelBench, score, report, compare, and take over other runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from dice.errors import UserError

if TYPE_CHECKING:
    from dice.eval.store import Store

app = typer.Typer(no_args_is_help=True)
_SAMPLING, _LOCAL, _ENDPOINT = "Sampling", "A model on this machine", "A model at an endpoint"

Run = Annotated[Path, typer.Argument(metavar="RUN", help="Folder of a run.")]
Dataset = Annotated[
    str | None,
    typer.Option(help="A .jsonl file, a checkout of KernelBench, or a hub id (the default)."),
]
Workers = Annotated[int | None, typer.Option(min=1, help="Judges at once; default one a core.")]
Gpus = Annotated[str | None, typer.Option(help="GPUs to judge on, as in 0,1; default all.")]
PolicyFile = Annotated[
    Path | None, typer.Option(metavar="FILE.toml", help="Tolerances, credit, limits.")
]
Backend = Annotated[
    str, typer.Option(help="Where to judge. auto: a GPU where there is one; simt; cuda.")
]
Timing = Annotated[
    bool | None,
    typer.Option("--time/--no-time", help="Measure what is correct, on a GPU. Default: yes."),
]


@app.command("kernelbench")
def kernelbench(
    out: Annotated[Path, typer.Option(metavar="RUN", help="New folder for the run.")],
    model: Annotated[
        str,
        typer.Option(help='"nano", a checkpoint folder, a hub id, or openai:NAME with --base-url.'),
    ] = "nano",
    dataset: Dataset = None,
    levels: Annotated[str, typer.Option(help="As in 1,2,3.")] = "1,2,3",
    problems: Annotated[
        str | None, typer.Option(help="Numbers within each level, as in 1,5-9.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Only the first so many of each level.")
    ] = None,
    samples: Annotated[
        int, typer.Option(rich_help_panel=_SAMPLING, min=1, max=1000, help="Of each problem.")
    ] = 1,
    seed: Annotated[int, typer.Option(rich_help_panel=_SAMPLING, min=0)] = 0,
    temperature: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_SAMPLING,
            min=0.0,
            help="Default: greedy for one sample, else the model's.",
        ),
    ] = None,
    top_p: Annotated[
        float | None, typer.Option(rich_help_panel=_SAMPLING, min=0.0, max=1.0)
    ] = None,
    top_k: Annotated[int | None, typer.Option(rich_help_panel=_SAMPLING, min=1)] = None,
    threshold: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_SAMPLING,
            min=0.0,
            max=1.0,
            help="Unmask what is at least this probable.",
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_SAMPLING,
            min=1,
            help="Denoising steps a block, instead of a threshold.",
        ),
    ] = None,
    max_new_tokens: Annotated[
        int | None, typer.Option(rich_help_panel=_SAMPLING, min=1, help="Length limit.")
    ] = None,
    adapter: Annotated[
        str | None, typer.Option(rich_help_panel=_LOCAL, help="LoRA adapter for --model.")
    ] = None,
    device: Annotated[
        str | None, typer.Option(rich_help_panel=_LOCAL, help="To decode on: cpu, cuda or cuda:N.")
    ] = None,
    dtype: Annotated[
        str | None,
        typer.Option(rich_help_panel=_LOCAL, help="Of the weights: float32, bfloat16 or float16."),
    ] = None,
    rows: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_LOCAL,
            min=1,
            help="Sequences decoded at a time; default 64, on a CPU 8.",
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(rich_help_panel=_LOCAL, help="Prompt template; default the model's own."),
    ] = None,
    base_url: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_ENDPOINT, help="Of an OpenAI-compatible endpoint, up to /v1."
        ),
    ] = None,
    key_variable: Annotated[
        str | None,
        typer.Option(
            rich_help_panel=_ENDPOINT,
            help="Environment variable with its key; default OPENAI_API_KEY.",
        ),
    ] = None,
    concurrency: Annotated[
        int | None,
        typer.Option(
            rich_help_panel=_ENDPOINT, min=1, help="Requests under way at a time; default 16."
        ),
    ] = None,
    requests_per_minute: Annotated[
        int | None, typer.Option(rich_help_panel=_ENDPOINT, min=1)
    ] = None,
    tokens_per_minute: Annotated[int | None, typer.Option(rich_help_panel=_ENDPOINT, min=1)] = None,
    input_price: Annotated[
        float | None,
        typer.Option(rich_help_panel=_ENDPOINT, min=0, help="Dollars for a million prompt tokens."),
    ] = None,
    output_price: Annotated[
        float | None,
        typer.Option(
            rich_help_panel=_ENDPOINT, min=0, help="Dollars for a million completion tokens."
        ),
    ] = None,
    backend: Backend = "auto",
    timing: Timing = None,
    policy: PolicyFile = None,
    workers: Workers = None,
    gpus: Gpus = None,
) -> None:
    """Evaluate a model on KernelBench. Interrupt it at any time; `dice eval resume RUN` goes on.

    Exits with 0 when every sample has a verdict, 1 when the machine failed on some, 2 for bad input.
    """
    from dice.cli.eval_session import open_model, run
    from dice.cli.machine import choose_backend
    from dice.eval import plan
    from dice.problems.benchmark import HUB_ID, load_benchmark
    from dice.verify import Policy

    level_numbers = plan.numbers(levels, "--levels")
    wanted = None if problems is None else plan.numbers(problems, "--problems")
    sampling = plan.sampling_of(
        samples=samples,
        seed=seed,
        temperature=temperature,
        top_p=top_p,
        top_k=top_k,
        threshold=threshold,
        steps=steps,
        max_new_tokens=max_new_tokens,
    )
    options = {
        "model": model,
        "adapter": adapter,
        "device": device,
        "dtype": dtype,
        "rows": rows,
        "template": template,
        "base_url": base_url,
        "key_variable": key_variable,
        "concurrency": concurrency,
        "requests_per_minute": requests_per_minute,
        "tokens_per_minute": tokens_per_minute,
        "input_price": input_price,
        "output_price": output_price,
    }
    if (out / "run.json").exists():
        raise UserError(f"{out} holds a run already: dice eval resume {out}, or another --out")
    rules = Policy() if policy is None else Policy.from_toml(policy)
    benchmark = load_benchmark(dataset or HUB_ID)
    chosen = plan.choose(benchmark, level_numbers, problem_ids=wanted, limit=limit)
    here = plan.place(*choose_backend(backend, timing))
    with open_model(options) as writer:
        from dice.eval.run import sampling_params

        sampling_params(sampling, writer.defaults, (1, 1, 0))  # refuses what cannot be, in time
        store = plan.new_run(
            out,
            benchmark,
            chosen,
            model=dict(writer.describe()),
            options=options,
            sampling=sampling,
            here=here,
            policy=rules,
        )
        code = run(store, benchmark, writer, policy=rules, workers=workers, gpus=gpus)
    raise typer.Exit(code)


@app.command("resume")
def resume(run: Run, dataset: Dataset = None, workers: Workers = None, gpus: Gpus = None) -> None:
    """Go on with a run: generate and judge what is missing, try again what the machine failed on."""
    from contextlib import nullcontext

    from dice.cli import eval_session
    from dice.cli.machine import choose_backend
    from dice.eval import plan
    from dice.eval.store import Store
    from dice.problems import load_benchmark

    store = Store.open(run)
    config = store.config
    benchmark = load_benchmark(dataset or config.dataset)
    here = plan.place(*choose_backend(config.place.backend, config.place.timing or None))
    plan.same_place(config, here)
    rules = plan.policy_from(config.policy)
    imported = config.model.get("kind") == "imported"
    with nullcontext() if imported else eval_session.open_model(config.options) as writer:
        if writer is not None:
            eval_session.same_model(store, writer)
        plan.resumed(store)
        code = eval_session.run(store, benchmark, writer, policy=rules, workers=workers, gpus=gpus)
    raise typer.Exit(code)


@app.command("score")
def score(
    run: Run,
    policy: PolicyFile = None,
    thresholds: Annotated[str | None, typer.Option(help="The p of fast_p, as in 0,1,2.")] = None,
    pass_k: Annotated[str | None, typer.Option(help="The k of pass@k, as in 1,4,16.")] = None,
    claims: Annotated[
        bool,
        typer.Option("--upstream", help="Of an imported run: what KernelBench's scripts said."),
    ] = False,
    out: Annotated[
        Path | None, typer.Option(help="Folder for the report; default the run's own.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Score what a run logged, without running anything, and write its report.

    --policy may change who earns credit for a right output ([attribution]); other constants need the
    candidates to be judged again.
    """
    from dice.cli.eval_session import finish
    from dice.eval.store import Store
    from dice.eval.summary import PASS_K, THRESHOLDS

    store = Store.open(run)
    earns = None if policy is None else _earns(store, policy)
    if claims and not store.log.upstream:
        raise UserError(f"{run} holds nothing that KernelBench's scripts said; it was not imported")
    finish(
        store,
        out or run,
        thresholds=THRESHOLDS if thresholds is None else _floats(thresholds),
        pass_k=PASS_K if pass_k is None else tuple(int(k) for k in _floats(pass_k)),
        earns=earns,
        claims=claims,
        as_json=as_json,
    )


@app.command("import")
def import_(
    folder: Annotated[
        Path, typer.Argument(metavar="FOLDER", help="With level_1_problem_2_sample_0_kernel.py.")
    ],
    out: Annotated[Path, typer.Option(metavar="RUN", help="New folder for the run.")],
    dataset: Dataset = None,
    eager: Annotated[
        Path | None, typer.Option(help="baseline_time_torch.json of the machine it was timed on.")
    ] = None,
    compiled: Annotated[
        Path | None, typer.Option("--compile", help="The same of torch.compile.")
    ] = None,
    backend: Backend = "auto",
    timing: Timing = None,
    policy: PolicyFile = None,
) -> None:
    """Take over a run of KernelBench's scripts; `dice eval resume RUN` then judges it anew."""
    from rich.console import Console

    from dice.cli.machine import choose_backend
    from dice.eval import plan
    from dice.problems.benchmark import HUB_ID, load_benchmark
    from dice.verify import Policy

    store = plan.import_run(
        out,
        folder,
        load_benchmark(dataset or HUB_ID),
        here=plan.place(*choose_backend(backend, timing)),
        policy=Policy() if policy is None else Policy.from_toml(policy),
        baselines={name: path for name, path in (("eager", eager), ("compile", compiled)) if path},
    )
    count = len(store.log.generations)
    Console(highlight=False, soft_wrap=True).print(
        f"{count} candidates, {len(store.log.upstream)} of them with results, are in {out}.\n"
        f"  dice eval score --upstream {out}    what KernelBench's scripts said\n"
        f"  dice eval resume {out}              judge them here",
        markup=False,
    )


@app.command("compare")
def compare(
    first: Annotated[Path, typer.Argument(metavar="A", help="Folder of a run.")],
    second: Annotated[Path, typer.Argument(metavar="B", help="Folder of the other.")],
    speed: Annotated[
        bool, typer.Option("--speed/--no-speed", help="Compare times, too, where both have them.")
    ] = True,
    markdown: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write the comparison as Markdown.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print it as JSON.")] = False,
) -> None:
    """Compare two runs problem by problem, B beside A, with a significance test."""
    import json

    from rich.console import Console

    from dice.cli.eval_view import print_comparison
    from dice.eval import report
    from dice.eval.compare import Run as Side
    from dice.eval.compare import compare as pair
    from dice.eval.store import Store, write_text

    found = pair(Side.of(Store.open(first)), Side.of(Store.open(second)), speed=speed)
    if markdown is not None:
        write_text(markdown, report.comparison_markdown(found))
    if as_json:
        typer.echo(json.dumps(report.comparison_json(found), indent=1))
    else:
        print_comparison(Console(highlight=False), found)


def _earns(store: "Store", path: Path) -> dict[str, str]:
    """What each attribution earns under another policy. Raises UserError where more would change."""
    from dice.eval import plan
    from dice.verify import Policy

    old, new = store.config.policy, plan.policy_record(Policy.from_toml(path))
    labels = ("custom", "mixed", "library", "pytorch")
    ignored = {*labels, "timing", "limits", "reference_limits", "seed"}
    changed = [name for name in new if name not in ignored and old.get(name) != new[name]]
    if changed:
        raise UserError(
            f"{path} changes {', '.join(changed)}: that needs the candidates to be judged again. "
            "A score takes other [attribution] only"
        )
    return {label: new[label] for label in labels}


def _floats(text: str) -> tuple[float, ...]:
    try:
        found = tuple(sorted({float(part) for part in text.split(",")}))
    except ValueError as e:
        raise UserError(f"{text!r}: write numbers, as in 0,1,2") from e
    if not found or found[0] < 0:
        raise UserError(f"{text!r}: write numbers that are not negative, as in 0,1,2")
    return found
