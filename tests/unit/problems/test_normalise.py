import pytest

from dice.errors import ProblemError
from dice.problems import normalised_hash

BASE = '''
"""A docstring."""
import torch
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.dim = dim
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        # a comment
        return torch.sum(x * 2.5, dim=self.dim)

rows = 16

def get_inputs():
    return [torch.rand(rows, 8)]

def get_init_inputs():
    return [1]
'''


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A docstring.", "Another one."),
        ("# a comment", ""),
        ("rows", "BATCH"),
        ("16", "4096"),
        ("2.5", "0.1"),
        ("x: torch.Tensor", "scores"),
        ("x * 2.5", "(x*2.5)"),
        (") -> torch.Tensor", ")"),
        ("self.dim = dim", "self.dim: int = dim"),
    ],
)
def test_layout_names_numbers_and_annotations_do_not_matter(old: str, new: str) -> None:
    code = BASE.replace(old, new)
    if old.startswith("x:"):
        code = code.replace("x * 2.5", "scores * 2.5")
    assert code != BASE
    assert normalised_hash(code) == normalised_hash(BASE)


def test_renaming_an_argument_that_shares_a_torch_keyword_does_not_matter() -> None:
    renamed = (
        BASE.replace("dim: int", "axis: int")
        .replace("self.dim", "self.axis")
        .replace("= dim\n", "= axis\n")
    )
    assert "dim=self.axis" in renamed
    assert normalised_hash(renamed) == normalised_hash(BASE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("torch.sum", "torch.mean"),
        ("x * 2.5", "x + 2.5"),
        ("dim=self.dim", "dim=self.dim, keepdim=True"),
        ("torch.rand", "torch.randn"),
    ],
)
def test_what_the_module_computes_matters(old: str, new: str) -> None:
    assert normalised_hash(BASE.replace(old, new)) != normalised_hash(BASE)


def test_invalid_python_is_a_problem_error() -> None:
    with pytest.raises(ProblemError, match="not valid Python"):
        normalised_hash("def")
