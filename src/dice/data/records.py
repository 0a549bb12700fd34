"""A verified pair on disk: one JSON object a line."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from dice.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRecord:
    """One supervised pair. `problem_code` is canonical: what the model is shown."""

    index: int
    """Number of the draw it came from, under the dataset's seed."""
    family: str
    schedule: str
    ops: tuple[str, ...]
    problem_code: str
    kernel_code: str


def write_records(path: Path, records: Iterable[PairRecord]) -> None:
    """Write JSON lines under a temporary name, then rename."""
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("w", encoding="utf-8") as file:
        for record in records:
            file.write(json.dumps(asdict(record)) + "\n")
    temporary.replace(path)


def read_records(path: Path) -> Iterator[PairRecord]:
    """Read what `write_records` wrote.

    Raises:
        DataError: the file is missing, or a line is no record.
    """
    try:
        with path.open(encoding="utf-8") as file:
            for number, line in enumerate(file, 1):
                try:
                    fields = json.loads(line)
                    yield PairRecord(**{**fields, "ops": tuple(fields["ops"])})
                except (TypeError, KeyError, ValueError) as e:
                    raise DataError(f"{path}:{number} is not a pair: {e}") from e
    except OSError as e:
        raise DataError(f"{path} cannot be read: {e.strerror}") from e
