"""Make nano, the model in the package, on one machine with a GPU: data, tokenizer, training, evaluation.

    python benchmarks/train_nano.py [bench] [data] [tokenizer] [train] [eval] [export] --work FOLDER --out FOLDER

Stages run in the order above, whichever are named (all but bench by default). A stage whose result is in
FOLDER skips itself, so a call that ran out of time is continued by the same command: data goes on at
the next shard, training at its last checkpoint. `bench` measures training speed on random tokens alone.
"""

import argparse
import glob
import json
import os
import shutil
import sys
import tarfile
import time
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from random import Random
from typing import Any

import torch

from dice.config.load import load_config
from dice.config.provenance import provenance
from dice.config.schema import DataConfig, SftConfig
from dice.data.build import BuildProgress, build_dataset
from dice.data.records import PairRecord, read_records
from dice.data.store import SampleStore
from dice.data.tokenize import training_texts
from dice.data.tokenizer import save_tokenizer, train_tokenizer
from dice.train.batches import TokenIds
from dice.train.meter import StepReport
from dice.train.run import new_model, run_sft
from dice.train.sft import train_sft
from dice.types import Candidate, Problem, TrainingSample

ROOT = Path(__file__).parents[1]
STARTED = time.monotonic()


def say(*parts: object) -> None:
    """Print with the seconds since the start, at once."""
    print(f"[{time.monotonic() - STARTED:6.1f}s]", *parts, flush=True)


def bench(args: argparse.Namespace) -> None:
    """Training speed on random tokens: the real model, rows and loss, `--bench-steps` steps."""
    config = sft_config(args, [f"train.max_steps={args.bench_steps}", "train.log_every=10"])
    rng = Random(0)
    samples = []
    for _ in range(40 * config.train.rows_per_batch):
        prompt, response = rng.randint(60, 250), rng.randint(150, 600)
        ids = tuple(rng.randrange(5, 4000) for _ in range(prompt + response))
        samples.append(TrainingSample(token_ids=ids, prompt_length=prompt))
    ids = TokenIds(mask=1, stop=2, pad=0, block_size=config.model.block_size)
    folder = args.work / "bench"
    shutil.rmtree(folder, ignore_errors=True)
    config = config.model_copy(
        update={"train": config.train.model_copy(update={"time_budget_s": None, "epochs": 100})}
    )
    train_sft(
        config,
        model=new_model(config.model, 4096, ids),
        store=SampleStore.from_samples(samples),
        ids=ids,
        run_dir=folder,
        device=args.device,
        on_progress=print_step,
    )
    if args.device == "cuda":
        say(f"peak memory {torch.cuda.max_memory_allocated() / 2**30:.1f} GiB")


def data(args: argparse.Namespace) -> None:
    """Verified pairs, with every core."""
    config = load_config(args.data_config, DataConfig, args.set_data).build
    stats = args.work / "data" / "stats.json"
    if stats.exists() and json.loads(stats.read_text())["complete"]:
        return say("data: already built")
    stop_at = time.monotonic() + args.data_seconds
    last = 0.0

    def report(progress: BuildProgress) -> None:
        nonlocal last
        if time.monotonic() - last > 5.0 or progress.done in (0, progress.total):
            last = time.monotonic()
            say(f"data: {progress.stage} {progress.done}/{progress.total} {progress.rejected}")

    result = build_dataset(
        config,
        args.work / "data",
        on_progress=report,
        should_stop=lambda: time.monotonic() > stop_at,
    )
    say("data:", json.dumps({k: v for k, v in result.stats.items() if k != "schedules"}))
    return None


def tokenizer(args: argparse.Namespace) -> None:
    """Byte-level BPE over a sample of the training pairs."""
    folder = args.work / "tokenizer"
    if (folder / "tokenizer.json").exists():
        return say("tokenizer: already trained")
    records = list(read_records(args.work / "data" / "train.jsonl"))
    Random(0).shuffle(records)
    trained = train_tokenizer(training_texts(records[:20_000]), vocab_size=args.vocab_size)
    save_tokenizer(trained, folder)
    say(f"tokenizer: {len(trained)} tokens")
    return None


