"""A run's folder: what was asked for, on what it ran, and everything it measured.

config.json      the resolved configuration
provenance.jsonl  seed, git revision, versions, device (one entry per start or resume)
metrics.jsonl    append-only
checkpoint.pt    the latest checkpoint
model/           the result, in Hugging Face's layout
"""

import json
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch
import transformers
from pydantic import BaseModel

import dice
from dice.config.load import save_resolved
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


def provenance() -> dict[str, Any]:
    """Versions, revision and device of this process."""
    cuda = torch.cuda.is_available()
    return {
        "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "command": sys.argv,
        "dice": dice.__version__,
        "git_revision": _git_revision(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        "cuda": torch.version.cuda,
        "device": torch.cuda.get_device_name() if cuda else platform.processor() or "cpu",
        "machine": platform.platform(),
    }


def _git_revision() -> str | None:
    """Commit of the checkout this package runs from, "+dirty" when it has changes; None if unknown."""
    folder = Path(dice.__file__).parent
    answers = []
    for command in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"]):
        try:
            done = subprocess.run(
                ["git", "-C", str(folder), *command], capture_output=True, text=True, timeout=10
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        if done.returncode != 0:
            return None
        answers.append(done.stdout.strip())
    return answers[0] + ("+dirty" if answers[1] else "")
