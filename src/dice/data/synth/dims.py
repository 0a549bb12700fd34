"""How people say which dimension: a literal, an attribute, negative or not."""

from dataclasses import dataclass

from dice.data.synth.builder import Builder

DIM_ARGS = ("dim", "dim", "dim", "axis", "reduce_dim", "reduction_dim", "softmax_dim", "d")


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """A chosen dimension."""

    index: int
    """Non-negative."""
    expr: str
    """Its expression in forward, on both sides."""


def pick_axis(
    b: Builder, *, last: float = 0.5, names: tuple[str, ...] = DIM_ARGS, attribute: float = 0.42
) -> Axis:
    """A dimension of the current value, the last one with probability `last` (never the first of several
    where another choice is as good)."""
    rng, rank = b.rng, len(b.shape)
    if rank == 1:
        index = 0
    elif rng.random() < last:
        index = rank - 1
    elif rank >= 3 and rng.random() < 0.75:
        index = 1
    else:
        index = rng.randrange(rank)
    return Axis(index=index, expr=axis_expr(b, index, names=names, attribute=attribute))


def axis_expr(
    b: Builder, index: int, *, names: tuple[str, ...] = DIM_ARGS, attribute: float = 0.42
) -> str:
    """An expression for a dimension."""
    rng, rank = b.rng, len(b.shape)
    negative = rng.random() < (0.6 if index == rank - 1 else 0.15)
    value = str(index - rank if negative else index)
    if rng.random() < attribute:
        return b.hyper(names, value, literal=False)
    return value
