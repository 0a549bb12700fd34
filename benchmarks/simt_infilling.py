"""Run the 99 hand-checked infilling answers on the CPU backend, in fast mode, at their original sizes.

Counts how many build, run and match their PyTorch module on `get_inputs()` at rtol = atol = 1e-2, with
the median build time. Each answer runs in a forked process of its own. With `--judge`, the full judge's
verdict stands beside it. Results land in `benchmarks/results/`.

    python benchmarks/simt_infilling.py [--jobs 2] [--judge] [--only 3,17] [--out FILE]
"""

import argparse
import contextlib
import json
import os
import select
import signal
import statistics
import sys
import tempfile
import time
import traceback
from pathlib import Path
from typing import Any

import machine

DATA = "dice_infilling_eval_99.jsonl"
TOLERANCE = 1e-2


def read_answers() -> list[dict[str, str]]:
    """Records with `id`, `problem` (the PyTorch file) and `code` (the kernel file)."""
    root = os.environ.get(
        "DICE_SHARED_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"
    )
    with (Path(root) / DATA).open() as file:
        records = [json.loads(line) for line in file]
    return [
        {
            "id": str(one["id"]),
            "problem": one["pytorch_code"],
            "code": one["prefix"] + one["middle"] + one["suffix"],
        }
        for one in records
    ]


def execute(code: str, name: str) -> dict[str, Any]:
    """Run a Python file's text; returns its names."""
    names: dict[str, Any] = {"__name__": name}
    exec(compile(code, name, "exec"), names)
    return names


def copied(value: Any) -> Any:
    """A copy that shares no tensor memory."""
    import torch

    if torch.is_tensor(value):
        return value.clone()
    if isinstance(value, (list, tuple)):
        return type(value)(copied(one) for one in value)
    return value


def flat(value: Any) -> list[Any]:
    """The tensors in a (nested) output."""
    import torch

    if torch.is_tensor(value):
        return [value]
    if isinstance(value, (list, tuple)):
        return [tensor for one in value for tensor in flat(one)]
    return []


def copy_state(source: Any, target: Any) -> None:
    """Copy parameters and buffers whose name and shape agree."""
    import torch

    wanted = dict(target.state_dict())
    with torch.no_grad():
        for name, value in source.state_dict().items():
            if name in wanted and wanted[name].shape == value.shape:
                wanted[name].copy_(value)


