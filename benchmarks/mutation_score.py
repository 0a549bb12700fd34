"""The verifier's mutation score: of the faults planted into correct kernels, how many does it find?

Originals are the infilling answers that the judge accepts, the honest look-alikes of `tests/adversarial` and
one pair of every family of the synthesiser. Each is judged first; mutants come from the accepted ones. A
mutant is killed by any verdict that says it is at fault. It does not count when it does not compile
(stillborn), when the judge says that it cannot tell (undecided), or when it is argued to compute the same
(`results/mutation_survivors.json`, explained in docs/mutants.md). Results append to JSON lines under --out, so
that an interrupted run goes on where it stopped. The exit code is 1 when the score is below 98%.

    python benchmarks/mutation_score.py --out runs/mutants [--workers 2] [--seed 0] [--limit 300]
"""

import argparse
import contextlib
import hashlib
import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import machine
import simt_infilling

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.adversarial import court, mutate  # noqa: E402

from dice.data.synth import FAMILIES, sample_pair  # noqa: E402
from dice.problems.parse import parse_problem  # noqa: E402
from dice.toolchain.cache import digest  # noqa: E402
from dice.types import Candidate  # noqa: E402
from dice.verify import Job, Policy, Pool  # noqa: E402

ARGUED = machine.RESULTS / "mutation_survivors.json"
WANTED = 0.98
STILLBORN, UNDECIDED = "compile_error", ("untestable", "error")


@dataclass(frozen=True, slots=True, kw_only=True)
class Original:
    """A candidate to plant faults into, and its problem."""

    name: str
    problem: str
    code: str


def originals() -> Iterator[Original]:
    accepted = json.loads((machine.RESULTS / "simt_infilling.json").read_text())["records"]
    answers = simt_infilling.read_answers()
    for one in accepted:
        if one["verdict"] == "correct":
            answer = answers[one["index"]]
            name = f"infilling_{one['index']}"
            yield Original(name=name, problem=answer["problem"], code=answer["code"])
    for file in sorted((court.HERE / "candidates" / "honest").glob("*.py")):
        problem = court.HERE / "problems" / f"{court.Expectation.of(file).problem}.py"
        yield Original(
            name=f"honest_{file.stem}", problem=problem.read_text(), code=file.read_text()
        )
    for family in FAMILIES:
        yield synthesised(family.name)


