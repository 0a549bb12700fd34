"""Elementwise operators with a number or a second tensor."""

from dataclasses import dataclass

from dice.data.synth import values
from dice.data.synth.builder import Builder, Dim
from dice.data.synth.cuda import Operand, PointOp


@dataclass(slots=True)
class Range:
    """What is known of the current values."""

    sign: str = "any"
    """"any", "nonneg" or "pos"."""
    large: bool = False


_ADD = (
    "shift",
    "offset",
    "bias",
    "add_value",
    "constant",
    "value",
    "c",
    "beta",
    "delta",
    "bias_value",
    "addend",
    "b",
    "add_const",
    "k",
    "constant_value",
)
_MUL = (
    "scale",
    "scaling_factor",
    "scale_factor",
    "alpha",
    "factor",
    "multiplier",
    "gain",
    "gamma",
    "s",
    "a",
    "coef",
    "mul_value",
    "multiply_factor",
    "w",
    "scaling",
    "k",
)
_DIV = (
    "divisor",
    "divide_by",
    "temperature",
    "divide_value",
    "denom",
    "T",
    "tau",
    "norm_factor",
    "scale",
    "d",
    "div",
)
_SUB = (
    "subtract_value",
    "offset",
    "shift",
    "sub_value",
    "mean",
    "center",
    "bias",
    "c",
    "zero_point",
)


