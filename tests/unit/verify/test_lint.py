"""Problems that test nothing are found; good ones pass."""

import torch

from dice.verify.lint import Outputs, lint
from dice.verify.policy import Policy

POLICY = Policy()


def _kinds(*references, other=None, random=False):
    outputs = Outputs(
        references=references,
        oracles=tuple(None for _ in references),
        other_weights=other,
        random=random,
    )
    return [finding.kind for finding in lint(outputs, POLICY)]


def test_a_good_problem_has_no_findings():
    torch.manual_seed(0)
    assert _kinds(torch.randn(8), torch.randn(8), other=torch.randn(8)) == []


def test_zero_output():
    assert "zero_output" in _kinds(torch.zeros(8), torch.zeros(8))


def test_constant_output():
    assert _kinds(torch.full((8,), 2.0), torch.full((8,), 3.0)) == ["constant_output"]


def test_one_number_that_varies_is_no_constant():
    assert _kinds(torch.tensor(2.0), torch.tensor(3.0)) == []


def test_output_that_ignores_inputs():
    out = torch.randn(8, generator=torch.Generator().manual_seed(0))
    assert _kinds(out, out.clone()) == ["ignores_inputs"]


def test_output_that_ignores_weights():
    generator = torch.Generator().manual_seed(0)
    one, two = torch.randn(8, generator=generator), torch.randn(8, generator=generator)
    assert _kinds(one, two, other=one.clone()) == ["ignores_weights"]


def test_random_reference():
    assert "random_reference" in _kinds(torch.randn(8), torch.randn(8), random=True)


def test_nan_reference():
    assert _kinds(torch.tensor([1.0, float("nan")]), torch.tensor([1.0, 2.0])) == ["nan_reference"]
