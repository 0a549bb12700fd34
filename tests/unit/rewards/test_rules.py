import pytest

from dice.rewards import reward
from dice.types import Verdict, VerdictKind


@pytest.mark.parametrize("kind", list(VerdictKind))
def test_only_a_correct_verdict_earns(kind: VerdictKind) -> None:
    expected = 1.0 if kind is VerdictKind.CORRECT else 0.0
    assert reward(Verdict(kind=kind)).value == expected