def synthesised(family: str) -> Original:
    """The first pair of a family in a seeded stream of draws."""
    draws = (sample_pair(Random(f"mutants:{index}")) for index in range(100_000))
    pair = next(one for one in draws if one.family == family)
    return Original(name=f"synth_{family}", problem=pair.problem_code, code=pair.kernel_code)


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One original (mutator None) or mutant to judge."""

    id: str
    original: Original
    code: str
    mutant: mutate.Mutant | None

    @property
    def key(self) -> str:
        """Of the content: an old result for another text is not used."""
        return digest(self.original.problem, self.code)


def read_rows(path: Path) -> dict[str, dict[str, Any]]:
    if not path.exists():
        return {}
    rows = [json.loads(line) for line in path.read_text().splitlines() if line.strip()]
    return {row["key"]: row for row in rows}


def judge_all(cases: list[Case], path: Path, pool: Pool | None) -> dict[str, dict[str, Any]]:
    """Rows by id, old ones first read from `path`, new ones appended to it; without a pool only old ones."""
    known = read_rows(path)
    missing = {one.id: one for one in cases if pool and one.key not in known}
    rows = {one.id: known[one.key] | {"id": one.id} for one in cases if one.key in known}
    jobs = (
        Job(
            problem=parse_problem(one.original.problem, name=one.original.name),
            candidate=Candidate(problem=one.original.name, code=one.code),
            id=one.id,
        )
        for one in missing.values()
    )
    began = time.monotonic()
    with path.open("a") as file:
        for done, outcome in enumerate(pool.map(jobs) if pool else (), 1):
            row = describe(missing[outcome.job.id], outcome)
            rows[row["id"]] = row
            file.write(json.dumps(row) + "\n")
            file.flush()
            rate = (time.monotonic() - began) / done
            print(
                f"{done}/{len(missing)} {rate:.1f} s each, {row['verdict']:16} {row['id']}: "
                f"{row['description'][:80]}",
                flush=True,
            )
    return rows


def describe(case: Case, outcome: Any) -> dict[str, Any]:
    """What is kept of an outcome."""
    verdict, mutant = outcome.verdict, case.mutant
    evidence = [] if verdict is None else list(verdict.evidence)[:2]
    diff = mutate.difference(case.original.code, case.code)
    return {
        "id": case.id,
        "key": case.key,
        "original": case.original.name,
        "mutator": None if mutant is None else mutant.mutator,
        "description": "" if mutant is None else mutant.description[:160],
        "line": None if mutant is None else mutant.line,
        "diff": diff,
        "diff_sha256": hashlib.sha256(diff.encode()).hexdigest(),
        "verdict": "error" if verdict is None else str(verdict.kind),
        "evidence": [f"{one.kind}: {one.message[:200]}" for one in evidence]
        if verdict is not None
        else [str(outcome.error)[:200]],
        "notes": [] if verdict is None else [one[:200] for one in verdict.notes[:2]],
    }


def argued() -> dict[str, dict[str, Any]]:
    """Survivors explained: id -> class ("equivalent" or "miss"), reason, hash of the diff."""
    return json.loads(ARGUED.read_text()) if ARGUED.exists() else {}


def class_of(row: dict[str, Any], arguments: dict[str, dict[str, Any]]) -> str:
    """killed, stillborn, undecided, or, for a survivor: equivalent, miss or unargued.

    An argument about another diff is refused: SystemExit.
    """
    if row["verdict"] == STILLBORN:
        return "stillborn"
    if row["verdict"] in UNDECIDED:
        return "undecided"
    if row["verdict"] != "correct":
        return "killed"
    argument = arguments.get(row["id"])
    if argument is None:
        return "unargued"
    if argument["diff_sha256"] != row["diff_sha256"]:
        raise SystemExit(f"{row['id']}: the argument in {ARGUED.name} is about another diff")
    return str(argument["class"])


def summarise(rows: list[dict[str, Any]], seed: int) -> dict[str, Any]:
    classes = Counter(row["class"] for row in rows)
    survived = classes["miss"] + classes["unargued"]
    counted = classes["killed"] + survived
    table: dict[str, dict[str, int]] = {}
    for name in mutate.MUTATORS:
        of_kind = Counter(row["class"] for row in rows if row["mutator"] == name)
        if of_kind:
            table[name] = dict(sorted(of_kind.items()))
    verdicts = Counter(row["verdict"] for row in rows if row["class"] == "killed")
    return {
        "seed": seed,
        "mutants": len(rows),
        "originals": len({row["original"] for row in rows}),
        **dict(sorted(classes.items())),
        "counted": counted,
        "score": round(classes["killed"] / counted, 4) if counted else None,
        "score_without_arguments": round(classes["killed"] / (counted + classes["equivalent"]), 4)
        if counted
        else None,
        "killed_by_verdict": dict(verdicts.most_common()),
        "mutators": table,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "runs" / "mutants")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--limit", type=int, default=300, help="how many mutants")
    parser.add_argument(
        "--report", action="store_true", help="judge nothing, sum up what --out holds so far"
    )
    parser.add_argument("--results", type=Path, help="instead of benchmarks/results/")
    options = parser.parse_args()

    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / "verdicts.jsonl"
    sources = {one.name: one for one in originals()}
    began = time.monotonic()
    policy = Policy(seed=0)
    with contextlib.ExitStack() as stack:
        pool = None
        if not options.report:
            pool = stack.enter_context(
                Pool(options.workers, policy=policy, backend="simt", on_progress=print)
            )
        first = [
            Case(id=one.name, original=one, code=one.code, mutant=None) for one in sources.values()
        ]
        verdicts = judge_all(first, path, pool)
        accepted = {
            n: sources[n].code for n, row in verdicts.items() if row["verdict"] == "correct"
        }
        print(f"{len(accepted)} of {len(sources)} originals accepted")
        cases = [
            Case(
                id=f"{name}/{mutant.mutator}/{mutant.place}",
                original=sources[name],
                code=mutant.code,
                mutant=mutant,
            )
            for name, mutant in mutate.sample(accepted, options.limit, options.seed)
        ]
        cases.sort(key=lambda case: case.id)  # a problem's mutants together: it is prepared once
        rows = list(judge_all(cases, path, pool).values())
    arguments = argued()
    for row in rows:
        row["class"] = class_of(row, arguments)
        row["reason"] = arguments.get(row["id"], {}).get("reason")
    summary = summarise(rows, options.seed)
    summary |= {"planned": options.limit}
    if not options.report:
        summary |= {"workers": options.workers, "wall_s": round(time.monotonic() - began)}
    summary["originals_rejected"] = {
        n: r["verdict"] for n, r in verdicts.items() if n not in accepted
    }
    print(json.dumps(summary, indent=1))
    for row in rows:
        if row["class"] in ("unargued", "miss"):
            print(f"survivor {row['id']} ({row['class']})\n{row['diff']}")
    kept = ("id", "mutator", "line", "description", "verdict", "class", "evidence", "reason")
    records = [{name: row[name] for name in kept} for row in sorted(rows, key=lambda r: r["id"])]
    machine.write_results("mutation_score", summary, records, options.results)
    return 0 if summary["score"] is not None and summary["score"] >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main())