def scalar_op(b: Builder, known: Range) -> PointOp:
    """An operator between the value and a number."""
    rng = b.rng
    kind = rng.choices(
        [
            "add",
            "mul",
            "sub",
            "div",
            "rsub",
            "clamp",
            "clamp_min",
            "clamp_max",
            "pow",
            "rdiv",
            "threshold_where",
        ],
        [
            26,
            34,
            12,
            18,
            6,
            14,
            6,
            6,
            4 if not known.large else 0,
            3 if known.sign == "pos" else 0,
            3,
        ],
    )[0]
    if kind in ("add", "mul") and rng.random() < 0.02 and b.shape:
        value = values.draw(rng, "scale")
        s = b.input(("s", "alpha", "scalar", "c", "scale", "value"), (), value)
        sign = "+" if kind == "add" else "*"
        b.apply(rng.choice([f"{{a}} {sign} {{s}}", f"{{s}} {sign} {{a}}"]), "scaled", s=s)
        known.sign = "any"
        return _scalar(kind, f"v = v {sign} {{0}};", s)
    if kind in ("mul", "div") and rng.random() < 0.05 and b.shape and not b.in_sequential:
        return size_scale(b, kind, known)
    if kind == "add":
        s = b.hyper(_ADD, values.draw(rng, "shift"))
        b.apply(
            rng.choice(
                [
                    "{a} + {s}",
                    "{a} + {s}",
                    "{a} + {s}",
                    "{s} + {a}",
                    "torch.add({x}, {s})",
                    "{a}.add({s})",
                ]
            ),
            "shifted",
            s=s,
        )
        known.sign = "any"
        return _scalar("add", "v = v + {0};", s)
    if kind == "mul":
        s = b.hyper(_MUL, values.draw(rng, "scale"))
        b.apply(
            rng.choice(
                [
                    "{a} * {s}",
                    "{a} * {s}",
                    "{a} * {s}",
                    "{s} * {a}",
                    "{s} * {a}",
                    "torch.mul({x}, {s})",
                    "{a}.mul({s})",
                    "torch.multiply({x}, {s})",
                ]
            ),
            "scaled",
            s=s,
        )
        known.sign = "any"
        return _scalar("mul", "v = v * {0};", s)
    if kind == "sub":
        s = b.hyper(_SUB, values.draw(rng, "shift"))
        b.apply(
            rng.choice(
                [
                    "{a} - {s}",
                    "{a} - {s}",
                    "{a} - {s}",
                    "torch.sub({x}, {s})",
                    "{a}.sub({s})",
                    "torch.subtract({x}, {s})",
                ]
            ),
            "centered",
            s=s,
        )
        known.sign = "any"
        return _scalar("sub", "v = v - {0};", s)
    if kind == "rsub":
        s = b.hyper(_SUB, values.draw(rng, "shift"))
        b.apply("{s} - {a}", "flipped", s=s)
        known.sign = "any"
        return _scalar("rsub", "v = {0} - v;", s)
    if kind == "div":
        s = b.hyper(_DIV, values.draw(rng, "divisor"))
        b.apply(
            rng.choice(
                ["{a} / {s}", "{a} / {s}", "{a} / {s}", "torch.div({x}, {s})", "{a}.div({s})"]
            ),
            "scaled",
            s=s,
        )
        return _scalar("div", "v = v / {0};", s)
    if kind == "rdiv":
        s = b.hyper(_MUL, values.draw(rng, "divisor"))
        b.apply("{s} / {a}", "inverse", s=s)
        return _scalar("rdiv", "v = {0} / v;", s)
    if kind == "pow":
        s = b.hyper(
            ("exponent", "p", "power", "exp", "gamma"),
            values.draw(rng, "exponent_pos" if known.sign == "pos" else "exponent"),
        )
        b.apply(rng.choice(["torch.pow({x}, {s})", "{a}.pow({s})", "{a} ** {s}"]), "powered", s=s)
        known.large, known.sign = True, "any"
        if s in _FIXED_POWERS:
            # one text for one meaning: the same spellings are those of square and cube
            return PointOp(name=_FIXED_POWERS[s][0], code=(_FIXED_POWERS[s][1],))
        return _scalar("pow", "v = powf(v, {0});", s)
    if kind == "threshold_where":
        s = b.hyper(("threshold", "thr", "cutoff", "t"), values.draw(rng, "cut"))
        t = rng.choice(
            [
                "torch.where({n} > {s}, {n}, torch.zeros_like({n}))",
                "torch.where({n} > {s}, {n}, 0.0)",
                "{n} * ({n} > {s})",
                "{n} * ({n} > {s}).float()",
                "{n}.masked_fill({n} <= {s}, 0.0)",
            ]
        )
        b.apply(t, "masked", s=s)
        known.sign = "any"
        if s in ("0", "0.0"):
            return PointOp(name="relu", code=(RELU,))
        return _scalar("threshold", "v = v > {0} ? v : 0.0f;", s)
    names = rng.choice(
        [
            ("min_val", "max_val"),
            ("min_val", "max_val"),
            ("lower", "upper"),
            ("clamp_min", "clamp_max"),
            ("lo", "hi"),
            ("min_value", "max_value"),
            ("clip_min", "clip_max"),
            ("low", "high"),
        ]
    )
    known.sign = "any"
    if kind == "clamp":
        lo, hi = (
            b.hyper([names[0]], values.draw(rng, "low")),
            b.hyper([names[1]], values.draw(rng, "high")),
        )
        b.apply(
            rng.choice(
                [
                    "torch.clamp({x}, min={lo}, max={hi})",
                    "torch.clamp({x}, min={lo}, max={hi})",
                    "torch.clamp({x}, {lo}, {hi})",
                    "{a}.clamp({lo}, {hi})",
                    "{a}.clamp(min={lo}, max={hi})",
                    "torch.clip({x}, {lo}, {hi})",
                ]
            ),
            "clamped",
            lo=lo,
            hi=hi,
        )
        return PointOp(
            name="clamp",
            code=("v = fminf(fmaxf(v, {0}), {1});",),
            operands=(Operand(kind="scalar", call=lo), Operand(kind="scalar", call=hi)),
        )
    if kind == "clamp_min":
        s = b.hyper([names[0], "min_value", "floor"], values.draw(rng, "low"))
        b.apply(
            rng.choice(
                [
                    "torch.clamp({x}, min={s})",
                    "{a}.clamp(min={s})",
                    "torch.clamp_min({x}, {s})",
                    "{a}.clamp_min({s})",
                    "torch.max({x}, torch.tensor({s}))",
                    "torch.maximum({x}, torch.tensor({s}))",
                ]
            ),
            "clamped",
            s=s,
        )
        if s in ("0", "0.0"):
            return PointOp(name="relu", code=(RELU,))
        return _scalar("clamp_min", "v = fmaxf(v, {0});", s)
    s = b.hyper([names[1], "max_value", "constant_value", "cap"], values.draw(rng, "high"))
    b.apply(
        rng.choice(
            [
                "torch.clamp({x}, max={s})",
                "{a}.clamp(max={s})",
                "torch.clamp_max({x}, {s})",
                "torch.min({x}, torch.tensor({s}))",
                "torch.minimum({x}, torch.tensor({s}))",
            ]
        ),
        "clamped",
        s=s,
    )
    return _scalar("clamp_max", "v = fminf(v, {0});", s)


