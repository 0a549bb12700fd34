"""What all tests share: one cache of builds, so that the precompiled header is built once."""

import os

os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")  # before torch: idle threads must not spin
# Before anything imports Triton, which decides on import whether its kernels run in the interpreter.
os.environ.setdefault("TRITON_INTERPRET", "1")

import pytest

from dice.toolchain.prelude import ensure_prelude
from dice.toolchain.source import BuildOptions


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Half as many again as there are cores: a third of the time tests wait for compilers and judges."""
    cores = len(os.sched_getaffinity(0))
    return cores + (cores + 1) // 2


@pytest.fixture(scope="session")
def fast_options() -> BuildOptions:
    """Build options without checks, over the user's cache (`$DICE_CACHE`, else `~/.cache/dice`)."""
    options = BuildOptions(check=False)
    ensure_prelude(options)
    return options
