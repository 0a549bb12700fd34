"""Do we agree with the stock definitions of correctness? The 99 infilling answers through both.

Stock definitions: `torch.allclose` with rtol = atol = 1e-2 (DICE) or 1e-4 (KernelBench for float32), on the first
or on all of five draws of `get_inputs()`, in the candidate's own process, at the original sizes. Ours: the answers
are imported as a run of KernelBench's scripts and judged as `dice eval resume` does it. Prints how often each pair
agrees, and every answer on which they do not, with the judge's evidence.

On a GPU kernels run there; without one they run on the emulator, in fast mode. Results of both stages are appended
to --work as they come, so an interrupted run goes on.

    python benchmarks/agreement.py --work /tmp/agreement --jobs 2
"""

import argparse
import contextlib
import json
import os
import select
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import machine
from simt_infilling import copied, copy_state, execute, flat, read_answers

TRIALS = 5
TOLERANCES = {"allclose 1e-2": 1e-2, "allclose 1e-4": 1e-4}


def allclose(expected: Any, actual: Any, tolerance: float) -> bool:
    """As the stock scripts compare: shapes, then `torch.allclose`."""
    import torch

    left, right = flat(expected), flat(actual)
    if len(left) != len(right) or not left:
        return False
    return all(
        one.shape == other.shape
        and torch.allclose(one, other.to(one.dtype), atol=tolerance, rtol=tolerance)
        for one, other in zip(left, right, strict=True)
    )


def stock(answer: dict[str, str]) -> dict[str, Any]:
    """Five trials of one answer in this process."""
    import torch

    on_gpu = torch.cuda.is_available()
    if not on_gpu:
        from dice.toolchain.intercept import install
        from dice.toolchain.source import BuildOptions

        torch.set_num_threads(1)
        install(BuildOptions(check=False))
    device = "cuda" if on_gpu else "cpu"
    reference = execute(answer["problem"], "problem")
    candidate = execute(answer["code"], "candidate")
    torch.manual_seed(42)
    arguments = reference["get_init_inputs"]()
    torch.manual_seed(42)
    module = reference["Model"](*arguments).to(device)
    torch.manual_seed(42)
    kernel = candidate["ModelNew"](*arguments).to(device)
    copy_state(module, kernel)
    trials = []
    for trial in range(TRIALS):
        torch.manual_seed(1000 + trial)
        inputs = [
            one.to(device) if torch.is_tensor(one) else one for one in reference["get_inputs"]()
        ]
        with torch.no_grad():
            expected, actual = module(*copied(inputs)), kernel(*copied(inputs))
        trials.append(
            {name: allclose(expected, actual, bound) for name, bound in TOLERANCES.items()}
        )
    return {"trials": trials}


def forked(answer: dict[str, str], timeout_s: float) -> dict[str, Any]:
    """`stock` in a process of its own: a crash or a hang is that answer's result."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(receive)
        silent = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silent, 1)
        os.dup2(silent, 2)
        try:
            record = stock(answer)
        except BaseException:
            record = {"reason": traceback.format_exc().strip().splitlines()[-1][:300]}
        os.write(send, json.dumps(record).encode())
        os._exit(0)
    os.close(send)
    ready, _, _ = select.select([receive], [], [], timeout_s)
    if not ready:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    data = b""
    while chunk := os.read(receive, 65536):
        data += chunk
    os.close(receive)
    _, status = os.waitpid(pid, 0)
    if data:
        return dict(json.loads(data))
    return {"reason": f"exit status {status}" if ready else f"no answer within {timeout_s:.0f} s"}


def run_stock(answers: list[dict[str, str]], work: Path, jobs: int, timeout_s: float) -> None:
    """Append every answer's trials to `work/stock.jsonl`."""
    from concurrent.futures import ThreadPoolExecutor

    path = work / "stock.jsonl"
    done = {row["index"] for row in read(path)}
    left = [index for index in range(len(answers)) if index not in done]
    with ThreadPoolExecutor(jobs) as threads, path.open("a") as file:
        started = time.monotonic()
        tasks = {i: threads.submit(forked, answers[i], timeout_s) for i in left}
        for number, (index, task) in enumerate(tasks.items(), 1):
            file.write(json.dumps({"index": index, **task.result()}) + "\n")
            file.flush()
            if number % 10 == 0:
                print(f"{number} of {len(left)} stock, {time.monotonic() - started:.0f} s")


