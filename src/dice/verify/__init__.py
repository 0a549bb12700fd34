"""The verifier: is this kernel right? `Judge` prepares a problem once and rules on candidates.

The candidate runs in a confined process that never holds the reference, the expected output or the
seeds; the ruling is computed here, from the bytes it wrote. See `docs/threat-model.md`.
"""

from typing import TYPE_CHECKING, Any

from dice.verify.policy import Policy

if TYPE_CHECKING:
    from dice.verify.judge import Judge
    from dice.verify.pool import Job, Outcome, Pool
    from dice.verify.trial import Prepared

__all__ = ["Job", "Judge", "Outcome", "Policy", "Pool", "Prepared"]


def __getattr__(name: str) -> Any:
    if name == "Judge":
        from dice.verify.judge import Judge

        return Judge
    if name == "Prepared":
        from dice.verify.trial import Prepared

        return Prepared
    if name in ("Job", "Outcome", "Pool"):
        from dice.verify import pool

        return getattr(pool, name)
    raise AttributeError(name)
