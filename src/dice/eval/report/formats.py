"""Numbers as short texts."""

from dice.eval.metrics import Estimate

NONE = "—"
"""What stands where there is no value."""


def percent(one: Estimate | None) -> str:
    """As in "41.0 % (32–50)"."""
    if one is None:
        return NONE
    return f"{100 * one.value:.1f} % ({100 * one.low:.0f}–{100 * one.high:.0f})"


def ratio(one: Estimate | None) -> str:
    """As in "1.32x (1.10–1.58)"."""
    return NONE if one is None else f"{one.value:.2f}x ({one.low:.2f}–{one.high:.2f})"


def number(value: float | None, unit: str = "") -> str:
    """Three digits; whole from 1000 on, with commas."""
    if value is None:
        return NONE
    text = f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"
    return f"{text} {unit}".rstrip()


def money(value: float | None) -> str:
    """US dollars."""
    if value is None:
        return NONE
    return f"${value:,.2f}" if value >= 0.1 or value == 0 else f"${value:.4f}"
