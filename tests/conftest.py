"""What all tests share: one cache of builds, so that the precompiled header is built once."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin
# Before anything imports Triton, which decides on import whether its kernels run in the interpreter.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from dice.toolchain.prelude import ensure_prelude
from dice.toolchain.source import BuildOptions


@pytest.fixture(scope="session")
def fast_options() -> BuildOptions:
    """Build options without checks, over the user's cache (`$DICE_CACHE`, else `~/.cache/dice`)."""
    options = BuildOptions(check=False)
    ensure_prelude(options)
    return options
