"""What every pair with a core (product, convolution, pooling) must satisfy, for the tests beside it."""

import ast
import random
import re
import shutil
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

from dice.data.synth.builder import Builder, new_builder
from dice.data.synth.pair import Pair

FamilyTable = Sequence[tuple[str, float, Callable[[Builder], None]]]


def draw(name: str, build: Callable[[Builder], None], seed: int) -> tuple[Pair, tuple[int, ...]]:
    """A pair and the shape that its builder expects of the small problem's output."""
    b = new_builder(random.Random(seed))
    build(b)
    shape = tuple(int(d.small) for d in b.shape)
    return b.finish(name), shape


def run_small(pair: Pair) -> Any:
    """Output of the small problem's model."""
    scope: dict[str, Any] = {"__name__": "problem"}
    exec(compile(pair.small_code, "problem", "exec"), scope)
    torch.manual_seed(0)
    model = scope["Model"](*scope["get_init_inputs"]())
    with torch.no_grad():
        return model(*scope["get_inputs"]())


def check_text(pair: Pair) -> None:
    """Both files parse; the candidate names no size, and copies the constructor."""
    problem, kernel = ast.parse(pair.problem_code), ast.parse(pair.kernel_code)
    assert not re.search(r"SIZE\d+_", pair.problem_code + pair.small_code + pair.kernel_code)
    assert len(pair.kernel_code) < 6000
    classes = {
        n.name: n for tree in (problem, kernel) for n in tree.body if isinstance(n, ast.ClassDef)
    }
    assert signature(classes["Model"]) == signature(classes["ModelNew"])


def signature(node: ast.ClassDef) -> tuple[list[str], list[str]]:
    """Statements of `__init__` past the call of super, and the arguments of `forward`."""
    functions = {f.name: f for f in node.body if isinstance(f, ast.FunctionDef)}
    init = functions.get("__init__")
    lines = [] if init is None else [ast.unparse(init.args), *map(ast.unparse, init.body[1:])]
    return lines, [a.arg for a in functions["forward"].args.args]


def check_family(families: FamilyTable, seeds: Sequence[int]) -> None:
    """Text and expected output shape of many pairs."""
    for name, _, build in families:
        for seed in seeds:
            pair, shape = draw(name, build, seed)
            check_text(pair)
            assert run_small(pair).shape == shape, (name, seed)


def check_by_running(families: FamilyTable, seeds: Sequence[int]) -> None:
    """The teacher's kernels compute what the problems say, and the memory checks find nothing."""
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    from dice.data.verify_pairs import CheckOptions, verify_group
    from dice.toolchain.source import BuildOptions

    pairs = [draw(name, build, seed)[0] for name, _, build in families for seed in seeds]
    verdicts = verify_group(pairs, CheckOptions(build=BuildOptions(check=True)))
    assert verdicts == [None] * len(pairs)
