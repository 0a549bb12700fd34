"""Pooling and upsampling: text and shapes against PyTorch, and the kernels run on the CPU."""

import pytest

from dice.data.synth.pooling import FAMILIES
from dice.data.synth.pooling_cuda import pool_function
from tests.unit.synth.core_pairs import check_by_running, check_family


def test_pairs_have_the_expected_text_and_shape() -> None:
    check_family(FAMILIES, range(40))


def test_average_without_padding_counts_elements() -> None:
    vectors = ["_pair(2)", "_pair(2)", "_pair(1)"]
    plain = pool_function("avg", 2, "x", vectors).kernels[0]
    counted = pool_function("avg", 2, "x", vectors, count_pad=False).kernels[0]
    assert "acc / (KH * KW)" in plain
    assert "acc / count" in counted


@pytest.mark.slow
def test_kernels_compute_the_problems() -> None:
    check_by_running(FAMILIES, range(5))
