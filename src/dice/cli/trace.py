"""The decoding trace of `dice generate --trace FILE`: JSON lines, one a denoising forward and sequence,
then one a completion. Written under a temporary name and renamed when complete."""

import json
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Self

from dice.engine import StepEvent
from dice.errors import UserError
from dice.types import Completion


class TraceWriter:
    """Collects events into `path`; with `None` it does nothing.

    Raises:
        UserError: the file cannot be created.
    """

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._file: IO[str] | None = None
        self._temporary: Path | None = None

    def __enter__(self) -> Self:
        if self._path is not None:
            self._temporary = self._path.with_name(f".{self._path.name}.partial")
            try:
                self._file = self._temporary.open("w", encoding="utf-8")
            except OSError as e:
                raise UserError(f"--trace {self._path} cannot be written: {e.strerror}") from e
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._file is None or self._temporary is None or self._path is None:
            return
        self._file.close()
        if kind is None:
            self._temporary.replace(self._path)
        else:
            self._temporary.unlink(missing_ok=True)

    def on_step(self, event: StepEvent) -> None:
        self._write({"type": "step", **asdict(event)})

    def on_completions(self, completions: list[Completion]) -> None:
        for index, completion in enumerate(completions):
            self._write({"type": "completion", "request": index, **asdict(completion)})

    def _write(self, record: dict[str, object]) -> None:
        if self._file is not None:
            self._file.write(json.dumps(record) + "\n")
