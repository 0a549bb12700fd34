"""Everything a run needs to go on exactly where it stopped.

A checkpoint holds the float32 weights, the optimizer, the random states and the position in the data. It
is one file, written under a temporary name and renamed, so an interrupted save leaves the previous one.
"""

import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from dice.errors import DataError


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """How far a run has come."""

    step: int = 0
    """Optimizer steps done."""
    epoch: int = 0
    """The epoch that the next step belongs to."""
    batch: int = 0
    """Batches of that epoch already used."""
    tokens: int = 0
    """Training tokens used, each counted once."""
    elapsed_s: float = 0.0
    """Time spent training, over all the parts of the run."""


def save_checkpoint(
    path: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer, progress: Progress
) -> None:
    """Write `path` atomically."""
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "progress": asdict(progress),
        "random": {
            "python": random.getstate(),
            "torch": torch.get_rng_state(),
            "cuda": torch.cuda.get_rng_state_all() if torch.cuda.is_available() else [],
        },
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    with temporary.open("wb") as file:
        torch.save(state, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(path)


def load_checkpoint(path: Path, *, model: nn.Module, optimizer: torch.optim.Optimizer) -> Progress:
    """Restore weights, optimizer and random states in place.

    Raises:
        DataError: no such file, or it does not fit the model.
    """
    try:
        state: dict[str, Any] = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError as e:
        raise DataError(f"there is no checkpoint at {path} to resume from") from e
    try:
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    except (RuntimeError, ValueError, KeyError) as e:
        raise DataError(f"the checkpoint at {path} does not fit this configuration: {e}") from e
    random.setstate(state["random"]["python"])
    torch.set_rng_state(state["random"]["torch"])
    if state["random"]["cuda"] and torch.cuda.is_available():
        torch.cuda.set_rng_state_all(state["random"]["cuda"])
    return Progress(**state["progress"])
