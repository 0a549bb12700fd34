from pathlib import Path

import pytest

from dice.errors import ProblemError
from dice.problems import load_problem, parse_problem

GOOD = """
import torch
class Model(torch.nn.Module):
    def forward(self, x):
        return x
def get_inputs():
    return [torch.rand(2)]
def get_init_inputs():
    return []
"""


def test_parses_a_file_and_takes_its_name_from_the_path(tmp_path: Path) -> None:
    path = tmp_path / "bias_gelu.py"
    path.write_text(GOOD)
    problem = load_problem(path)
    assert (problem.name, problem.code, problem.path) == ("bias_gelu", GOOD, str(path))


def test_reading_a_problem_does_not_run_it(tmp_path: Path) -> None:
    marker = tmp_path / "ran"
    path = tmp_path / "p.py"
    path.write_text(GOOD + f"\nopen({str(marker)!r}, 'w').close()\n")
    load_problem(path)
    assert not marker.exists()


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (GOOD.replace("class Model(", "class Net("), "no class `Model`"),
        (GOOD.replace("class Model(", "class ModelNew("), "is this a candidate"),
        (GOOD.replace("get_inputs", "inputs"), "no function `get_inputs`"),
        (GOOD.replace("get_init_inputs", "init"), "no function `get_init_inputs`"),
        ("def f(:\n", "p:1: not valid Python"),
        ("x = '\0'", "not valid Python"),
    ],
)
def test_a_broken_contract_is_named(code: str, message: str) -> None:
    with pytest.raises(ProblemError, match=message):
        parse_problem(code, name="p")


def test_names_bound_by_assignment_or_import_count() -> None:
    code = "from m import Model, get_inputs\nget_init_inputs = lambda: []\n"
    assert parse_problem(code, name="p").code == code


def test_unreadable_files_are_user_errors(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no such file"):
        load_problem(tmp_path / "absent.py")
    with pytest.raises(ProblemError, match="is a directory"):
        load_problem(tmp_path)
    binary = tmp_path / "b.py"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ProblemError, match="not UTF-8"):
        load_problem(binary)
