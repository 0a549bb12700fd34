"""Matrix products, linear layers, attention: text and shapes, and the kernels run on the CPU."""

import pytest

from dice.data.synth import attention, linear, matmul, matvec
from dice.data.synth.matmul_cuda import SCHEDULES, matmul_function
from tests.unit.synth.core_pairs import check_by_running, check_family

FAMILIES = (*matmul.FAMILIES, *matvec.FAMILIES, *linear.FAMILIES, *attention.FAMILIES)


def test_pairs_have_the_expected_text_and_shape() -> None:
    check_family(FAMILIES, range(25))


@pytest.mark.parametrize("kind", ["mm", "bmm", "rows", "linear"])
def test_schedules_differ_in_the_kernel_and_agree_in_the_interface(kind: str) -> None:
    calls = ["a", "b", "None"] if kind == "linear" else ["a", "b"]
    functions = [matmul_function(kind, calls, schedule=s) for s in SCHEDULES]
    assert len({f.declaration() for f in functions}) == 1
    assert len({f.definition() + "".join(f.helpers) for f in functions}) == len(SCHEDULES)


@pytest.mark.slow
def test_kernels_compute_the_problems() -> None:
    check_by_running(FAMILIES, range(2))
