"""The verifier: is this kernel right? `Judge` prepares a problem once and rules on candidates.

The candidate runs in a confined process that never holds the reference, the expected output or the
seeds; the ruling is computed here, from the bytes it wrote. See `docs/threat-model.md`.
"""

from typing import TYPE_CHECKING, Any

from dice.verify.policy import Policy

if TYPE_CHECKING:
    from dice.verify.judge import Judge, PreparedProblem

__all__ = ["Judge", "Policy", "PreparedProblem"]


def __getattr__(name: str) -> Any:
    if name in ("Judge", "PreparedProblem"):
        from dice.verify import judge

        return getattr(judge, name)
    raise AttributeError(name)
