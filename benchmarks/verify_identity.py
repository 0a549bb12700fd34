"""Do split builds and torch's own get the same verdicts? All 99 infilling answers, judged both ways on a GPU.

    python benchmarks/verify_identity.py --out runs/identity --workers 16 --seconds 500

The inputs are the same for both (a fixed seed). A stock build takes a minute, so verdicts append to JSON lines
under --out, and the same command goes on where it stopped; it stops by itself after --seconds. Attribution
is left out: launches in an extension that torch has built can be neither seen nor skipped. Exits with 1 when
a verdict differs or is missing.
"""

import argparse
import json
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import machine
from dice.problems.parse import parse_problem
from dice.types import Candidate
from dice.verify import Job, Judge, Policy, Pool
from simt_infilling import read_answers

POLICY = Policy(seed=1, library="correct", pytorch="correct")
ROUTES = {"split": "verify_identity:open_split", "stock": "verify_identity:open_stock"}


def open_split(policy: Policy, *, on_progress: Callable[[str], None], **_: Any) -> Judge:
    return _open(policy, on_progress, always_stock=False)


def open_stock(policy: Policy, *, on_progress: Callable[[str], None], **_: Any) -> Judge:
    return _open(policy, on_progress, always_stock=True)


def _open(policy: Policy, on_progress: Callable[[str], None], *, always_stock: bool) -> Judge:
    from dice.toolchain.cuda.options import CudaOptions
    from dice.verify.backends import visible_gpu

    options = CudaOptions(always_stock=always_stock)
    return Judge(
        policy,
        backend="cuda",
        gpu=visible_gpu(),
        cuda_options=options,
        on_progress=on_progress,
    )


def judge(route: str, jobs: list[Job], workers: int, deadline: float, log: Path) -> None:
    """Verdicts of one route, appended as they come, until the deadline."""
    with (
        Pool(workers, policy=POLICY, backend="cuda", factory=ROUTES[route]) as pool,
        log.open("a") as file,
    ):
        written = threading.Lock()

        def note(job: Job, future: Any) -> None:
            if future.cancelled():
                return
            error = future.exception()
            verdict = None if error is not None else future.result()
            row = {
                "route": route,
                "id": job.id,
                "kind": "error" if verdict is None else str(verdict.kind),
                "evidence": [str(error)[:300]]
                if verdict is None
                else [f"{one.kind}: {one.message[:200]}" for one in verdict.evidence[:2]],
                "build_s": None if verdict is None else verdict.build_s,
            }
            with written:
                file.write(json.dumps(row) + "\n")
                file.flush()
            print(f"  {route} {job.id}: {row['kind']}", flush=True)

        futures = []
        for job in jobs:
            if time.monotonic() > deadline:
                break
            future = pool.submit(job)
            future.add_done_callback(lambda done, of=job: note(of, done))
            futures.append(future)
        while not all(one.done() for one in futures) and time.monotonic() < deadline:
            time.sleep(0.2)
        for one in futures:
            one.cancel()


def read(log: Path) -> dict[tuple[str, str], dict[str, Any]]:
    rows = [json.loads(line) for line in log.read_text().splitlines()] if log.exists() else []
    return {(row["route"], row["id"]): row for row in rows}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--workers", type=int, default=16)
    parser.add_argument("--seconds", type=float, default=500.0)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    log, deadline = args.out / "verdicts.jsonl", time.monotonic() + args.seconds
    answers = read_answers()
    jobs = [
        Job(
            id=one["id"],
            problem=parse_problem(one["problem"], name=one["id"]),
            candidate=Candidate(problem=one["id"], code=one["code"], name=one["id"]),
        )
        for one in answers
    ]
    for route in ROUTES:
        done = read(log)
        left = [job for job in jobs if (route, job.id) not in done]
        if left and time.monotonic() < deadline:
            judge(route, left, args.workers, deadline, log)
    rows = read(log)
    pairs = [(rows.get(("split", job.id)), rows.get(("stock", job.id))) for job in jobs]
    both = [(one, other) for one, other in pairs if one is not None and other is not None]
    differ = [(one, other) for one, other in both if one["kind"] != other["kind"]]
    for one, other in differ:
        print(f"{one['id']}: split {one['kind']} {one['evidence']}")
        print(f"{'':>{len(one['id'])}}  stock {other['kind']} {other['evidence']}")
    summary = {
        "judged_both_ways": len(both),
        "of": len(jobs),
        "same": len(both) - len(differ),
        "kinds": Counter(one["kind"] for one, _ in both),
    }
    print(summary)
    machine.write_results("verify_identity", summary, [*rows.values()])
    return 0 if len(both) == len(jobs) and not differ else 1


if __name__ == "__main__":
    sys.exit(main())
