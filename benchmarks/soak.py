"""Thousands of candidates through the pool, a tenth of them hostile: is anything lost, wrong or left behind?

    python benchmarks/soak.py --count 2000 --workers 2

Hostile candidates are the files of `tests/adversarial` whose verdict is known; honest ones are its look-alikes
on two cheap problems and pairs of the synthesiser. Each has a comment of its own, so all are different; one
honest file in eight is also a new CUDA source and so a new build. Checked at the end: every job has exactly one
verdict, each of the kind it must have; no process, file in the temporary directory, shared memory segment or
workspace in the build cache is left; file descriptors and memory of the long-lived processes did not grow;
a worker that idles stays under 2 GiB. Exits with 1 when anything is not so.

Sees processes and temporary files of its own run only; shared memory of others shows up as a leak.
"""

import argparse
import json
import os
import random
import re
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import machine
import soak_watch
from dice.data.synth import sample_pair
from dice.problems import load_problem, parse_problem
from dice.sandbox import Limits
from dice.types import Candidate, Problem, Verdict
from dice.verify import Policy
from dice.verify.pool import Job, Outcome, Pool

FILES = Path(__file__).parents[1] / "tests" / "adversarial"
SLOW = ("huge_compile", "memory_hog")
"""These take as long as the limits allow, and so does every timeout: a few of them are enough."""
FAMILIES = ("pointwise", "softmax", "reduce")
POLICY = Policy(
    call_s=5.0,
    import_s=10.0,
    limits=Limits(wall_s=60.0, cpu_s=60, memory_mib=1024, disk_mib=256, threads=64),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """A job, and which verdict it must get."""

    job: Job
    source: str
    kind: str
    evidence: frozenset[str] = frozenset()
    """Any of these; empty: whatever."""

    def fits(self, verdict: Verdict) -> bool:
        found = {one.kind for one in verdict.evidence}
        return verdict.kind == self.kind and (not self.evidence or bool(found & self.evidence))


@dataclass(frozen=True, slots=True, kw_only=True)
class Template:
    """A candidate file of the adversarial tests."""

    name: str
    code: str
    problem: Problem
    kind: str
    evidence: frozenset[str]


def templates(folder: str) -> list[Template]:
    """The files of one folder, their verdicts read from their docstrings."""
    found = []
    for path in sorted((FILES / "candidates" / folder).glob("*.py")):
        text = path.read_text(encoding="utf-8")
        problem = re.search(r"^Problem: (\w+)$", text, re.MULTILINE)
        verdict = re.search(r"^Verdict: (\w+)(?: \(([\w| ]+)\))?$", text, re.MULTILINE)
        if problem is None or verdict is None:
            raise SystemExit(f"{path} does not say which verdict it must get")
        evidence = frozenset((verdict[2] or "").replace(" ", "").split("|")) - {""}
        found.append(
            Template(
                name=f"{folder}/{path.stem}",
                code=text,
                problem=load_problem(FILES / "problems" / f"{problem[1]}.py"),
                kind=verdict[1],
                evidence=evidence,
            )
        )
    return found


def plan(count: int, seed: int) -> list[Planned]:
    """A tenth hostile, a tenth from the synthesiser, the rest honest files; shuffled."""
    draw = random.Random(seed)
    quick, slow = [], []
    for one in templates("exploits"):
        lasts = one.kind == "timeout" or one.name.endswith(SLOW)
        (slow if lasts else quick).append(one)
    draw.shuffle(quick)
    draw.shuffle(slow)
    hostile = count // 10
    some = slow[: max(1, hostile // 40)] if hostile > 1 else []
    chosen = [quick[k % len(quick)] for k in range(hostile - len(some))] + some
    jobs = [_from(one, k, fresh=False) for k, one in enumerate(chosen)]

    pairs = [
        sample_pair(random.Random(f"soak {seed} {k}"), FAMILIES[k % len(FAMILIES)])
        for k in range(max(1, min(6, count // 40)))
    ]
    problems = [
        parse_problem(pair.small_code, name=f"synth_{k}_{'_'.join(pair.ops)[:40]}")
        for k, pair in enumerate(pairs)
    ]
    for k in range(count // 10):
        which = k % len(pairs)
        code = f"{pairs[which].kernel_code}\n# variant {k}\n"
        jobs.append(_planned(f"synth/{problems[which].name}", problems[which], code, "correct", k))

    honest = templates("honest")
    draw.shuffle(honest)
    honest = honest[: max(2, count // 20)]
    rest = count - len(jobs)
    jobs += [_from(honest[k % len(honest)], k, fresh=k % 8 == 0) for k in range(rest)]
    draw.shuffle(jobs)
    return jobs


def _from(template: Template, number: int, *, fresh: bool) -> Planned:
    code = f"{template.code}\n# variant {number}\n"
    if fresh:
        code = code.replace("__global__", f"/* variant {number} */ __global__", 1)
    return _planned(template.name, template.problem, code, template.kind, number, template.evidence)


def _planned(
    source: str,
    problem: Problem,
    code: str,
    kind: str,
    number: int,
    evidence: frozenset[str] = frozenset(),
) -> Planned:
    name = f"{source}#{number}"
    candidate = Candidate(problem=problem.name, code=code, name=name)
    job = Job(problem=problem, candidate=candidate, id=name)
    return Planned(job=job, source=source, kind=kind, evidence=evidence)


def soak(planned: list[Planned], workers: int) -> tuple[dict[str, Any], list[dict[str, Any]]]:
    """Run them all. The summary, with every complaint in it, and one record for each job."""
    wanted = {one.job.id: one for one in planned}
    assert len(wanted) == len(planned)
    seen: Counter[str] = Counter()
    records = []
    soak_watch.adopt_orphans()
    with tempfile.TemporaryDirectory(prefix="dice-soak-") as own:
        tempfile.tempdir = own  # of the pool, its workers and everything below them
        before = soak_watch.Outside.now()
        pool = Pool(workers, policy=POLICY, backend="simt", on_progress=_say)
        watch = soak_watch.Growth(pool, every=max(1, len(planned) // 48))
        started = said = time.monotonic()
        with pool:
            for outcome in pool.map(one.job for one in planned):
                seen[outcome.job.id] += 1
                records.append(_record(wanted[outcome.job.id], outcome))
                watch.step()
                if time.monotonic() - said > 15:
                    said = time.monotonic()
                    wrong = sum(not one["right"] for one in records)
                    _say(f"{len(records)} of {len(planned)}, {wrong} not as they must be")
            seconds = time.monotonic() - started
            idle_mib = watch.idle_mib()
        leaks = soak_watch.left_behind(before, Path(own), watch.every_pid)
        tempfile.tempdir = None
    complaints = [f"{name}: {seen[name]} verdicts" for name in wanted if seen[name] != 1]
    complaints += [f"{one['id']}: {one['got']}" for one in records if not one["right"]]
    complaints += leaks + watch.complaints(idle_mib)
    hostile = [one for one in records if one["id"].startswith("exploits/")]
    summary = {
        "jobs": len(planned),
        "verdicts": sum(one["verdict"] for one in records),
        "hostile": len(hostile),
        "hostile caught": sum(one["right"] for one in hostile),
        "honest rejected": sum(not one["right"] for one in records if one not in hostile),
        "kinds": dict(Counter(one["kind"] for one in records).most_common()),
        "workers": workers,
        "seconds": round(seconds, 1),
        "candidates a minute": round(60 * len(records) / seconds, 1),
        "idle MiB of each worker, with its warm parent (PSS)": idle_mib,
        "growth": watch.growth(),
        "complaints": complaints,
    }
    return summary, records


def _record(planned: Planned, outcome: Outcome) -> dict[str, Any]:
    verdict = outcome.verdict
    if verdict is None:
        got, right, kind = f"error: {outcome.error}", False, "error"
    else:
        kind = str(verdict.kind)
        found = "; ".join(f"{one.kind}: {one.message[:200]}" for one in verdict.evidence)
        got, right = f"{kind} ({found})", planned.fits(verdict)
    return {
        "id": planned.job.id,
        "kind": kind,
        "right": right,
        "verdict": verdict is not None,
        "got": "" if right else f"{got}, must be {planned.kind} {sorted(planned.evidence)}",
    }


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--workers", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, help="default: results/soak.json")
    args = parser.parse_args()
    summary, records = soak(plan(args.count, args.seed), args.workers)
    for name, value in summary.items():
        if name != "complaints":
            print(f"{name}: {json.dumps(value) if isinstance(value, dict) else value}")
    print(f"complaints: {len(summary['complaints'])}")
    for one in summary["complaints"]:
        print(f"  {one}")
    by_source: dict[str, Counter[str]] = {}
    for one in records:
        by_source.setdefault(one["id"].rpartition("#")[0], Counter())[one["kind"]] += 1
    table = [{"source": name, **kinds} for name, kinds in sorted(by_source.items())]
    machine.write_results("soak", summary, table, args.out)
    return 1 if summary["complaints"] else 0


if __name__ == "__main__":
    sys.exit(main())