def difference(expected: Any, actual: Any) -> str | None:
    """Why two outputs do not match, or None."""
    import torch

    left, right = flat(expected), flat(actual)
    if len(left) != len(right):
        return f"{len(right)} output tensors instead of {len(left)}"
    for one, other in zip(left, right, strict=True):
        if one.shape != other.shape:
            return f"shape {tuple(other.shape)} instead of {tuple(one.shape)}"
        if one.is_complex():
            one, other = torch.view_as_real(one), torch.view_as_real(other)
        one, other = one.double(), other.double()
        close = torch.isclose(other, one, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        if not close.all():
            worst = (one - other).abs().nan_to_num(float("inf")).max().item()
            return f"{100 * (1 - close.double().mean().item()):.1f}% of values off, worst by {worst:.3g}"
    return None


def run_answer(answer: dict[str, str], use_cache: bool) -> dict[str, Any]:
    """Build, run and compare one answer in this process."""
    import torch

    from dice.errors import BuildFailure
    from dice.toolchain.intercept import install
    from dice.toolchain.source import BuildOptions

    torch.set_num_threads(1)
    interceptor = install(BuildOptions(check=False, use_cache=use_cache))
    record: dict[str, Any] = {"built": False, "ran": False, "match": False, "reason": None}
    reference = execute(answer["problem"], "problem")
    try:
        candidate = execute(answer["code"], "candidate")
    except BuildFailure as error:
        record["reason"] = f"build: {str(error).splitlines()[0]}"
        return record
    record["built"] = True
    record["build_s"] = sum(one.seconds for one in interceptor.extensions)
    record["routes"] = sorted({one.route for one in interceptor.extensions})
    torch.manual_seed(42)
    arguments = reference["get_init_inputs"]()
    torch.manual_seed(42)
    inputs = reference["get_inputs"]()
    torch.manual_seed(42)
    module = reference["Model"](*arguments)
    torch.manual_seed(42)
    kernel = candidate["ModelNew"](*arguments)
    copy_state(module, kernel)
    with torch.no_grad():
        expected = module(*copied(inputs))
        started = time.monotonic()
        try:
            actual = kernel(*copied(inputs))
        except Exception as error:
            record["reason"] = f"run: {type(error).__name__}: {str(error).splitlines()[0]}"
            return record
    record["ran"] = True
    record["run_s"] = time.monotonic() - started
    reason = difference(expected, actual)
    record["match"] = reason is None
    record["reason"] = None if reason is None else f"match: {reason}"
    return record


def fork_answer(answer: dict[str, str], use_cache: bool) -> tuple[int, int]:
    """Start one answer in a forked process. Returns its pid and the pipe its record comes from."""
    receive, send = os.pipe()
    pid = os.fork()
    if pid:
        os.close(send)
        return pid, receive
    os.close(receive)
    silent = os.open(os.devnull, os.O_WRONLY)
    os.dup2(silent, 1)
    os.dup2(silent, 2)
    try:
        record = run_answer(answer, use_cache)
    except BaseException:
        record = {"built": True, "ran": False, "match": False}
        record["reason"] = "error: " + traceback.format_exc().splitlines()[-1]
    os.write(send, json.dumps(record).encode())
    os._exit(0)


def run_all(
    answers: list[dict[str, str]], indices: list[int], jobs: int, timeout_s: float, use_cache: bool
) -> list[dict[str, Any]]:
    """Run the answers, `jobs` at a time; a crash or a timeout is that answer's record."""
    waiting = list(indices)
    running: dict[int, tuple[int, int, float]] = {}
    results: dict[int, dict[str, Any]] = {}
    while waiting or running:
        while waiting and len(running) < jobs:
            index = waiting.pop(0)
            pid, pipe = fork_answer(answers[index], use_cache)
            running[pipe] = (pid, index, time.monotonic())
        ready, _, _ = select.select(list(running), [], [], 1.0)
        for pipe in list(running):
            pid, index, started = running[pipe]
            late = time.monotonic() - started > timeout_s
            if pipe not in ready and not late:
                continue
            if late:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            data = b""
            while chunk := os.read(pipe, 65536):
                data += chunk
            os.close(pipe)
            _, status = os.waitpid(pid, 0)
            del running[pipe]
            failed = {"built": True, "ran": False, "match": False}
            failed["reason"] = "timeout" if late else f"crash: exit status {status}"
            results[index] = json.loads(data) if data else failed
            results[index] |= {"index": index, "id": answers[index]["id"]}
            show(results[index])
    return [results[index] for index in indices]


def show(record: dict[str, Any]) -> None:
    if record["reason"] is not None:
        print(f"  #{record['index']:<3} {record['reason'][:150]}", flush=True)


def judge_all(answers: list[dict[str, str]], results: list[dict[str, Any]]) -> None:
    """Add the full judge's verdict to every record."""
    from dice.problems.parse import parse_problem
    from dice.types import Candidate
    from dice.verify import Judge, Policy

    judge = Judge(Policy(seed=0), on_progress=print)
    for record in results:
        answer = answers[record["index"]]
        name = f"infilling_{record['index']}"
        problem = parse_problem(answer["problem"], name=name)
        verdict = judge.judge(judge.prepare(problem), Candidate(problem=name, code=answer["code"]))
        record["verdict"] = str(verdict.kind)
        record["evidence"] = [one.message for one in verdict.evidence][:3]
        record["notes"] = list(verdict.notes)
        if not verdict.correct:
            first = record["evidence"][0] if record["evidence"] else ""
            print(f"  #{record['index']:<3} {verdict.kind}: {first[:130]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--judge", action="store_true", help="add the full judge's verdicts")
    parser.add_argument("--only", help="comma-separated indices")
    parser.add_argument("--timeout", type=float, default=300.0, help="seconds per answer")
    parser.add_argument(
        "--reuse", action="store_true", help="allow cached builds (build times then mean nothing)"
    )
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()

    answers = read_answers()
    indices = (
        [int(one) for one in options.only.split(",")] if options.only else list(range(len(answers)))
    )

    import dice.toolchain.intercept
    from dice.toolchain.prelude import ensure_prelude
    from dice.toolchain.simt.runtime import load
    from dice.toolchain.source import BuildOptions

    ensure_prelude(BuildOptions(check=False), print)
    load(BuildOptions(check=False))
    if options.judge:
        import dice.verify.judge  # noqa: F401
    started = time.monotonic()
    print("fast mode, original sizes, rtol = atol = 1e-2; failures:")
    results = run_all(answers, indices, options.jobs, options.timeout, options.reuse)
    wall = time.monotonic() - started
    times = [one["build_s"] for one in results if "build_s" in one]
    summary: dict[str, Any] = {
        "answers": len(results),
        "built": sum(one["built"] for one in results),
        "ran": sum(one["ran"] for one in results),
        "match": sum(one["match"] for one in results),
        "median_build_s": round(statistics.median(times), 2) if times else None,
        "slowest_build_s": round(max(times), 2) if times else None,
        "jobs": options.jobs,
        "wall_s": round(wall, 1),
    }
    if options.judge:
        print("the full judge; rejections:")
        judge_all(answers, results)
        kinds = sorted({one["verdict"] for one in results})
        summary["verdicts"] = {
            kind: sum(one["verdict"] == kind for one in results) for kind in kinds
        }
    print(json.dumps(summary))
    machine.write_results("simt_infilling", summary, results, options.out)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as scratch:
        os.environ.setdefault("TORCH_EXTENSIONS_DIR", scratch)
        main()
    sys.exit(0)