def train(args: argparse.Namespace) -> None:
    """Train until the budget is used up or this call has to end; export either way."""
    folder = args.work / "run"
    resume = (folder / "checkpoint.pt").exists()
    if (folder / "done.json").exists():
        return say("train: already done")
    budget = [] if args.train_seconds is None else [f"train.time_budget_s={args.train_seconds}"]
    config = sft_config(args, budget)
    run = run_sft(
        config,
        folder,
        device=args.device,
        resume=resume,
        on_progress=print_step,
        should_stop=lambda: time.monotonic() - STARTED > args.call_seconds,
    )
    state = run.result.progress
    say(f"train: step {state.step} epoch {state.epoch} tokens {state.tokens / 1e6:.1f}M", state)
    if not run.result.interrupted:
        (folder / "done.json").write_text(json.dumps({"loss": run.result.loss}) + "\n")
    return None


def evaluate(args: argparse.Namespace) -> None:
    """Greedy decoding of held-out pairs and of the example files; exact match, then the judge."""
    from dice.engine.llm import LLM
    from dice.engine.sampling import SamplingParams
    from dice.models.load import load_model
    from dice.problems.parse import load_problem, parse_problem
    from dice.prompts.extract import extract
    from dice.prompts.render import render

    loaded = load_model(args.work / "run" / "model", device=args.device)
    held_out = list(read_records(args.work / "data" / "held_out.jsonl"))
    Random(1).shuffle(held_out)
    held_out = held_out[: args.eval_problems]
    problems = [
        parse_problem(r.problem_code, name=f"held_out/{r.index}", source="synth") for r in held_out
    ]
    problems += [load_problem(path) for path in sorted(glob.glob(str(ROOT / "examples" / "*.py")))]
    prompts = [render(problem, "nano") for problem in problems]
    params = SamplingParams(
        max_new_tokens=args.max_new_tokens, temperature=0.0, confidence_threshold=0.9
    )
    begun = time.monotonic()
    completions = LLM(loaded, max_rows=args.eval_rows).generate(prompts, params)
    decode_s = time.monotonic() - begun
    candidates = [extract(p, c) for p, c in zip(prompts, completions, strict=True)]
    expected = [r.kernel_code for r in held_out]
    exact = [c.text == k for c, k in zip(completions, expected, strict=False)]
    scores: dict[str, Any] = {
        "held_out": len(held_out),
        "exact": sum(exact),
        "decode_s": decode_s,
        "tokens_per_forward": sum(len(c.token_ids) for c in completions)
        / sum(c.forwards for c in completions),
        "unfinished": sum(c.finish_reason != "stop" for c in completions),
    }
    say("eval:", json.dumps(scores))
    show_misses(held_out, completions, exact)
    if not args.no_judge:
        scores |= judged(args, problems, candidates, held_out, exact)
        say("eval:", json.dumps(scores))
    (args.work / "scores.json").write_text(json.dumps(scores, indent=2) + "\n")


def show_misses(records: list[PairRecord], completions: list[Any], exact: list[bool]) -> None:
    """The first differing line of up to 12 wrong answers."""
    misses = [i for i, right in enumerate(exact) if not right][:12]
    for i in misses:
        ours, theirs = completions[i].text.splitlines(), records[i].kernel_code.splitlines()
        pairs = [(a, b) for a, b in zip(ours, theirs, strict=False) if a != b]
        where = pairs[0] if pairs else (f"{len(ours)} lines", f"{len(theirs)} lines")
        print(f"  {records[i].family} {records[i].ops}\n    got  {where[0]}\n    want {where[1]}")


def judged(
    args: argparse.Namespace,
    problems: list[Problem],
    candidates: list[Candidate],
    held_out: list[PairRecord],
    exact: list[bool],
) -> dict[str, Any]:
    """Verdicts on every answer that is not the teacher's text, and on the example files."""
    todo = [i for i in range(len(problems)) if i >= len(held_out) or not exact[i]]
    jobs = [(problems[i], candidates[i]) for i in todo]
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        verdicts = dict(zip(todo, pool.map(judge_one, jobs), strict=True))
    names = {problems[i].name: v for i, v in verdicts.items() if i >= len(held_out)}
    ours = [v for i, v in verdicts.items() if i < len(held_out)]
    for name, verdict in names.items():
        say("example", name, verdict)
    kinds = [v.split(":")[0] for v in ours]
    return {
        "correct": sum(exact) + kinds.count("correct"),
        "verdicts": {k: kinds.count(k) for k in sorted(set(kinds))},
        "examples_correct": sum(v.startswith("correct") for v in names.values()),
        "examples": names,
    }


