"""How many problems does a model solve, best of N, judged on a CPU?

Sets: `kernelbench-l1` (KernelBench level 1), `dice-rl-200` (200 seeded modules of DICE's RL stage) and
`examples` (this project's eight hand-written ones). Each problem's candidates are decoded on one thread and
judged by the full verifier, in several processes. Results append to JSON lines under --out, so an
interrupted run goes on where it stopped.

    python benchmarks/kernelbench_cpu.py examples --out runs/examples
    python benchmarks/kernelbench_cpu.py kernelbench-l1 --out runs/kb1 --workers 2
"""

import argparse
import concurrent.futures as futures
import json
import multiprocessing
import os
import platform
import random
import subprocess
import time
from collections import Counter
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
DATA = Path(os.environ.get("DICE_SHARED_DATA", ROOT.parent / "shared" / "data"))


def problem_set(name: str) -> list[Any]:
    from dice.problems import load_dice_rl, load_jsonl, load_problem

    if name == "examples":
        return [load_problem(p) for p in sorted((ROOT / "examples").glob("*.py"))]
    if name == "kernelbench-l1":
        return [p for p in load_jsonl(DATA / "kernelbench_v0.2.jsonl") if p.level == 1]
    if name == "dice-rl-200":
        return random.Random(0).sample(load_dice_rl(DATA / "dice_rl_problems_4000.jsonl"), 200)
    raise SystemExit(f"no problem set {name!r}")


def read_lines(path: Path) -> dict[str, Any]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {row["problem"]: row for row in rows}


def append(path: Path, row: dict[str, Any]) -> None:
    with path.open("a") as f:
        f.write(json.dumps(row) + "\n")


LLM_OF_WORKER: Any = None
JUDGE_OF_WORKER: Any = None


def start_worker(model: str) -> None:
    """One thread a process: the pool is the parallelism."""
    global LLM_OF_WORKER, JUDGE_OF_WORKER
    import torch

    torch.set_num_threads(1)
    from dice.engine import LLM
    from dice.models.load import load_model
    from dice.verify import Judge

    LLM_OF_WORKER = LLM(load_model(model))
    JUDGE_OF_WORKER = Judge()


def solve(problem: Any, candidates: int, seed: int, temperature: float | None) -> dict[str, Any]:
    """Decode and judge one problem's candidates, the greedy one first, up to the first correct one."""
    from dice.cli.generate import sampling_plan
    from dice.errors import UserError
    from dice.prompts import extract, render

    llm, judge = LLM_OF_WORKER, JUDGE_OF_WORKER
    began = time.perf_counter()
    row: dict[str, Any] = {"problem": problem.name, "verdicts": [], "codes": [], "error": None}
    row |= {"tokens": [], "forwards": [], "correct": False}
    plan = sampling_plan(
        candidates,
        seed,
        llm.loaded.generation,
        temperature=temperature,
        threshold=None,
        steps=None,
        max_new_tokens=None,
    )
    try:
        prompt = render(problem, llm.loaded.template)
        llm.check(prompt, plan[0])  # a prompt that overflows the context is a counted failure
        prepared = judge.prepare(problem)
        for part in (plan[:1], plan[1:]):
            for completion in llm.generate([prompt] * len(part), part):
                row["tokens"].append(len(completion.token_ids))
                row["forwards"].append(completion.forwards)
                if row["correct"] or completion.text in row["codes"]:
                    continue
                row["codes"].append(completion.text)
                verdict = judge.judge(prepared, extract(prompt, completion))
                evidence = [e.message[:400] for e in verdict.evidence]
                row["verdicts"].append({"kind": str(verdict.kind), "evidence": evidence})
                row["correct"] = verdict.correct
            if row["correct"] or prepared.findings:
                break
    except UserError as e:
        row["error"] = str(e)
    row["seconds"] = round(time.perf_counter() - began, 2)
    return row


def run(args: argparse.Namespace, problems: list[Any], path: Path) -> None:
    """Solve what is not in `path` yet."""
    done = read_lines(path)
    todo = [p for p in problems if p.name not in done]
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(
        args.workers, mp_context=context, initializer=start_worker, initargs=(args.model,)
    ) as pool:
        jobs = [pool.submit(solve, p, args.candidates, args.seed, args.temperature) for p in todo]
        for i, job in enumerate(futures.as_completed(jobs), 1):
            row = job.result()
            append(path, row)
            kinds = ",".join(v["kind"] for v in row["verdicts"]) or row["error"]
            print(f"[{i}/{len(todo)}] {row['problem']}: {kinds} ({row['seconds']} s)", flush=True)


def summary(args: argparse.Namespace, problems: list[Any], rows: dict[str, Any]) -> dict[str, Any]:
    import torch

    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    judged = [rows[p.name] for p in problems]
    last = [r["verdicts"][-1]["kind"] if r["verdicts"] else "no verdict" for r in judged]
    return {
        "set": args.set,
        "model": args.model,
        "candidates": args.candidates,
        "seed": args.seed,
        "problems": len(problems),
        "correct": sum(r["correct"] for r in judged),
        "correct_list": [r["problem"] for r in judged if r["correct"]],
        "not_correct": {
            r["problem"]: r["error"] or ", ".join(v["kind"] for v in r["verdicts"])
            for r in judged
            if not r["correct"]
        },
        "last_verdicts": dict(Counter(last)),
        "commit": commit.stdout.strip() or None,
        "machine": {"cores": os.cpu_count(), "cpu": platform.processor() or platform.machine()},
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "date": time.strftime("%Y-%m-%d", time.gmtime()),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("set", choices=["kernelbench-l1", "dice-rl-200", "examples"])
    parser.add_argument("--model", default="nano")
    parser.add_argument("--candidates", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--temperature", type=float, default=None)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    problems = problem_set(args.set)[: args.limit]
    run(args, problems, args.out / "verdicts.jsonl")
    result = summary(args, problems, read_lines(args.out / "verdicts.jsonl"))
    (args.out / "summary.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "correct_list"}, indent=1))
    print(
        f"{result['correct']} of {result['problems']} verified correct, best of {args.candidates}"
    )


if __name__ == "__main__":
    main()
