"""The synthesiser as a whole: determinism, the two files of a pair, and a sample of kernels run on the CPU."""

import ast
import random
import re
import shutil

import pytest
import torch

from dice.data.synth import FAMILIES, Pair, sample_pair
from dice.data.synth.builder import new_builder
from dice.data.synth.cuda import HostFunction, Operand, PointOp, module_source
from dice.data.synth.rowwise import use_block
from dice.problems.normalise import normalised_hash
from dice.problems.parse import parse_problem
from dice.prompts.render import canonical_code
from tests.unit.synth.core_pairs import check_text, run_small

NAMES = [f.name for f in FAMILIES]


def pairs(name: str, count: int) -> list[Pair]:
    return [sample_pair(random.Random(f"{name} {seed}"), name) for seed in range(count)]


def test_a_seed_gives_one_pair() -> None:
    first, again = ([sample_pair(random.Random(seed)) for seed in range(40)] for _ in range(2))
    assert first == again
    assert len({p.problem_code for p in first}) == 40


def test_an_unknown_family_is_refused() -> None:
    with pytest.raises(ValueError, match="no such family"):
        sample_pair(random.Random(0), "poetry")


@pytest.mark.parametrize("name", NAMES)
def test_both_files_of_a_family_are_well_formed(name: str) -> None:
    for pair in pairs(name, 12):
        check_text(pair)
        parse_problem(pair.problem_code, name=name, source="synth")
        full, small = (
            re.sub(r"\b\d+ \* \d+\b", "1", c) for c in (pair.problem_code, pair.small_code)
        )
        assert normalised_hash(full) == normalised_hash(small)
        assert not re.search(r"\{[a-z0-9]\}", pair.problem_code + pair.kernel_code)


@pytest.mark.parametrize("name", NAMES)
def test_the_constructor_is_a_copy_of_the_canonical_one(name: str) -> None:
    for pair in pairs(name, 12):
        problem, kernel = (
            constructor(code, cls)
            for code, cls in (
                (canonical_code(pair.problem_code), "Model"),
                (pair.kernel_code, "ModelNew"),
            )
        )
        assert problem == kernel


def constructor(code: str, cls: str) -> str | None:
    """The lines of a class's `__init__` as they stand in the file."""
    tree = ast.parse(code)
    node = next(n for n in tree.body if isinstance(n, ast.ClassDef) and n.name == cls)
    for function in node.body:
        if isinstance(function, ast.FunctionDef) and function.name == "__init__":
            return ast.get_source_segment(code, function)
    return None


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.filterwarnings("ignore:reduction.*mean.*divides:UserWarning")
@pytest.mark.filterwarnings("ignore:std.*degrees of freedom:UserWarning")
def test_small_problems_run_and_are_small(name: str) -> None:
    for pair in pairs(name, 4):
        out = run_small(pair)
        assert isinstance(out, torch.Tensor)
        assert out.numel() <= 60_000


def test_operands_broadcast_by_position_and_channel() -> None:
    f = HostFunction(ops=["add", "prelu"], leading=[("x", "x.contiguous()")])
    lines = f.point(
        [
            PointOp(
                name="add",
                code=("v = v + {0};",),
                operands=(Operand(kind="broadcast", call="self.b"),),
            ),
            PointOp(
                name="prelu",
                code=("v = v * {0};",),
                operands=(Operand(kind="channel", call="self.w"),),
            ),
            PointOp(
                name="mul", code=("v = v * {0};",), operands=(Operand(kind="scalar", call="2.0"),)
            ),
        ]
    )
    assert lines == [
        "v = v + t0[i / t0_inner % t0_size];",
        "v = v * t1[i / t1_inner % t1_size];",
        "v = v * s0;",
    ]
    assert f.host_params() == "torch::Tensor x, torch::Tensor t0, torch::Tensor t1, double s0"
    assert f.call_args() == ["x.contiguous()", "self.b", "self.w", "2.0"]
    assert "inner_size(out, t0), t0.numel()" in f.launch_args("out")
    assert "out.stride(1), t1.numel()" in f.launch_args("out")


def test_one_version_of_a_helper_serves_a_file() -> None:
    functions = []
    for schedule in ("warp_shuffle", "tree"):
        f = HostFunction(ops=["sum", schedule], leading=[("x", "x")])
        use_block(f, "sum", schedule)
        functions.append(f)
    for order in (functions, functions[::-1]):
        text = module_source(order)
        assert text.count("__device__ float block_sum") == 1
        assert "__shfl_down_sync" not in text


def test_the_author_is_drawn_anew_for_every_pair() -> None:
    styles = {new_builder(random.Random(seed)).style for seed in range(200)}
    assert len(styles) > 150
    assert {s.functional for s in styles} == {"F", "torch.nn.functional", "nn.functional"}


def test_a_sample_of_kernels_computes_its_problems() -> None:
    if shutil.which("g++") is None:
        pytest.skip("needs g++")
    from dice.data.verify_pairs import CheckOptions, verify_group
    from dice.toolchain.source import BuildOptions

    names = ("pointwise", "softmax", "norm", "scan", "loss")
    sample = [sample_pair(random.Random(f"run {name}"), name) for name in names]
    assert verify_group(sample, CheckOptions(build=BuildOptions(check=True))) == [None] * len(names)