def read(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def run_ours(answers: list[dict[str, str]], work: Path, jobs: int) -> dict[int, Any]:
    """Import the answers as a run and judge it; verdicts by index."""
    from dice.eval import plan
    from dice.eval.outcomes import outcomes
    from dice.eval.run import evaluate
    from dice.eval.store import Store
    from dice.problems import load_benchmark
    from dice.verify import Policy, Pool, backends

    folder, dataset = work / "theirs", work / "infilling.jsonl"
    rows = [
        {"level": 1, "problem_id": i, "name": f"{i}_infilling", "code": one["problem"]}
        for i, one in enumerate(answers)
    ]
    dataset.write_text("".join(json.dumps(row) + "\n" for row in rows))
    folder.mkdir(exist_ok=True)
    for i, one in enumerate(answers):
        (folder / f"level_1_problem_{i}_sample_0_kernel.py").write_text(one["code"])
    benchmark, policy = load_benchmark(dataset), Policy(seed=0)
    if (work / "run" / "run.json").exists():
        store = Store.open(work / "run")
    else:
        here = plan.place(backends.choose("auto"), timing=False)
        store = plan.import_run(
            *(work / "run", folder, benchmark), here=here, policy=policy, baselines={}
        )
    with store, Pool(jobs, policy=policy, backend=store.config.place.backend) as pool:
        evaluate(store, benchmark, pool, None)
    found = outcomes(store.log, store.config.problems, 1)
    return {one.problem_id: one for one in found}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--work", type=Path, required=True, help="folder for what is done")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--timeout", type=float, default=600.0, help="seconds per answer")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    answers = read_answers()
    options.work.mkdir(parents=True, exist_ok=True)

    import torch

    import dice.toolchain.intercept  # noqa: F401
    from dice.toolchain.prelude import ensure_prelude
    from dice.toolchain.simt.runtime import load
    from dice.toolchain.source import BuildOptions

    if not torch.cuda.is_available():
        ensure_prelude(BuildOptions(check=False), print)
        load(BuildOptions(check=False))
    run_stock(answers, options.work, options.jobs, options.timeout)
    ours = run_ours(answers, options.work, options.jobs)
    stocks = {row["index"]: row for row in read(options.work / "stock.jsonl")}

    records = []
    for index in range(len(answers)):
        outcome, row = ours[index], stocks[index]
        trials = row.get("trials", [])
        definitions = {}
        for name in TOLERANCES:
            passed = [trial[name] for trial in trials]
            definitions[f"{name}, 1 trial"] = bool(passed) and passed[0]
            definitions[f"{name}, {TRIALS} trials"] = bool(passed) and all(passed)
        evidence = outcome.verdict.evidence if outcome.verdict else ()
        records.append(
            {
                "index": index,
                "id": answers[index]["id"],
                "verdict": outcome.status,
                "outputs_match": outcome.verdict.outputs_match if outcome.verdict else None,
                "evidence": [f"{one.kind}: {one.message}"[:400] for one in evidence[:3]],
                **definitions,
                "reason": row.get("reason"),
            }
        )
    summary = summarise(records)
    print(json.dumps(summary, indent=1))
    machine.write_results("agreement", summary, records, options.out)


def summarise(records: list[dict[str, Any]]) -> dict[str, Any]:
    """Counts for each stock definition against the judge."""
    names = [name for name in records[0] if name.startswith("allclose")]
    table = {}
    for name in names:
        right = [one for one in records if one["verdict"] == "correct"]
        table[name] = {
            "right": sum(one[name] for one in records),
            "both right": sum(one[name] for one in right),
            "only stock": {
                kind: [o["index"] for o in records if o[name] and o["verdict"] == kind]
                for kind in sorted({o["verdict"] for o in records if o[name]} - {"correct"})
            },
            "only ours": [one["index"] for one in right if not one[name]],
        }
    kinds = sorted({one["verdict"] for one in records})
    return {
        "answers": len(records),
        "verdicts": {kind: sum(one["verdict"] == kind for one in records) for kind in kinds},
        **table,
    }


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", scratch)
        main()
    sys.exit(0)
