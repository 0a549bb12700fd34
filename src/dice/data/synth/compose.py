"""Family: two or three cores in a row (norms, softmax, scans, reductions), with elementwise operators between."""

from collections.abc import Callable

from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, pick_unary, sample_chain, unary
from dice.data.synth.cuda import Operand, PointOp
from dice.data.synth.layer_norm import handmade_layer_norm, layer_norm
from dice.data.synth.norm import (
    batch_norm,
    group_norm,
    rms_norm_module,
)
from dice.data.synth.pointwise import point_function
from dice.data.synth.reduce import add_reduction
from dice.data.synth.rowstat import add_stat
from dice.data.synth.shapes import draw_shape
from dice.data.synth.softmax import add_softmax, softmax_function
from dice.data.synth.unary_ops import ACTIVATIONS

_REDUCTIONS = {
    "sum": 14.0,
    "mean": 16.0,
    "max": 12.0,
    "min": 5.0,
    "argmax": 5.0,
    "logsumexp": 7.0,
    "norm2": 3.0,
    "std": 1.0,
    "var": 1.0,
}


def _post_count(b: Builder) -> int:
    return b.rng.choices([0, 1], [60, 40])[0]


def _norm(b: Builder, pre: list[PointOp]) -> None:
    rng, rank = b.rng, len(b.shape)
    channels = rank >= 3 and b.shape[1].kind == "channels"
    options: list[tuple[Callable[..., None], float]] = [
        (layer_norm, 6),
        (rms_norm_module, 2),
        (handmade_layer_norm, 2),
    ]
    if channels:
        options = [(batch_norm, 5), (group_norm, 5), (layer_norm, 2)]
    elif rank == 2:
        options.append((batch_norm, 3))
    norm = rng.choices([o[0] for o in options], [o[1] for o in options])[0]
    norm(b, pre, _post_count(b), "tree")


def _step(b: Builder, pre: list[PointOp]) -> None:
    kind = b.rng.choices(["norm", "softmax", "stat"], [50, 27, 23])[0]
    if kind == "norm":
        _norm(b, pre)
    elif kind == "softmax":
        add_softmax(b, pre, _post_count(b))
    else:
        add_stat(b, pre, _post_count(b), Range())


def build_compose(b: Builder) -> None:
    """One or two shape-preserving cores, then a core, a reduction or a residual."""
    rng = b.rng
    dims = draw_shape(b, ranks=(2, 2, 3, 4), layouts=["rows", "tokens", "image", "signal"])
    x = b.input("x", dims)
    b.start(x, dims)
    residual = rng.random() < 0.18
    if residual:
        b.keep(x)
    pre = sample_chain(b, rng.choices([0, 1], [65, 35])[0])
    _step(b, pre)
    if rng.random() < 0.22:
        _step(b, [])
    if residual:
        y = f"{x}.contiguous()"
        b.apply(rng.choice(["{a} + {y}", "{y} + {a}"]), "out", y=x)
        ops = [
            PointOp(name="add", code=("v = v + {0};",), operands=(Operand(kind="same", call=y),))
        ]
        ops += sample_chain(b, rng.choices([0, 1], [75, 25])[0])
        point_function(b, ops)
    elif rng.random() < 0.6:
        add_reduction(b, [], kinds=_REDUCTIONS)
    else:
        _step(b, [])
    b.schedule = "several"


def build_sequential(b: Builder) -> None:
    """Modules inside one nn.Sequential: activations, norms, softmax."""
    rng = b.rng
    dims = draw_shape(b, ranks=(2, 2, 3, 4), layouts=["rows", "tokens", "image", "signal"])
    x = b.input("x", dims)
    b.start(x, dims)
    outside = sample_chain(b, 1) if rng.random() < 0.2 else []
    b.begin_sequential()
    known = Range()
    modules = [u for u in ACTIVATIONS if u.modules]
    pre = list(outside)
    pre += [
        unary(b, pick_unary(rng, modules, known), known)
        for _ in range(rng.choices([0, 1, 2], [40, 45, 15])[0])
    ]
    kind = rng.choices(["norm", "softmax", "none"], [55, 20, 25])[0]
    if kind == "norm":
        rank = len(dims)
        channels = rank >= 3 and dims[1].kind == "channels"
        options: list[Callable[..., None]] = [layer_norm, rms_norm_module, layer_norm]
        if channels:
            options = [batch_norm, group_norm]
        elif rank == 2:
            options.append(batch_norm)
        rng.choice(options)(b, pre, 0, "tree")
        pre = []
    elif kind == "softmax":
        d = rng.choice(["-1", "1", "-1"])
        attr = b.module((), f"nn.Softmax(dim={d})")
        softmax_function(b, "softmax", f"{attr}.dim", pre, [], "two_pass")
        pre = []
    count = rng.choices([0, 1, 2], [45, 40, 15])[0] if kind != "none" else max(0, 2 - len(pre))
    pre += [unary(b, pick_unary(rng, modules, known), known) for _ in range(count)]
    b.end_sequential()
    if rng.random() < 0.15:
        pre += sample_chain(b, 1)
    if pre:
        point_function(b, pre)
    b.schedule = "several" if len(b.functions) > 1 else "plain"
