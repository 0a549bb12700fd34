"""KernelBench as a benchmark: numbered problems of known content, from wherever the user has them.

Every problem carries a hash of its code and the set a version that follows from these hashes, so that
results on different versions are never compared silently.
"""

import hashlib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

from dice.errors import DataError
from dice.problems.kernelbench import rows
from dice.problems.parse import parse_problem
from dice.types import Problem

HUB_ID = "ScalingIntelligence/KernelBench"
_VERSIONS = {"2cbc81882465": "v0.2"}
"""Names of sets that are known, by digest."""
_FILE = re.compile(r"(\d+)_.+\.py")


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchmarkProblem:
    """One numbered problem. KernelBench names it by `level` and `problem_id`, its files by `stem`."""

    level: int
    problem_id: int
    stem: str
    problem: Problem
    code_hash: str

    @property
    def key(self) -> tuple[int, int]:
        return self.level, self.problem_id


@dataclass(frozen=True, slots=True, kw_only=True)
class Benchmark:
    """All problems of one source, in order of level and number."""

    source: str
    version: str
    """A name where the content is known ("v0.2"), else "unknown"; the digest follows after a plus sign."""
    problems: tuple[BenchmarkProblem, ...]

    def find(self, level: int, problem_id: int) -> BenchmarkProblem | None:
        return next((one for one in self.problems if one.key == (level, problem_id)), None)


def code_hash(code: str) -> str:
    """SHA-256 of the code without trailing blanks, which differ between a file and a row; 16 digits."""
    lines = [line.rstrip() for line in code.replace("\r\n", "\n").strip().split("\n")]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


def load_benchmark(source: str | Path = HUB_ID) -> Benchmark:
    """KernelBench from a JSON-lines file, a checkout of its repository, or the hub.

    Args:
        source: a `.jsonl` file with `level`, `problem_id`, `name` and `code`; a folder that holds
            `KernelBench/level1/*.py` or `level1/*.py`; else the id of a dataset on the hub.

    Raises:
        DataError: nothing there, or not in one of these forms.
        ProblemError: a problem breaks the contract.
    """
    path = Path(source)
    if path.is_file():
        found = _from_jsonl(path)
    elif path.is_dir():
        found = _from_checkout(path)
    elif re.fullmatch(r"[\w.-]+/[\w.-]+", str(source)) and path.suffix not in (".jsonl", ".json"):
        found = _from_hub(str(source))
    else:
        raise DataError(
            f"{source} does not exist; name a .jsonl file, a checkout of KernelBench or a hub id"
        )
    problems = sorted(found, key=lambda one: one.key)
    for one, after in pairwise(problems):
        if one.key == after.key:
            raise DataError(f"{source}: level {one.level}, problem {one.problem_id} is there twice")
    if not problems:
        raise DataError(f"{source} holds no problem")
    return Benchmark(source=str(source), version=_version(problems), problems=tuple(problems))


def _version(problems: Iterable[BenchmarkProblem]) -> str:
    """From the content alone, whatever form it came in."""
    lines = [f"{one.level} {one.problem_id} {one.code_hash}" for one in problems]
    digest = hashlib.sha256("\n".join(lines).encode()).hexdigest()[:12]
    return f"{_VERSIONS.get(digest, 'unknown')}+{digest}"


def _from_row(row: dict[str, Any], where: str) -> BenchmarkProblem:
    try:
        level, problem_id = int(row["level"]), int(row["problem_id"])
    except (TypeError, ValueError) as e:
        raise DataError(f"{where}: level and problem_id must be numbers: {e}") from e
    return _problem(level, problem_id, str(row["name"]), str(row["code"]))


def _problem(level: int, problem_id: int, stem: str, code: str) -> BenchmarkProblem:
    stem = stem.removesuffix(".py")
    problem = parse_problem(code, name=f"level{level}/{stem}", source="kernelbench", level=level)
    return BenchmarkProblem(
        level=level, problem_id=problem_id, stem=stem, problem=problem, code_hash=code_hash(code)
    )


def _from_jsonl(path: Path) -> list[BenchmarkProblem]:
    return [
        _from_row(row, str(path)) for row in rows(path, ("level", "problem_id", "name", "code"))
    ]


def _from_checkout(path: Path) -> list[BenchmarkProblem]:
    root = path / "KernelBench" if (path / "KernelBench").is_dir() else path
    found = []
    for folder in sorted(root.glob("level[0-9]*")):
        level = int(folder.name.removeprefix("level"))
        for file in sorted(folder.glob("*.py")):
            if match := _FILE.fullmatch(file.name):
                code = file.read_text(encoding="utf-8")
                found.append(_problem(level, int(match[1]), file.stem, code))
    if not found:
        raise DataError(f"{path} is no checkout of KernelBench: it has no level1/1_Name.py")
    return found


def _from_hub(name: str) -> list[BenchmarkProblem]:
    """Parquet files `level_N`, one per level, as the dataset's authors lay them out."""
    try:
        import pyarrow.parquet as parquet
        from huggingface_hub import snapshot_download
    except ImportError as e:
        raise DataError(
            f"reading {name} from the hub needs pyarrow: pip install 'dice-cuda[kernelbench]', or "
            "name a .jsonl file or a checkout with --dataset"
        ) from e
    try:
        folder = snapshot_download(name, repo_type="dataset", allow_patterns=["**/*.parquet"])
    except Exception as e:  # the hub's client raises many kinds, all with a telling text
        raise DataError(f"dataset {name} cannot be read from the hub: {e}") from e
    found = []
    for file in sorted(Path(folder).rglob("*.parquet")):
        table = parquet.read_table(file).to_pylist()
        for row in table:
            missing = {"level", "problem_id", "name", "code"} - set(row)
            if missing:
                raise DataError(f"{name}, {file.name}: no column {', '.join(sorted(missing))}")
            found.append(_from_row(row, f"{name}, {file.name}"))
    return found
