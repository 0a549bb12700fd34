"""Convolutions: sizes against PyTorch, text, and the kernels run on the CPU."""

import random

import pytest
import torch
from torch import nn

from dice.data.synth import conv, conv_then, conv_transpose
from dice.data.synth.conv_cuda import conv_function
from dice.data.synth.conv_spec import draw_settings
from tests.unit.synth.core_pairs import check_by_running, check_family

FAMILIES = (*conv.FAMILIES, *conv_transpose.FAMILIES, *conv_then.FAMILIES)


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("nd", [1, 2, 3])
def test_output_sizes_are_pytorchs(nd: int, transposed: bool) -> None:
    rng = random.Random(nd)
    cls = getattr(nn, f"Conv{'Transpose' if transposed else ''}{nd}d")
    for _ in range(25):
        s = draw_settings(rng, nd, transposed=transposed)
        extra = {"output_padding": s.output_padding} if transposed else {}
        layer = cls(
            1, 1, s.kernel, stride=s.stride, padding=s.padding, dilation=s.dilation, **extra
        )
        sizes = [s.min_size(axis, transposed=transposed) for axis in range(nd)]
        out = layer(torch.zeros(1, 1, *sizes)).shape[2:]
        assert tuple(out) == tuple(
            s.out_size(a, n, transposed=transposed) for a, n in enumerate(sizes)
        )
        assert min(out) >= 2


def test_kernel_text_does_not_depend_on_the_setting() -> None:
    texts = {
        conv_function(2, ["x", *(f"self.{attr}.{f}" for f in "abcdef")]).kernels[0]
        for attr in ("conv", "layer")
    }
    assert len(texts) == 1


def test_pairs_have_the_expected_text_and_shape() -> None:
    check_family(FAMILIES, range(25))


@pytest.mark.slow
def test_kernels_compute_the_problems() -> None:
    check_by_running(FAMILIES, range(3))
