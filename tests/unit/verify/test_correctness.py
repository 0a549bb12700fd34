"""The tolerance rule, element by element against numbers worked out by hand."""

import pytest
import torch

from dice.verify.correctness import compare
from dice.verify.policy import Policy
from dice.verify.trees import Foreign

POLICY = Policy()


def _ok(c, p, o=None, policy=POLICY):
    return compare(c, p, o, policy).ok


def test_tolerance_is_relative_to_element_and_to_rms():
    o = torch.tensor([3.0, 4.0], dtype=torch.float64)
    p = o.float()
    rms = (12.5) ** 0.5
    allowed = 1e-4 * (3.0 + rms)
    inside = p + torch.tensor([0.99 * allowed, 0.0])
    outside = p + torch.tensor([1.02 * allowed, 0.0])
    assert _ok(inside, p, o)
    result = compare(outside, p, o, POLICY)
    assert not result.ok
    assert result.reason == "values"
    assert result.tolerance == pytest.approx(allowed, rel=1e-6)
    assert result.mismatched == 0.5


def test_pytorchs_own_error_widens_the_tolerance_fourfold():
    o = torch.ones(4, dtype=torch.float64)
    p = torch.ones(4) + torch.tensor([0.0, 0.01, 0.0, 0.0])
    assert _ok(torch.ones(4) + 0.039, p, o)
    assert not _ok(torch.ones(4) + 0.041, p, o)


def test_small_elements_are_judged_by_the_tensors_scale():
    o = torch.tensor([1.0, 1e-9], dtype=torch.float64)
    assert _ok(torch.tensor([1.0, 5e-5]), o.float(), o)
    assert not _ok(torch.tensor([1.0, 5e-4]), o.float(), o)


def test_nan_never_passes_even_where_the_reference_has_it():
    p = torch.tensor([1.0, float("nan")])
    assert compare(p.clone(), p, None, POLICY).reason == "nan"


def test_infinity_matches_in_place_only():
    inf = float("inf")
    p = torch.tensor([1.0, inf, -inf])
    assert _ok(p.clone(), p)
    assert compare(torch.tensor([1.0, -inf, -inf]), p, None, POLICY).reason == "infinity"
    assert compare(torch.tensor([1.0, 3e38, -inf]), p, None, POLICY).reason == "infinity"
    assert compare(torch.tensor([inf, inf, -inf]), p, None, POLICY).reason == "infinity"


def test_overflow_of_float32_is_compared_with_pytorch_not_with_the_oracle():
    o = torch.tensor([1e40, 1.0], dtype=torch.float64)
    p = torch.tensor([float("inf"), 1.0])
    assert _ok(p.clone(), p, o)


@pytest.mark.parametrize("shape", [(), (3,), (2, 3)])
def test_a_boolean_that_was_never_written_is_not_true(shape):
    """Poisoned memory reads as true; only its byte tells."""
    expected = torch.ones(shape, dtype=torch.bool)
    found = torch.full(shape, 0xA5, dtype=torch.uint8).view(torch.bool)
    assert bool((found == expected).all())
    result = compare(found, expected, None, POLICY)
    assert not result.ok
    assert "never written" in result.message
    assert _ok(torch.ones(shape, dtype=torch.uint8).view(torch.bool), expected)


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.uint8, torch.bool])
def test_integers_and_booleans_are_exact(dtype):
    p = torch.tensor([0, 1, 1]).to(dtype)
    assert _ok(p.clone(), p)
    assert compare(torch.tensor([0, 1, 0]).to(dtype), p, None, POLICY).mismatched == pytest.approx(
        1 / 3
    )


def test_an_index_may_break_a_near_tie_like_the_oracle():
    assert _ok(torch.tensor([7]), torch.tensor([3]), torch.tensor([7]))
    assert not _ok(torch.tensor([5]), torch.tensor([3]), torch.tensor([7]))


def test_half_output_has_the_half_tolerance():
    p = torch.full((4,), 1.0, dtype=torch.float16)
    assert _ok(p + 0.01, p)
    assert not _ok(p + 0.05, p)


def test_float32_gets_the_half_tolerance_only_when_declared():
    p = torch.ones(4)
    assert not _ok(p + 0.01, p)
    assert _ok(p + 0.01, p, None, Policy(precision="float16"))


def test_dtype_must_be_the_references():
    result = compare(torch.ones(4, dtype=torch.float16), torch.ones(4), None, POLICY)
    assert result.reason == "dtype"


def test_shape_must_be_the_references():
    assert compare(torch.ones(4, 1), torch.ones(4), None, POLICY).reason == "shape"
    assert compare(torch.ones(1), torch.ones(()), None, POLICY).reason == "shape"


def test_tensor_subclass_is_refused():
    class Lazy(torch.Tensor):
        pass

    lazy = torch.ones(4).as_subclass(Lazy)
    assert compare(lazy, torch.ones(4), None, POLICY).reason == "type"
    foreign = Foreign(type_name="Lazy")
    assert compare(foreign, torch.ones(4), None, POLICY).reason == "type"


def test_tuples_and_dicts_are_compared_whole():
    p = (torch.ones(2), {"a": torch.zeros(2), "n": 3})
    same = (torch.ones(2), {"a": torch.zeros(2), "n": 3})
    assert _ok(same, p)
    assert _ok([*same], p)
    assert compare(same[:1], p, None, POLICY).reason == "structure"
    wrong = (torch.ones(2), {"a": torch.ones(2), "n": 3})
    result = compare(wrong, p, None, POLICY)
    assert result.reason == "values"
    assert result.where == "output[1]['a']"
    assert not _ok((torch.ones(2), {"a": torch.zeros(2), "n": 4}), p)


def test_a_number_is_no_tensor():
    assert compare(1.0, torch.tensor(1.0), None, POLICY).reason == "type"
    assert _ok(1.00001, 1.0)


def test_empty_outputs_match():
    assert _ok(torch.empty(0, 3), torch.empty(0, 3))


def test_complex_numbers_are_compared_by_parts():
    p = torch.tensor([1 + 2j], dtype=torch.complex64)
    assert _ok(p.clone(), p)
    assert not _ok(p + 0.01j, p)


def test_comparison_in_parts_gives_the_same_as_at_once(monkeypatch):
    torch.manual_seed(5)
    o = torch.randn(7, 11, dtype=torch.float64)
    p = (o + 1e-7 * torch.randn_like(o)).float()
    p[0, 0] = o[0, 0] = float("inf")
    wrong = p.clone()
    wrong[5, 3] += 0.5
    wrong[6, 10] += 0.25
    for c in (p, wrong, torch.where(p == p[6, 9], torch.nan, p)):
        whole = compare(c, p, o, Policy())
        with monkeypatch.context() as patch:
            patch.setattr("dice.verify.correctness._PART", 13)
            parts = compare(c, p, o, Policy())
        assert (parts.ok, parts.reason) == (whole.ok, whole.reason)
        assert parts.max_error == pytest.approx(whole.max_error)
        assert parts.tolerance == pytest.approx(whole.tolerance)
        if whole.reason == "values":
            assert parts.message == whole.message
            assert "(5, 3)" in parts.message