RELU = "v = fmaxf(v, 0.0f);"
_FIXED_POWERS = {
    "2": ("square", "v = v * v;"),
    "2.0": ("square", "v = v * v;"),
    "3": ("cube", "v = v * v * v;"),
    "3.0": ("cube", "v = v * v * v;"),
}


def size_scale(b: Builder, kind: str, known: Range) -> PointOp:
    """A factor made of a size: an attribute computed in `__init__`, or computed in forward."""
    rng = b.rng
    known.sign = "any"
    root = rng.choice(["{d} ** -0.5", "1.0 / math.sqrt({d})", "1 / math.sqrt({d})"])
    if kind == "div":
        root = rng.choice(["math.sqrt({d})", "{d} ** 0.5"])
    sign = "*" if kind == "mul" else "/"
    if b.cur.isidentifier() and b.is_input(b.cur) and rng.random() < 0.4:
        size = rng.choice([f"{b.cur}.size(-1)", f"{b.cur}.shape[-1]"])
        s = root.replace("{d}", size)
        b.keep(b.cur)
        b.apply("{a} " + sign + " {s}", "scaled", s=f"({s})" if " / " in s else s)
    else:
        arg = b.ctor_dim(b.shape[-1])
        value = root.replace("{d}", arg)
        s = b.attribute(("scale", "scaling", "scale_factor", "norm_factor", "factor"), value)
        b.apply("{a} " + sign + " {s}", "scaled", s=s)
    return _scalar(kind, f"v = v {sign} {{0}};", s)


def _scalar(name: str, code: str, call: str) -> PointOp:
    return PointOp(name=name, code=(code,), operands=(Operand(kind="scalar", call=call),))


_BINARY: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    (
        "add",
        "v = v + {0};",
        ("{a} + {t}", "{a} + {t}", "{a} + {t}", "{t} + {a}", "torch.add({x}, {t})"),
        5.0,
    ),
    (
        "mul",
        "v = v * {0};",
        ("{a} * {t}", "{a} * {t}", "{a} * {t}", "{t} * {a}", "torch.mul({x}, {t})"),
        4.0,
    ),
    ("sub", "v = v - {0};", ("{a} - {t}", "{a} - {t}", "torch.sub({x}, {t})"), 1.6),
    ("rsub", "v = {0} - v;", ("{t} - {a}",), 0.5),
    ("maximum", "v = fmaxf(v, {0});", ("torch.maximum({x}, {t})", "torch.max({x}, {t})"), 0.6),
    ("minimum", "v = fminf(v, {0});", ("torch.minimum({x}, {t})", "torch.min({x}, {t})"), 0.5),
)


