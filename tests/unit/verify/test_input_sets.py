"""Input sets: which faults each variation tells from a right kernel, and what stays as it was."""

from collections.abc import Callable

import pytest
import torch

from dice.verify.correctness import compare
from dice.verify.input_sets import plan, vary
from dice.verify.policy import Policy

F = torch.nn.functional
POLICY = Policy()


def drawn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(3))


def varied(variation: str, *shape: int) -> torch.Tensor:
    torch.manual_seed(4)
    (found,) = vary([drawn(*shape)], variation)
    return found


def test_by_default_every_kind_is_planned_once_and_every_seed_differs():
    plans = plan("code", 7, POLICY.input_sets)
    assert [one.variations[0] for one in plans] == [
        *("plain", "negated", "large x32", "small", "a row of zeros", "rows lowered")
    ]
    assert len({one.seed for one in plans}) == len(plans)
    assert all(one.variations[-1] == "plain" for one in plans)


def test_every_planned_variation_exists_and_leaves_labels_and_shapes_alone():
    labels = torch.arange(6)
    for name in {name for one in plan("code", 0, 12) for name in one.variations}:
        values, same = vary([drawn(6, 5), labels], name)
        assert torch.equal(same, labels), name
        assert values.shape == (6, 5), name
        assert bool(values.isfinite().all()), name


def test_every_second_row_is_lowered_and_the_others_stay():
    x = drawn(6, 5)
    lowered = varied("rows lowered", 6, 5)
    assert torch.equal(lowered[0::2], x[0::2])
    assert torch.allclose(lowered[1::2], -1000 * (1 + x[1::2].abs()))
    assert torch.equal(drawn(6, 5), x)


def test_with_a_batch_of_one_the_rows_inside_are_lowered():
    lowered = varied("rows lowered", 1, 4, 5)
    assert torch.equal(lowered[0, 0::2], drawn(1, 4, 5)[0, 0::2])
    assert bool((lowered[0, 1::2] <= -1000).all())


@pytest.mark.parametrize("tensor", [drawn(5), drawn(1, 5)])
def test_without_rows_nothing_is_lowered(tensor):
    (found,) = vary([tensor.clone()], "rows lowered")
    assert torch.equal(found, tensor)


def test_without_negative_values_the_mean_is_taken_off():
    """A product of half precision sums hides as long as all terms have one sign."""
    x, w = drawn(64, 512).abs(), drawn(512).abs()
    (shifted,) = vary([x], "rows lowered")
    assert torch.allclose(shifted, x - x.mean())

    def half_sums(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return (x * w).reshape(len(x), -1, 2).half().sum(2).float().sum(1)

    def accepted(x: torch.Tensor, w: torch.Tensor) -> bool:
        return compare(half_sums(x, w), x @ w, x.double() @ w.double(), POLICY).ok

    assert accepted(x, w)
    assert not accepted(shifted, w - w.mean())


def test_the_last_row_of_every_tensor_is_zero():
    torch.manual_seed(4)
    one, other, vector = vary([drawn(6, 50), drawn(6, 3, 50), drawn(50)], "a row of zeros")
    for tensor in (one, other):
        assert not tensor[-1].any()
        assert 0.1 < (tensor[:-1] == 0).float().mean() < 0.4
    assert vector.any()


def layer_norm(x: torch.Tensor, eps: float) -> torch.Tensor:
    centred = x - x.mean(1, keepdim=True)
    return centred / (centred.square().mean(1, keepdim=True) + eps).sqrt()


def softmax(x: torch.Tensor, start: float) -> torch.Tensor:
    top = x.amax(1, keepdim=True).clamp_min(start)
    powers = (x - top).exp()
    return powers / powers.sum(1, keepdim=True)


def normalize(x: torch.Tensor, eps: float) -> torch.Tensor:
    return x / x.square().sum(1, keepdim=True).sqrt().clamp_min(eps)


@pytest.mark.parametrize(
    ("variation", "reference", "right", "wrong"),
    [
        (
            "small",
            lambda x: F.layer_norm(x, (64,)),
            lambda x: layer_norm(x, 1e-5),
            lambda x: layer_norm(x, 0.0),
        ),
        (
            "rows lowered",
            lambda x: x.softmax(1),
            lambda x: softmax(x, float("-inf")),
            lambda x: softmax(x, 0.0),
        ),
        (
            "rows lowered",
            lambda x: (x / 8).softmax(1),
            lambda x: softmax(x / 8, float("-inf")),
            lambda x: softmax(x / 8, 0.0),
        ),
        (
            "rows lowered",
            lambda x: x.amax(1),
            lambda x: x.max(1).values,
            lambda x: x.amax(1).clamp_min(0),
        ),
        (
            "a row of zeros",
            lambda x: F.normalize(x),
            lambda x: normalize(x, 1e-12),
            lambda x: normalize(x, 0.0),
        ),
    ],
)
def test_a_variation_tells_a_fault_that_the_problems_own_inputs_hide(
    variation: str,
    reference: Callable[[torch.Tensor], torch.Tensor],
    right: Callable[[torch.Tensor], torch.Tensor],
    wrong: Callable[[torch.Tensor], torch.Tensor],
):
    def accepted(candidate: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> bool:
        return compare(candidate(x), reference(x), reference(x.double()), POLICY).ok

    own, other = drawn(8, 64), varied(variation, 8, 64)
    assert accepted(right, own)
    assert accepted(wrong, own)
    assert accepted(right, other)
    assert not accepted(wrong, other)
