"""Numbers that people write: hyper-parameters drawn as Python source text (always `repr` of the value)."""

import random


def _decimal(rng: random.Random, low: float, high: float) -> str:
    digits = rng.choice([1, 1, 2, 2, 3, 4])
    return repr(round(rng.uniform(low, high), digits))


def draw(rng: random.Random, kind: str) -> str:
    """A value of the named kind, as source text."""
    pick = rng.choice
    if kind == "slope":
        return pick(
            ["0.01", "0.1", "0.2", "0.02", "0.05", "0.3", "0.25", _decimal(rng, 0.001, 0.4)]
        )
    if kind == "alpha":
        return (
            pick(["1.0", "1.0", "0.5", "2.0", "0.8", "1.5", _decimal(rng, 0.1, 2.5)]).replace(
                "0.0", "0.1"
            )
            or "1.0"
        )
    if kind == "lambd":
        return pick(["0.5", "0.1", "0.2", "0.3", "1.0", "0.25", _decimal(rng, 0.05, 1.2)])
    if kind == "low":
        return pick(
            ["-1.0", "-2.0", "-0.5", "0.0", "-1", "0", "-3.0", "-0.1", _decimal(rng, -2.5, -0.1)]
        )
    if kind == "high":
        return pick(["1.0", "2.0", "0.5", "6.0", "1", "3.0", "0.9", _decimal(rng, 0.3, 4.0)])
    if kind == "beta":
        return pick(["1.0", "2.0", "0.5", "1.5", "2", _decimal(rng, 0.3, 3.0)])
    if kind == "twenty":
        return pick(["20.0", "20", "10.0", "15.0"])
    if kind == "quick":
        return pick(["1.702", "1.702", "1.5", "2.0", "1.1", _decimal(rng, 0.5, 2.5)])
    if kind == "small":
        return pick(["0.0", "0.1", "-0.1", "1.0", "-1.0", "0", "20.0", _decimal(rng, -1.0, 1.0)])
    if kind == "shift":
        return pick(
            [
                "1.0",
                "0.5",
                "2.0",
                "0.1",
                "3.0",
                "1",
                "2",
                "0.01",
                "-0.5",
                "0.25",
                "5.0",
                _decimal(rng, -2.0, 3.0),
                _decimal(rng, 0.01, 2.0),
            ]
        )
    if kind == "scale":
        return pick(
            [
                "2.0",
                "0.5",
                "0.1",
                "1.5",
                "3.0",
                "2",
                "0.125",
                "0.25",
                "10.0",
                "4.0",
                "0.7",
                "-1.0",
                "0.01",
                "1.702",
                "3.14",
                _decimal(rng, 0.05, 3.0),
                _decimal(rng, 0.1, 2.0),
            ]
        )
    if kind == "divisor":
        return pick(
            [
                "2.0",
                "10.0",
                "4.0",
                "0.5",
                "3.0",
                "2",
                "8.0",
                "1.5",
                "5.0",
                "0.7",
                "0.1",
                "8",
                "6",
                _decimal(rng, 0.2, 5.0),
            ]
        )
    if kind == "exponent":
        return pick(["2", "3", "2.0", "3.0", "4"])
    if kind == "exponent_pos":
        return pick(["2", "0.5", "3", "1.5", "2.0", "0.25", "-0.5"])
    if kind == "eps":
        return pick(
            [
                "1e-05",
                "1e-06",
                "1e-08",
                "1e-05",
                "1e-06",
                "1e-12",
                "0.0001",
                "0.001",
                "1e-07",
                "1e-10",
            ]
        )
    if kind == "eps_safe":
        return pick(["1e-05", "1e-06", "1e-05", "1e-06", "1e-08", "0.0001", "0.001", "1e-07"])
    if kind == "cut":
        return pick(["0", "0.5", "0.0", "1.0", "0.1", "0.2", "-0.5", _decimal(rng, -1.0, 1.0)])
    if kind == "margin":
        return pick(["1.0", "0.5", "0.2", "2.0", "0.3", "0.1", "1.5", _decimal(rng, 0.1, 2.0)])
    if kind == "weight":
        return pick(["0.5", "0.1", "0.9", "0.3", "0.7", "0.25", "2.0", _decimal(rng, 0.05, 0.95)])
    raise ValueError(f"no such kind of value: {kind}")