def tensor_op(b: Builder, known: Range) -> list[PointOp]:
    """An operator between the value and another tensor: full, broadcast, or a parameter."""
    rng = b.rng
    name, code, spellings, _ = rng.choices(_BINARY, [row[3] for row in _BINARY])[0]
    known.sign = "any"
    kind = rng.choices(["same", "broadcast_input", "parameter"], [45, 8, 47])[0]
    hint = {"add": "summed", "mul": "scaled"}.get(name, name + "_out")
    if kind == "same" and b.shape:
        t = b.input("y" if name != "mul" else rng.choice(["gate", "y"]), b.shape)
        b.apply(rng.choice(spellings), hint, t=t)
        return [
            PointOp(
                name=name, code=(code,), operands=(Operand(kind="same", call=f"{t}.contiguous()"),)
            )
        ]
    if kind == "parameter" and rng.random() < 0.09:
        value = values.draw(rng, "scale")
        t = b.parameter(
            ("alpha", "scale", "gamma", "beta", "gain", "weight", "s", "temperature", "bias"),
            "1",
            rng.choice(
                [
                    f"torch.tensor({value})",
                    f"torch.tensor({value})",
                    f"torch.tensor([{value}])",
                    "torch.ones(1)",
                    "torch.randn(1)",
                    f"torch.ones(1) * {value}",
                    f"torch.full((1,), {value})",
                ]
            ),
        )
        b.apply(rng.choice(spellings), hint, t=t)
        return [PointOp(name=name, code=(code,), operands=(Operand(kind="broadcast", call=t),))]
    dims, shape_of = broadcast_shape(b)
    if kind == "broadcast_input" and all(isinstance(d, Dim) for d in dims):
        t = b.input("row", [d for d in dims if isinstance(d, Dim)])
        call = f"{t}.contiguous()"
    else:
        names = {
            "add": ("bias", "b", "shift", "beta", "bias", "offset", "add_param", "pos_embed"),
            "mul": ("weight", "scale", "gamma", "g", "gain", "scaling", "w", "scaling_factor"),
        }.get(name, ("param", "bias", "weight", "offset", "threshold"))
        t = call = b.parameter(names, shape_of)
    b.apply(rng.choice(spellings), hint, t=t)
    return [PointOp(name=name, code=(code,), operands=(Operand(kind="broadcast", call=call),))]


def broadcast_shape(b: Builder) -> tuple[list[Dim | int], str]:
    """A shape that broadcasts against the current value, and its expression inside `__init__`."""
    rng, shape = b.rng, b.shape
    rank = len(shape)
    if rank >= 3 and shape[1].kind in ("channels", "heads", "groups"):
        axis = 1 if rng.random() < 0.9 else rank - 1
    else:
        axis = rank - 1 if rng.random() < 0.92 or rank < 2 else max(1, rank - 2)
    if rng.random() < 0.04:
        return [], rng.choice(["1", "1", "(1,)"])
    if axis == rank - 1 and rank >= 3 and rng.random() < 0.07 and len(set(map(id, shape))) == rank:
        both = f"{b.ctor_dim(shape[-2])}, {b.ctor_dim(shape[-1])}"
        return [shape[-2], shape[-1]], rng.choice([both, f"1, {both}"])
    dims: list[Dim | int] = [shape[axis]] + [1] * (rank - 1 - axis)
    ones = ["1"] * (rank - 1 - axis)
    lead = ["1"] * axis if rng.random() < (0.45 if ones else 0.12) else []
    whole = [*lead, "%s", *ones]
    form = rng.random()
    if ones and form < 0.5:
        text = "(" + ", ".join(whole) % shape[axis].token + ")"
        return dims, b.ctor_value(
            rng.choice(
                [
                    ("bias_shape",),
                    ("bias_shape", "param_shape", "scale_shape", "shape", "weight_shape"),
                ]
            ),
            text,
        )
    if not ones and form < 0.12:
        return dims, b.ctor_value(
            ("bias_shape", "shape", "normalized_shape"), f"({shape[axis].token},)"
        )
    arg = b.ctor_dim(shape[axis])
    return dims, ", ".join(whole) % arg
