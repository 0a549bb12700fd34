"""A run's folder: `run.json`, the append-only `log.jsonl`, candidate files under KernelBench's names.

Lines are written whole and synced, one process at a time; a torn last line, which a power cut can leave, is
dropped when the run is opened again. Nothing is ever rewritten but `run.json`, by renaming.
"""

import fcntl
import json
import os
import threading
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType

from pydantic import ValidationError

from dice.errors import DataError, UserError
from dice.eval.records import FORMAT, LINE, Generation, Judged, Key, Line, RunConfig, Upstream


@dataclass(slots=True)
class Log:
    """Everything a log says, by sample."""

    generations: dict[Key, Generation] = field(default_factory=dict)
    verdicts: dict[Key, Judged] = field(default_factory=dict)
    upstream: dict[Key, Upstream] = field(default_factory=dict)

    def add(self, line: Line) -> None:
        if isinstance(line, Generation):
            self.generations[line.key] = line
        elif isinstance(line, Judged):
            self.verdicts[line.key] = line
        else:
            self.upstream[line.key] = line


class Store:
    """One run's folder, open for reading; `writing()` opens it for appending."""

    def __init__(self, path: Path, config: RunConfig, log: Log) -> None:
        self.path, self.config, self.log = path, config, log
        self._file: int | None = None
        self._lock = threading.Lock()

    @classmethod
    def create(cls, path: Path, config: RunConfig) -> "Store":
        """A new run. Raises UserError where one is, or where something else would be mixed with it."""
        if (path / "run.json").exists():
            raise UserError(
                f"{path} holds a run already: dice eval resume {path}, or another --out"
            )
        if path.exists() and (not path.is_dir() or any(path.iterdir())):
            raise UserError(f"{path} is there and no empty folder; choose another --out")
        path.mkdir(parents=True, exist_ok=True)
        (path / "log.jsonl").touch()
        store = cls(path, config, Log())
        store.save(config)
        return store

    @classmethod
    def open(cls, path: Path) -> "Store":
        """An existing run. Raises UserError for what is no run, DataError for a broken one."""
        config_file = path / "run.json"
        if not config_file.is_file():
            raise UserError(f"{path} is no evaluation run: it has no run.json")
        try:
            config = RunConfig.model_validate_json(config_file.read_bytes())
        except ValidationError as e:
            raise DataError(f"{config_file} cannot be used: {e}") from e
        if config.format != FORMAT:
            raise DataError(
                f"{config_file} has format {config.format}; this package reads {FORMAT}"
            )
        return cls(path, config, _read_log(path / "log.jsonl"))

    def save(self, config: RunConfig) -> None:
        """Write `run.json` anew."""
        write_text(self.path / "run.json", config.model_dump_json(indent=2) + "\n")
        self.config = config

    # -- appending -------------------------------------------------------------------------------

    def __enter__(self) -> "Store":
        file = os.open(self.path / "log.jsonl", os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(file)
            raise UserError(f"{self.path} is being written by another process") from e
        size = os.fstat(file).st_size
        if size and os.pread(file, 1, size - 1) != b"\n":
            with (self.path / "log.jsonl").open("rb") as log:
                os.ftruncate(file, log.read().rfind(b"\n") + 1)
        self._file = file
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._file is not None
        os.close(self._file)
        self._file = None

    def append(self, line: Line) -> None:
        """Write one line and sync it. May be called from any thread."""
        values = line.model_dump(mode="json")
        kept = {name: value for name, value in values.items() if value is not None}
        data = json.dumps(kept, allow_nan=False).encode() + b"\n"
        with self._lock:
            assert self._file is not None, "append only inside `with store:`"
            while data:
                data = data[os.write(self._file, data) :]
            os.fsync(self._file)
            self.log.add(line)

    def candidate_file(self, key: Key) -> Path:
        """Where KernelBench keeps this sample's kernel."""
        level, problem_id, sample = key
        return self.path / f"level_{level}_problem_{problem_id}_sample_{sample}_kernel.py"


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(text, encoding="utf-8")
    os.replace(temporary, path)


def _read_log(path: Path) -> Log:
    log = Log()
    if not path.exists():
        return log
    lines = path.read_bytes().split(b"\n")
    for number, line in enumerate(lines[:-1], start=1):
        if not line.strip():
            continue
        try:
            log.add(LINE.validate_json(line))
        except ValidationError as e:
            raise DataError(f"{path}, line {number}: {e}") from e
    return log
