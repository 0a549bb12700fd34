"""Keep evaluation problems out of training data, and whole compositions out for held-out evaluation.

Two problems are the same when their normalised hashes are (`dice.problems.normalise`). The hashes of the
public evaluation sets are committed with the package, so that a dataset can be built where the sets
themselves are missing; `benchmarks/eval_hashes.py` makes the file and a test compares it with the sets.
"""

import hashlib
from collections.abc import Iterable
from functools import cache
from pathlib import Path

from dice.problems.normalise import normalised_hash
from dice.prompts.render import canonical_code

EVAL_HASHES = Path(__file__).with_name("eval_hashes.txt")
_DIGITS = 16
"""Hexadecimal digits kept of a hash: chance matches among a million problems stay below 1e-9."""


@cache
def evaluation_hashes() -> frozenset[str]:
    """The committed hashes: KernelBench, DICE's RL modules and infilling set, and the examples."""
    lines = EVAL_HASHES.read_text(encoding="utf-8").splitlines()
    return frozenset(line for line in lines if line and not line.startswith("#"))


def short_hash(code: str) -> str:
    """The stored digits of the normalised hash of the canonical code: `super(Model, self)` and `super()`
    are the same to the model, so they are the same here.

    Raises:
        ProblemError: not valid Python.
    """
    return normalised_hash(canonical_code(code))[:_DIGITS]


def is_evaluation_problem(code: str) -> bool:
    """Whether `code` is a problem of an evaluation set, names, layout, sizes and constants aside."""
    return short_hash(code) in evaluation_hashes()


def is_held_out(ops: Iterable[str], *, fraction: float, min_ops: int) -> bool:
    """Whether a composition of operations is kept out of training: a function of the composition."""
    composition = tuple(ops)
    if len(composition) < min_ops:
        return False
    digest = hashlib.sha256("\x1f".join(composition).encode()).digest()
    return int.from_bytes(digest[:8], "big") < fraction * 2.0**64
