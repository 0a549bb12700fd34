"""A run's folder: what was asked for, on what it ran, and everything it measured.

config.json      the resolved configuration
provenance.jsonl  seed, git revision, versions, device (one entry per start or resume)
metrics.jsonl    append-only
checkpoint.pt    the latest checkpoint
model/           the result, in Hugging Face's layout
"""

import json
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from dice.config.load import save_resolved
from dice.config.provenance import provenance
from dice.errors import UserError


class RunDir:
    """Paths and append-only logs of one run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.checkpoint = path / "checkpoint.pt"
        self.model = path / "model"
        self.config = path / "config.json"

    def start(self, config: BaseModel, *, seed: int, resume: bool) -> None:
        """Create the folder, or reopen it.

        Raises:
            UserError: starting anew where a run already is.
        """
        if not resume and self.checkpoint.exists():
            raise UserError(f"{self.path} already holds a run; resume it or choose another folder")
        self.path.mkdir(parents=True, exist_ok=True)
        save_resolved(config, self.config)
        self._append("provenance.jsonl", {**provenance(), "seed": seed, "resumed": resume})

    def log(self, record: dict[str, Any]) -> None:
        """Append one record to metrics.jsonl."""
        self._append("metrics.jsonl", record)

    def _append(self, name: str, record: dict[str, Any]) -> None:
        with (self.path / name).open("a", encoding="utf-8") as file:
            file.write(json.dumps(record) + "\n")
