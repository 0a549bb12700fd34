import importlib.util
from pathlib import Path

import pytest

from dice.data.decontaminate import (
    evaluation_hashes,
    is_evaluation_problem,
    is_held_out,
)
from dice.problems.kernelbench import load_jsonl
from tests.data import shared_data

ROOT = Path(__file__).parents[3]


def test_the_committed_hashes_are_those_of_the_public_sets() -> None:
    folder = shared_data("kernelbench_v0.2.jsonl").parent
    path = ROOT / "benchmarks" / "eval_hashes.py"
    spec = importlib.util.spec_from_file_location("eval_hashes", path)
    assert spec is not None
    assert spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    assert set(script.hashes(folder)) == evaluation_hashes()


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda p: p.stem)
def test_every_example_is_kept_out(path: Path) -> None:
    assert is_evaluation_problem(path.read_text())


def test_other_names_sizes_and_layout_are_still_the_same_problem() -> None:
    problems = load_jsonl(shared_data("kernelbench_v0.2.jsonl"))
    relu = next(p for p in problems if "ReLU" in p.name and p.level == 1)
    assert is_evaluation_problem(relu.code)
    disguised = "# mine\n" + relu.code.replace("batch_size", "rows").replace("dim", "columns")
    disguised = disguised.replace("super(Model, self)", "super()").replace("4096", "77")
    assert disguised != relu.code
    assert is_evaluation_problem(disguised)
    assert not is_evaluation_problem(relu.code.replace("torch.relu", "torch.tanh_"))


def test_held_out_compositions_are_a_stable_share() -> None:
    names = [("a", f"op{i}", "c") for i in range(5000)]
    held = [n for n in names if is_held_out(n, fraction=0.1, min_ops=3)]
    assert 400 < len(held) < 600
    assert held == [n for n in names if is_held_out(list(n), fraction=0.1, min_ops=3)]
    assert not any(is_held_out(n[:2], fraction=1.0, min_ops=3) for n in names)
    assert is_held_out(("a", "b", "c"), fraction=1.0, min_ops=3)
