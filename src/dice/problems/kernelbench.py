"""Public problem sets in JSON lines: KernelBench, and the modules of DICE's end-to-end RL stage."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dice.errors import DataError
from dice.problems.parse import parse_problem
from dice.types import Problem


def load_jsonl(path: str | Path) -> list[Problem]:
    """KernelBench: one JSON object a line with `level`, `problem_id`, `name` and `code`.

    Raises:
        DataError: a line is not JSON or lacks a field.
        ProblemError: a problem breaks the contract.
    """
    return [
        parse_problem(
            row["code"],
            name=f"level{row['level']}/{row['name']}",
            source="kernelbench",
            level=row["level"],
        )
        for row in rows(Path(path), ("level", "problem_id", "name", "code"))
    ]


def load_dice_rl(path: str | Path) -> list[Problem]:
    """DICE's RL modules: one JSON object a line with `id`, `level` and `pytorch_code`.

    Raises:
        DataError: a line is not JSON or lacks a field.
        ProblemError: a problem breaks the contract.
    """
    return [
        parse_problem(
            row["pytorch_code"], name=f"rl/{row['id']}", source="dice_rl", level=row["level"]
        )
        for row in rows(Path(path), ("id", "level", "pytorch_code"))
    ]


def rows(path: Path, fields: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror}") from e
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = json.loads(line)
        except json.JSONDecodeError as e:
            raise DataError(f"{path}:{number}: not a JSON object: {e}") from e
        missing = [f for f in fields if not isinstance(row, dict) or f not in row]
        if missing:
            raise DataError(f"{path}:{number}: field {', '.join(missing)} is missing")
        yield row
