"""Candidates per minute: the split build and the whole verification against the stock path.

On a GPU, over the 99 infilling answers (object cache empty, precompiled header ready):

    python benchmarks/verify_throughput.py --backend cuda --workers 16 [--stock 32]

A verification is a build and the correctness check on five inputs, no timing. The peer is
`stock_verify.py`: a new Python process that lets torch build the extension. Rates are given by the wall
clock, and by workers x 60 / mean seconds, which does not depend on how the last items happen to fall.
On the CPU backend:

    python benchmarks/verify_throughput.py --backend simt --workers 2
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections import Counter
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, as_completed
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import machine
from simt_infilling import read_answers

Answer = dict[str, str]
Record = dict[str, Any]
HERE = Path(__file__).parent


def sources_of(code: str) -> list[Any]:
    """What a candidate would have built, found by running it with a load_inline that only listens."""
    import torch.utils.cpp_extension as stock

    from dice.errors import BuildFailure
    from dice.toolchain.intercept import Interceptor

    def refuse(sources: Any) -> Any:
        raise BuildFailure("only listening")

    listener = Interceptor(build=refuse)

    def listen(*arguments: Any, **options: Any) -> types.SimpleNamespace:
        with contextlib.suppress(BuildFailure):
            listener.load_inline(*arguments, **options)
        return types.SimpleNamespace()

    stock.load_inline = listen
    try:
        exec(compile(code, "candidate", "exec"), {"__name__": "candidate"})
    except Exception as error:
        print(f"  a candidate does not import: {error}")
    return listener.sources


def summary(name: str, records: list[Record], wall_s: float, workers: int, key: str) -> Record:
    """Rates of one part, printed."""
    seconds = [one[key] for one in records]
    mean = statistics.fmean(seconds)
    result = {
        "items": len(records),
        "wall_s": round(wall_s, 1),
        "median_s": round(statistics.median(seconds), 2),
        "mean_s": round(mean, 2),
        "per_minute_wall": round(60 * len(records) / wall_s, 1),
        "per_minute_mean": round(60 * workers / mean, 1),
    }
    print(f"{name}: {json.dumps(result)}", flush=True)
    return result


def build_all_split(items: list[tuple[str, Any]], workers: int, cache: str) -> list[Record]:
    """Build every extension on a GPU machine's own toolchain, stock path forbidden."""
    with ProcessPoolExecutor(workers, mp_context=get_context("fork")) as pool:
        return list(pool.map(partial(_build_split, cache=cache), items))


def _build_split(item: tuple[str, Any], *, cache: str) -> Record:
    from dice.errors import BuildFailure
    from dice.toolchain.cuda.build import build
    from dice.toolchain.cuda.options import CudaOptions

    options = CudaOptions(allow_stock=False, cache_dir=cache)
    started = time.monotonic()
    record: Record = {"id": item[0]}
    try:
        record["route"] = build(item[1], options=options).route
    except BuildFailure as failure:
        record |= {"route": "failed", "reason": str(failure)[:300]}
    return record | {"build_s": time.monotonic() - started}


def run_stock(answers: list[Answer], workers: int, deadline: float) -> list[Record]:
    """Each answer in a new Python process, as `stock_verify.py` does it."""
    os.environ.setdefault("TORCH_CUDA_ARCH_LIST", "9.0")

    def one(answer: Answer) -> Record:
        if time.monotonic() > deadline:
            return {"id": answer["id"], "ending": "not run"}
        with tempfile.TemporaryDirectory(prefix="stock-job-") as folder:
            job = Path(folder) / "job.json"
            job.write_text(json.dumps(answer))
            started = time.monotonic()
            ran = subprocess.run(
                [sys.executable, str(HERE / "stock_verify.py"), str(job)],
                capture_output=True,
                text=True,
                check=False,
            )
            lines = [line for line in ran.stdout.splitlines() if line.startswith("{")]
            record = (
                json.loads(lines[-1]) if lines else {"ending": "died", "reason": ran.stderr[-300:]}
            )
            record |= {"id": answer["id"], "total_s": time.monotonic() - started}
        print(f"  stock {answer['id']}: {record['ending']} {record['total_s']:.0f} s", flush=True)
        return record

    with ThreadPoolExecutor(workers) as pool:
        return [future.result() for future in as_completed([pool.submit(one, a) for a in answers])]


def judge_all(answers: list[Answer], workers: int, backend: str, *, check: bool) -> list[Record]:
    """Every answer through a pool of judges; the pool is open before the clock starts."""
    from dice.problems.parse import parse_problem
    from dice.types import Candidate
    from dice.verify.policy import Policy
    from dice.verify.pool import Job, Pool

    policy = replace(Policy(seed=1), check=check, input_sets=5)
    records: list[Record] = []
    with Pool(workers=workers, policy=policy, backend=backend) as pool:
        jobs = [
            Job(
                id=one["id"],
                problem=parse_problem(one["problem"], name=one["id"]),
                candidate=Candidate(problem=one["id"], code=one["code"], name=one["id"]),
            )
            for one in answers
        ]
        warm = list(pool.map(jobs[:1] * workers))
        print(f"  pool ready ({len(warm)} warm-up jobs)", flush=True)
        started = time.monotonic()
        for outcome in pool.map(jobs):
            verdict = outcome.verdict
            records.append(
                {
                    "id": outcome.job.id,
                    "at_s": round(time.monotonic() - started, 2),
                    "kind": str(verdict.kind) if verdict else "error",
                    "attribution": verdict.attribution if verdict else None,
                    "build_s": verdict.build_s if verdict else None,
                    "run_s": verdict.run_s if verdict else None,
                    "evidence": [[e.kind, e.message[:200]] for e in verdict.evidence[:2]]
                    if verdict
                    else [["error", str(outcome.error)[:300]]],
                }
            )
    return records


