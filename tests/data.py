"""Where the public data files are, or a skip that says they are missing."""

import os
from pathlib import Path

import pytest


def shared_data(name: str) -> Path:
    """Path of a public data file; skips the test where it is not on this machine."""
    root = Path(os.environ.get("DICE_SHARED_DATA", Path(__file__).parents[2] / "shared" / "data"))
    path = root / name
    if not path.exists():
        pytest.skip(f"public data file {name} is not at {root}; set DICE_SHARED_DATA")
    return path
