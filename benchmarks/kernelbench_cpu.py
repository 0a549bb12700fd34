"""How many problems does a model solve, best of N, judged on a CPU?

Sets: `kernelbench-l1` (KernelBench level 1), `dice-rl-200` (200 seeded modules of DICE's RL stage) and
`examples` (this project's eight hand-written ones). Candidates are decoded first (on a GPU if asked), then
judged by the full verifier, problem by problem, in several processes. Both stages append to JSON lines
under --out, so an interrupted run goes on where it stopped.

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


def decode(args: argparse.Namespace, problems: list[Any], path: Path) -> dict[str, Any]:
    """Candidates of every problem, those already there left alone."""
    done = read_lines(path)
    todo = [p for p in problems if p.name not in done]
    if not todo:
        return done
    from dice.cli.generate import sampling_plan
    from dice.engine import LLM
    from dice.errors import UserError
    from dice.models.load import load_model
    from dice.prompts import render

    llm = LLM(load_model(args.model, device=args.device), max_rows=args.rows)
    plan = sampling_plan(
        args.candidates,
        args.seed,
        llm.loaded.generation,
        temperature=args.temperature,
        threshold=None,
        steps=None,
        max_new_tokens=None,
    )
    group = max(1, args.rows // args.candidates)
    for start in range(0, len(todo), group):
        began = time.perf_counter()
        batch, prompts, params = [], [], []
        for problem in todo[start : start + group]:
            prompt = render(problem, llm.loaded.template)
            try:  # a prompt that overflows the context is a counted failure
                llm.check(prompt, plan[0])
            except UserError as e:
                append(path, {"problem": problem.name, "error": str(e), "codes": []})
                continue
            batch.append(problem)
            prompts += [prompt] * len(plan)
            params += plan
        completions = llm.generate(prompts, params)
        seconds = time.perf_counter() - began
        for i, problem in enumerate(batch):
            own = completions[i * len(plan) : (i + 1) * len(plan)]
            row = {
                "problem": problem.name,
                "codes": [c.text for c in own],
                "tokens": [len(c.token_ids) for c in own],
                "forwards": [c.forwards for c in own],
                "finish": [c.finish_reason for c in own],
            }
            append(path, row)
        print(f"decoded {start + len(batch)}/{len(todo)} ({seconds:.1f} s)", flush=True)
    return read_lines(path)


def judge_one(problem: Any, codes: list[str], error: str | None) -> dict[str, Any]:
    """Verdicts of one problem's candidates, stopping at the first correct one."""
    from dice.errors import ProblemError
    from dice.types import Candidate
    from dice.verify import Judge

    began = time.perf_counter()
    row: dict[str, Any] = {"problem": problem.name, "verdicts": [], "error": error}
    if error is None:
        with Judge() as judge:
            try:
                prepared = judge.prepare(problem)
            except ProblemError as e:
                row["error"] = f"problem: {e}"
            else:
                for code in dict.fromkeys(codes):
                    verdict = judge.judge(prepared, Candidate(problem=problem.name, code=code))
                    row["verdicts"].append(
                        {
                            "kind": str(verdict.kind),
                            "evidence": [e.message[:400] for e in verdict.evidence],
                        }
                    )
                    if verdict.correct:
                        break
    row["correct"] = any(v["kind"] == "correct" for v in row["verdicts"])
    row["seconds"] = round(time.perf_counter() - began, 2)
    return row


def judge(
    args: argparse.Namespace, problems: list[Any], decoded: dict[str, Any], path: Path
) -> None:
    done = read_lines(path)
    todo = [p for p in problems if p.name not in done]
    context = multiprocessing.get_context("spawn")
    with futures.ProcessPoolExecutor(args.workers, mp_context=context) as pool:
        jobs = [
            pool.submit(judge_one, p, decoded[p.name]["codes"], decoded[p.name].get("error"))
            for p in todo
        ]
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
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--rows", type=int, default=16, help="sequences decoded at a time")
    parser.add_argument("--workers", type=int, default=max(1, (os.cpu_count() or 1) // 2))
    parser.add_argument("--limit", type=int, default=None)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    problems = problem_set(args.set)[: args.limit]
    decoded = decode(args, problems, args.out / "candidates.jsonl")
    judge(args, problems, decoded, args.out / "verdicts.jsonl")
    result = summary(args, problems, read_lines(args.out / "verdicts.jsonl"))
    (args.out / "summary.json").write_text(json.dumps(result, indent=1) + "\n")
    print(json.dumps({k: v for k, v in result.items() if k != "correct_list"}, indent=1))
    print(
        f"{result['correct']} of {result['problems']} verified correct, best of {args.candidates}"
    )


if __name__ == "__main__":
    main()
