"""Verdicts on a file of candidates: what a line holds, the file of results, and what is left to do.

A line of the input is a JSON object:

    {"problem": "problems/gelu.py", "candidate": "answers/gelu_1.py", "name": "gelu, first try"}

`problem` and `candidate` are each a path (relative to the input file) or, when the text has more than one
line, the code itself. `name` may be left out. Results are appended one line at a time and synced, so that
an interrupted run loses at most the verdicts it was working on; the same call goes on from there. A
result belongs to its content: problem, candidate, policy, backend, whether it was timed, and this package's
version.
"""

import fcntl
import json
import os
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from dice import __version__
from dice.errors import UserError
from dice.problems import load_problem, parse_problem
from dice.toolchain.cache import digest
from dice.types import Candidate, Problem
from dice.verify.policy import Policy
from dice.verify.pool import Job, Outcome

PROBLEM_ERROR, MACHINE_ERROR = "problem error", "machine error"
"""What a line has instead of a kind of verdict."""
NOT_JUDGED = "not judged"
NO_VERDICT = frozenset((PROBLEM_ERROR, MACHINE_ERROR, NOT_JUDGED))


class BatchLine(BaseModel):
    """One line of the input."""

    model_config = ConfigDict(extra="forbid", strict=True)

    problem: str = Field(min_length=1)
    candidate: str = Field(min_length=1)
    name: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    """One line, read and checked."""

    line: int
    """Counted from 1."""
    name: str
    id: str
    """Of the content: equal content has one verdict."""
    job: Job


def read_batch(path: Path, *, policy: Policy, backend: str, timing: bool = False) -> list[Item]:
    """Every line of the input. Raises UserError, with the line's number, for the first bad one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path} cannot be read: {error}") from error
    parts = [policy.settings(), backend, __version__]
    if timing:
        parts.append(asdict(policy.timing))
    settings = json.dumps(parts, sort_keys=True, default=str)
    problems: dict[str, Problem] = {}
    items = []
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            items.append(_item(line, number, path.parent, problems, settings))
        except UserError as error:
            raise UserError(f"{path}, line {number}: {error}") from error
    if not items:
        raise UserError(f'{path} has no line; one is {{"problem": ..., "candidate": ...}}')
    return items


def _item(text: str, number: int, base: Path, problems: dict[str, Problem], settings: str) -> Item:
    try:
        line = BatchLine.model_validate(json.loads(text))
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "the line"
        raise UserError(f"{where}: {first['msg']}") from error
    except ValueError as error:
        raise UserError(f"not JSON: {error}") from error
    if line.problem not in problems:
        problems[line.problem] = _problem(line.problem, base)
    problem = problems[line.problem]
    code = line.candidate if "\n" in line.candidate else _read(base / line.candidate)
    name = line.name or (f"line {number}" if "\n" in line.candidate else line.candidate)
    identity = digest(problem.code, code, settings)
    candidate = Candidate(problem=problem.name, code=code, name=name)
    job = Job(problem=problem, candidate=candidate, id=identity)
    return Item(line=number, name=name, id=identity, job=job)


def _problem(text: str, base: Path) -> Problem:
    if "\n" in text:
        return parse_problem(text, name=f"inline-{digest(text)[:8]}")
    return load_problem(base / text)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"candidate {path} cannot be read: {error}") from error


@dataclass(slots=True)
class Results:
    """The file of results, open for appending. Use as a context manager.

    Raises UserError when it cannot be opened, holds something else, or another run is writing to it.
    """

    path: Path
    rows: dict[tuple[str, str], dict[str, Any]] = field(default_factory=dict)
    """By content and name, the last one where there are several."""
    _handle: int = -1

    def __enter__(self) -> "Results":
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._handle = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
        except OSError as error:
            raise UserError(f"{self.path} cannot be written: {error.strerror}") from error
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._load()
        except BlockingIOError as error:
            self.__exit__()
            raise UserError(f"another run is writing to {self.path}") from error
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def _load(self) -> None:
        data = self.path.read_bytes()
        whole = data.rfind(b"\n") + 1
        if whole < len(data):
            os.ftruncate(self._handle, whole)  # a line whose writer was killed
        for number, line in enumerate(data[:whole].splitlines(), start=1):
            try:
                row = json.loads(line)
                self.rows[row["id"], row["name"]] = row
            except (ValueError, KeyError, TypeError) as error:
                raise UserError(
                    f"{self.path}, line {number}: no result of `dice verify --batch`; "
                    "name another file for --out"
                ) from error

    def has_verdict(self, item: Item) -> bool:
        return "verdict" in self.rows.get((item.id, item.name), {})

    def append(self, item: Item, outcome: dict[str, Any]) -> None:
        """One line: on the disk when this returns."""
        row = {
            "id": item.id,
            "line": item.line,
            "name": item.name,
            "problem": item.job.problem.name,
            **outcome,
        }
        data = (json.dumps(row) + "\n").encode()
        while data:
            data = data[os.write(self._handle, data) :]
        os.fsync(self._handle)
        self.rows[item.id, item.name] = row


def as_row(outcome: Outcome) -> dict[str, Any]:
    """The part of a result's line that the outcome decides: "verdict" or "error"."""
    if outcome.verdict is not None:
        return {"verdict": asdict(outcome.verdict)}
    kind = PROBLEM_ERROR if isinstance(outcome.error, UserError) else MACHINE_ERROR
    return {"error": {"kind": kind, "message": str(outcome.error)}}


def pending(items: list[Item], results: Results) -> dict[str, list[Item]]:
    """What has no verdict yet, by content: one job each. Copies of judged content are filled in."""
    left: dict[str, list[Item]] = {}
    judged: dict[str, dict[str, Any]] = {
        identity: row["verdict"] for (identity, _), row in results.rows.items() if "verdict" in row
    }
    for item in items:
        if results.has_verdict(item):
            continue
        if item.id in judged:
            results.append(item, {"verdict": judged[item.id]})
        else:
            left.setdefault(item.id, []).append(item)
    return left


def jobs(left: dict[str, list[Item]]) -> Iterator[Job]:
    """One job for each content."""
    return (items[0].job for items in left.values())


def counts(items: list[Item], results: Results) -> dict[str, int]:
    """How many lines ended how: kinds of verdicts, and those of `NO_VERDICT`."""
    found: dict[str, int] = {}
    for item in items:
        row = results.rows.get((item.id, item.name), {})
        if "verdict" in row:
            kind = str(row["verdict"]["kind"])
        else:
            kind = str(row["error"]["kind"]) if "error" in row else NOT_JUDGED
        found[kind] = found.get(kind, 0) + 1
    return found
