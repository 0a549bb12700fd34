"""Chains of elementwise operators: written into the problem's forward and returned as `PointOp`s.

`sample_chain` is what families put before or after their core. It works on the builder's current value
(`Builder.cur`, `Builder.shape`) and keeps track of which values are sensible (log wants positive ones).
"""

import random
from collections.abc import Sequence

from dice.data.synth import values
from dice.data.synth.builder import Builder
from dice.data.synth.cuda import Operand, PointOp
from dice.data.synth.scalar_ops import Range as Range
from dice.data.synth.scalar_ops import scalar_op, tensor_op
from dice.data.synth.unary_ops import ACTIVATIONS, MATH, Unary

_ORDER = {"any": 0, "nonneg": 1, "pos": 2}


def sample_chain(
    b: Builder, count: int, known: Range | None = None, *, extra_tensors: bool = True
) -> list[PointOp]:
    """Apply `count` random elementwise operators to the current value.

    `extra_tensors=False` keeps to operators without further tensor operands.
    """
    if b.bare:
        return []
    known = known if known is not None else Range()
    ops: list[PointOp] = []
    for _ in range(count):
        ops += sample_point(b, known, extra_tensors=extra_tensors)
    return ops


def sample_point(b: Builder, known: Range, *, extra_tensors: bool = True) -> list[PointOp]:
    """Apply one random elementwise operator (a residual may take two `PointOp`s)."""
    rng = b.rng
    kinds = ["activation", "math", "scalar", "tensor"]
    kind = rng.choices(kinds, [42, 14, 27, 17 if extra_tensors and b.shape else 0])[0]
    if extra_tensors and len(b.shape) >= 2 and rng.random() < 0.02:
        return [prelu(b, known)]
    if kind == "activation":
        return [unary(b, pick_unary(rng, ACTIVATIONS, known), known)]
    if kind == "math":
        return [unary(b, pick_unary(rng, MATH, known), known)]
    if kind == "scalar":
        return [scalar_op(b, known)]
    return tensor_op(b, known)


def pick_unary(rng: random.Random, table: Sequence[Unary], known: Range) -> Unary:
    """A weighted choice among the operators that suit the values."""
    fit = [
        u for u in table if _ORDER[known.sign] >= _ORDER[u.needs] and not (u.grows and known.large)
    ]
    return rng.choices(fit, [u.weight for u in fit])[0]


def unary(b: Builder, op: Unary, known: Range) -> PointOp:
    """Write one operator of one tensor in a random spelling."""
    rng = b.rng
    known.sign = op.gives
    known.large = known.large or op.grows
    calls = [p.default for p in op.params]
    hint = op.hint or rng.choice(["activated", "act", op.name.split("_")[0] + "_out", op.name])
    weights = [
        (60 if op.spellings else 0),
        (70 if op.with_params else 0),
        (45 if op.modules else 0),
    ]
    way = "module" if b.in_sequential else rng.choices(["plain", "params", "module"], weights)[0]
    if way == "plain":
        text = rng.choice(op.spellings)
        if text.startswith(("F.", "torch.")) and rng.random() < 0.025 and text.count("(") == 1:
            attr = b.module([op.name, f"{op.name}_fn", "act"], text.split("(")[0])
            b.apply(attr + "(" + text.split("(", 1)[1], hint)
        else:
            b.apply(text, hint)
    elif way == "params":
        calls = [b.hyper(p.names, values.draw(rng, p.values)) for p in op.params]
        b.apply(rng.choice(op.with_params), hint, **{f"p{k}": c for k, c in enumerate(calls)})
    else:
        ctor = rng.choice(op.modules)
        for k, p in enumerate(op.params):
            if f"{{p{k}}}" in ctor:
                ctor = ctor.replace(f"{{p{k}}}", b.ctor_expr(p.names, values.draw(rng, p.values)))
        if not op.params and rng.random() < 0.08 and not b.in_sequential:
            b.apply(f"{ctor}({{x}})", hint)
        else:
            if (
                ctor.endswith("()")
                and op.name in ("relu", "relu6", "silu", "leaky_relu", "elu")
                and rng.random() < 0.1
            ):
                safe = not (b.views or b.in_sequential or b.is_input(b.cur) or b.cur in b.kept)
                ctor = ctor[:-1] + f"inplace={safe and rng.random() < 0.8})"
            attr = b.module(op.attrs or (op.name,), ctor)
            b.apply(f"{attr}({{x}})", hint)
            calls = [f"{attr}.{p.attr}" for p in op.params]
    name = op.name
    return PointOp(
        name=name, code=op.code, operands=tuple(Operand(kind="scalar", call=c) for c in calls)
    )


def prelu(b: Builder, known: Range) -> PointOp:
    """PReLU with one learned slope, or one per channel."""
    rng = b.rng
    known.sign = "any"
    per_channel = rng.random() < 0.5
    attr = b.module(
        ("prelu", "act", "activation"),
        f"nn.PReLU({rng.choice(['', 'num_parameters=']) + b.ctor_dim(b.shape[1]) if per_channel else ''})",
    )
    b.apply(f"{attr}({{x}})", "activated")
    return PointOp(
        name="prelu",
        code=("v = v > 0.0f ? v : {0} * v;",),
        operands=(Operand(kind="channel", call=f"{attr}.weight"),),
    )