def judge_one(job: tuple[Problem, Candidate]) -> str:
    """The judge's verdict in one line; an error of the machinery is said, not raised."""
    from dice.verify.judge import Judge

    torch.set_num_threads(1)
    problem, candidate = job
    try:
        judge = Judge()
        verdict = judge.judge(judge.prepare(problem), candidate)
    except Exception as e:
        return f"error: {type(e).__name__}: {e}"[:200]
    evidence = verdict.evidence[0].message.splitlines()[0] if verdict.evidence else ""
    return f"{verdict.kind.value}: {evidence}"[:200]


def export(args: argparse.Namespace) -> None:
    """At most 8 files of at most 16 MiB: weight shards, and a tar of everything small."""
    args.out.mkdir(parents=True, exist_ok=True)
    folder = args.work / "run" / "model"
    for shard in folder.glob("*.safetensors"):
        shutil.copy(shard, args.out / shard.name)
    (args.work / "provenance.json").write_text(json.dumps(provenance(), indent=2) + "\n")
    small = [p for p in folder.iterdir() if p.suffix != ".safetensors"]
    small += [args.work / "scores.json", args.work / "provenance.json"]
    small += [args.work / "data" / "stats.json", args.work / "data" / "plan.json"]
    small += [args.work / "run" / n for n in ("config.json", "metrics.jsonl", "provenance.jsonl")]
    with tarfile.open(args.out / "nano_small.tar.gz", "w:gz") as tar:
        for path in small:
            if path.exists():
                tar.add(path, arcname=f"{path.parent.name}/{path.name}")
    total = sum(p.stat().st_size for p in args.out.iterdir())
    say(f"export: {sorted(p.name for p in args.out.iterdir())} {total / 2**20:.1f} MiB")


def print_step(r: StepReport) -> None:
    """One line a report."""
    say(
        f"step {r.step} done {r.done:.3f} epoch {r.epoch} loss {r.loss:.4f} nll {r.nll:.4f} "
        f"grad {r.grad_norm:.2f} lr {r.lr:.2e} {r.tokens / 1e6:.1f}M tokens {r.tokens_per_s:,.0f}/s"
    )


def sft_config(args: argparse.Namespace, extra: list[str]) -> SftConfig:
    """The TOML file with this script's paths and overrides."""
    paths = [f"data.train={args.work}/data/train.jsonl", f"data.tokenizer={args.work}/tokenizer"]
    return load_config(args.sft_config, SftConfig, [*paths, *extra, *args.set])


STAGES = {
    "bench": bench,
    "data": data,
    "tokenizer": tokenizer,
    "train": train,
    "eval": evaluate,
    "export": export,
}


def main() -> None:
    """Run the named stages."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("stages", nargs="*", metavar="STAGE", default=[])
    parser.add_argument("--work", type=Path, default=Path("/tmp/dice_nano"))
    parser.add_argument(
        "--out", type=Path, default=Path(os.environ.get("OUT", "/tmp/dice_nano/out"))
    )
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--data-config", type=Path, default=ROOT / "configs" / "nano_data.toml")
    parser.add_argument("--sft-config", type=Path, default=ROOT / "configs" / "nano_sft.toml")
    parser.add_argument("--set", action="append", default=[], metavar="train.lr=1e-3")
    parser.add_argument("--set-data", action="append", default=[], metavar="build.pairs=1000")
    parser.add_argument("--data-seconds", type=float, default=1e9)
    parser.add_argument("--train-seconds", type=float, default=None)
    parser.add_argument("--call-seconds", type=float, default=1e9)
    parser.add_argument("--vocab-size", type=int, default=4096)
    parser.add_argument("--bench-steps", type=int, default=60)
    parser.add_argument("--eval-problems", type=int, default=96)
    parser.add_argument("--eval-rows", type=int, default=128)
    parser.add_argument("--max-new-tokens", type=int, default=2048)
    parser.add_argument("--no-judge", action="store_true")
    args = parser.parse_args()
    os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", str(args.work / "inductor"))
    args.work.mkdir(parents=True, exist_ok=True)
    torch.set_float32_matmul_precision("high")
    unknown = set(args.stages) - STAGES.keys()
    if unknown:
        parser.error(f"no stage {', '.join(sorted(unknown))}; there are {', '.join(STAGES)}")
    wanted = args.stages or [s for s in STAGES if s != "bench"]
    say("device", args.device, "torch", torch.__version__, "python", sys.version.split()[0])
    for name, stage in STAGES.items():
        if name in wanted:
            stage(args)


if __name__ == "__main__":
    main()