def measure_gpu(args: argparse.Namespace) -> Record:
    from dice.toolchain.cuda import prelude
    from dice.toolchain.cuda.options import CudaOptions

    answers = read_answers()
    result: Record = {}
    if not args.skip_split:
        with tempfile.TemporaryDirectory(prefix="throughput-") as cache:
            os.environ["DICE_CACHE"] = cache
            started = time.monotonic()
            prelude.ensure_prelude(CudaOptions(), print)
            result["header_s"] = round(time.monotonic() - started, 1)
            items = [(a["id"], s) for a in answers for s in sources_of(a["code"])]
            build_all_split(items[:1], 1, cache)
            started = time.monotonic()
            builds = build_all_split(items[1:], args.workers, cache)
            wall = time.monotonic() - started
            print(Counter(one["route"] for one in builds))
            for one in builds:
                if one["route"] == "failed":
                    print("  not split:", one["id"], one["reason"][:160])
            split = [one for one in builds if one["route"] != "failed"]
            result["split_builds"] = summary("split builds", split, wall, args.workers, "build_s")
            shutil.rmtree(Path(cache) / "cuda-extensions")
            verdicts = judge_all(answers, args.workers, "cuda", check=True)
            wall = max(one["at_s"] for one in verdicts)
        result["verdicts"] = verdicts
        print(Counter(one["kind"] for one in verdicts))
        for one in verdicts:
            if one["kind"] != "correct":
                print("  ", one["id"], one["kind"], str(one["evidence"])[:220])
        result["split_verifications"] = {
            "items": len(verdicts),
            "wall_s": round(wall, 1),
            "per_minute_wall": round(60 * len(verdicts) / wall, 1),
        }
        print("split verifications:", json.dumps(result["split_verifications"]), flush=True)
        slow = {one["id"] for one in builds if one["route"] == "failed"}
        rest = [one["at_s"] for one in verdicts if one["id"] not in slow]
        result["split_only"] = {
            "items": len(rest),
            "wall_s": max(rest),
            "per_minute_wall": round(60 * len(rest) / max(rest), 1),
        }
        print("of these the ones that split:", json.dumps(result["split_only"]), flush=True)
    if args.stock:
        chosen = random.Random(0).sample(answers, args.stock)
        started = time.monotonic()
        stock = run_stock(chosen, args.workers, started + args.seconds)
        wall = time.monotonic() - started
        done = [one for one in stock if "total_s" in one]
        result["stock"] = stock
        built = [one for one in done if one.get("build_s")]
        result["stock_builds"] = summary("stock builds", built, wall, args.workers, "build_s")
        result["stock_verifications"] = summary("stock", done, wall, args.workers, "total_s")
        if not args.skip_split:
            builds_ratio = (
                result["split_builds"]["per_minute_mean"]
                / result["stock_builds"]["per_minute_mean"]
            )
            whole = (
                result["split_verifications"]["per_minute_wall"]
                / result["stock_verifications"]["per_minute_wall"]
            )
            result["ratio_builds"], result["ratio_whole"] = round(builds_ratio, 1), round(whole, 1)
            print(f"ratio: builds {builds_ratio:.1f}x, verification {whole:.1f}x")
    return result


def measure_cpu(args: argparse.Namespace) -> Record:
    """Both modes, each with an empty object cache; nvcc has its say where it is installed."""
    from dice.toolchain.nvcc import find_nvcc

    result: Record = {"nvcc": find_nvcc() is not None, "verdicts": []}
    for mode in ("check", "fast"):
        with tempfile.TemporaryDirectory(prefix="throughput-") as cache:
            os.environ["DICE_CACHE"] = cache
            verdicts = judge_all(read_answers(), args.workers, "simt", check=mode == "check")
        wall = max(one["at_s"] for one in verdicts)
        builds = sorted(one["build_s"] for one in verdicts if one["build_s"])
        print(mode, Counter(one["kind"] for one in verdicts))
        result[mode] = {
            "items": len(verdicts),
            "wall_s": round(wall, 1),
            "per_minute_wall": round(60 * len(verdicts) / wall, 1),
            "median_build_s": round(builds[len(builds) // 2], 2),
        }
        print(mode, json.dumps(result[mode]), flush=True)
        result["verdicts"] += [{"mode": mode, **one} for one in verdicts]
    return result


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", choices=("cuda", "simt"), required=True)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument(
        "--stock", type=int, default=0, help="how many seeded answers the peer verifies"
    )
    parser.add_argument(
        "--seconds", type=float, default=400.0, help="start no peer after this long"
    )
    parser.add_argument("--skip-split", action="store_true")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    result = measure_gpu(args) if args.backend == "cuda" else measure_cpu(args)
    records = result.pop("verdicts", [])
    result["workers"] = args.workers
    machine.write_results(f"verify_throughput_{args.backend}", result, records, args.out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
