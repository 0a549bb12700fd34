"""Families: linear layers, small stacks of them, and linear layers followed by a norm, a softmax or a reduction."""

from collections.abc import Callable, Sequence

from dice.data.synth.builder import Builder, Dim
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.conv_spec import BATCH_NAMES, named_dim
from dice.data.synth.cuda import PointOp
from dice.data.synth.layer_norm import layer_norm
from dice.data.synth.matmul import chain_count, draw_schedule
from dice.data.synth.matmul_cuda import matmul_function
from dice.data.synth.norm import batch_norm
from dice.data.synth.reduce import add_reduction
from dice.data.synth.reduce_spell import KINDS
from dice.data.synth.softmax import add_softmax

_IN_NAMES = ("in_features",) * 6 + (
    "input_size",
    "input_dim",
    "in_dim",
    "dim",
    "d_model",
    "hidden_size",
    "num_features",
    "D_in",
)
_OUT_NAMES = ("out_features",) * 6 + (
    "output_size",
    "output_dim",
    "out_dim",
    "num_classes",
    "hidden_size",
    "d_ff",
    "D_out",
    "units",
)
_HIDDEN_NAMES = (
    "hidden_size",
    "hidden_dim",
    "hidden_features",
    "hidden",
    "d_ff",
    "mlp_dim",
    "inner_dim",
    "hidden_layer_size",
)
_ATTRS = ("linear",) * 6 + (
    "fc",
    "fc",
    "fc1",
    "proj",
    "linear1",
    "dense",
    "layer",
    "gemm",
    "linear_layer",
)
_FULL_FEATURES = (
    256,
    512,
    1024,
    2048,
    4096,
    128,
    64,
    8192,
    768,
    10,
    100,
    1000,
    3072,
    32,
    16,
    20,
    50,
)
_SMALL_FEATURES = (10, 17, 33, 24, 40, 65, 20, 7)
_LITERAL_FEATURES = (10, 5, 16, 20, 32, 64, 50, 100)
_LEADS = (
    ("batch",),
    ("batch",),
    ("batch",),
    ("batch", "seq"),
    ("batch", "seq"),
    ("batch", "dim1", "dim2"),
)


def features(b: Builder, names: Sequence[str]) -> Dim:
    """A number of features, the constant named from the pool; now and then a literal of the layer."""
    if b.style.hyper == "literal" and b.rng.random() < 0.4:
        value = b.rng.choice(_LITERAL_FEATURES)
        return named_dim(b, "features", names, value, value)
    return named_dim(
        b, "features", names, b.rng.choice(_FULL_FEATURES), b.rng.choice(_SMALL_FEATURES)
    )


def feature_text(b: Builder, dim: Dim) -> str:
    """A number of features inside `__init__`."""
    return dim.full if dim.full == dim.small else b.ctor_dim(dim, [b.const_name(dim).lower()])


def start_rows(b: Builder) -> list[Dim]:
    """Make a fresh input of rank two to four the current value; returns its sizes."""
    rng = b.rng
    dims = []
    for kind in rng.choice(_LEADS):
        if kind == "batch":
            dims.append(
                named_dim(
                    b,
                    kind,
                    BATCH_NAMES,
                    rng.choice((128, 64, 16, 32, 1024, 256, 512, 4, 10)),
                    rng.choice((2, 3, 5, 9)),
                )
            )
        else:
            dims.append(b.dim(kind, rng.choice((128, 64, 512, 100, 32, 16)), rng.choice((3, 5, 7))))
    dims.append(features(b, _IN_NAMES))
    name = b.input("x", dims)
    b.start(name, dims)
    return dims


def write_linear(b: Builder, out: Dim, names: Sequence[str] = _ATTRS) -> list[str]:
    """Write a linear layer over the last dimension and apply it; returns the call's further arguments."""
    rng, inner = b.rng, b.shape[-1]
    a, o = feature_text(b, inner), feature_text(b, out)
    biased = rng.random() < 0.82
    way = rng.choices(["module", "functional", "split"], [84, 9, 7])[0]
    hint = rng.choice(["out", "linear_out", "h", "logits", "y"])
    if way == "functional":
        init = rng.choice(
            ["torch.randn({shape})", "torch.randn({shape}) * 0.02", "torch.randn({shape}) * 0.1"]
        )
        weight = b.parameter(["weight", "weight", "W", "w"], f"{o}, {a}", init)
        bias = (
            b.parameter(
                ["bias", "bias", "b"],
                o,
                rng.choice(["torch.zeros({shape})", "torch.randn({shape})"]),
            )
            if biased
            else "None"
        )
        if rng.random() < 0.7:
            b.apply(f"F.linear({{x}}, {weight}{f', {bias}' if biased else ''})", hint)
        else:
            t = rng.choice([".t()", ".T"])
            b.apply(f"torch.matmul({{x}}, {weight}{t}){f' + {bias}' if biased else ''}", hint)
        return [weight, bias]
    keyword = rng.random() < 0.06
    args = f"in_features={a}, out_features={o}" if keyword else f"{a}, {o}"
    if not biased:
        args += ", bias=False"
    elif rng.random() < 0.08:
        args += f", bias={b.ctor_arg(['bias'], 'True', rng.choice([None, 'True']))}"
    attr = b.module(names, f"nn.Linear({args})")
    if way == "split" and biased:
        form = rng.choice(
            [
                "F.linear({x}, {m}.weight, {m}.bias)",
                "torch.matmul({x}, {m}.weight.t()) + {m}.bias",
                "{a} @ {m}.weight.T + {m}.bias",
            ]
        )
        b.apply(form, hint, m=attr)
    else:
        b.apply(f"{attr}({{x}})", hint)
    return [f"{attr}.weight", f"{attr}.bias"]


def add_linear(
    b: Builder,
    out: Dim,
    count: int,
    *,
    names: Sequence[str] = _ATTRS,
    prologue: Sequence[PointOp] = (),
) -> None:
    """Write a linear layer with `count` elementwise operators fused behind it."""
    lead = b.lead()
    weights = write_linear(b, out, names)
    b.shape = (*b.shape[:-1], out)
    epilogue = sample_chain(b, count, Range())
    b.call(
        matmul_function(
            "linear", [lead, *weights], schedule=b.schedule, prologue=prologue, epilogue=epilogue
        )
    )


def build_linear(b: Builder) -> None:
    """One linear layer, elementwise operators before and after it."""
    rng = b.rng
    b.schedule = draw_schedule(rng)
    dims = start_rows(b)
    prologue = sample_chain(b, 1, Range(), extra_tensors=False) if rng.random() < 0.2 else []
    square = rng.random() < 0.12
    out = dims[-1] if square else features(b, _OUT_NAMES)
    add_linear(b, out, chain_count(rng, 0.25), prologue=prologue)


def build_mlp(b: Builder) -> None:
    """Two linear layers with an activation in between."""
    rng = b.rng
    b.schedule = rng.choice(["plain", "tile16"])
    start_rows(b)
    pair = rng.choice(
        [
            ("fc1", "fc2"),
            ("fc1", "fc2"),
            ("linear1", "linear2"),
            ("up_proj", "down_proj"),
            ("layer1", "layer2"),
            ("in_proj", "out_proj"),
        ]
    )
    add_linear(b, features(b, _HIDDEN_NAMES), 1, names=pair[:1])
    add_linear(b, features(b, _OUT_NAMES), rng.choices([0, 1], [75, 25])[0], names=pair[1:])


def build_linear_then(b: Builder) -> None:
    """A linear layer followed by a norm, a softmax or a reduction."""
    rng = b.rng
    b.schedule = rng.choice(["plain", "tile16", "tile16"])
    start_rows(b)
    lead = b.lead()
    out = features(b, _OUT_NAMES)
    weights = write_linear(b, out)
    b.shape = (*b.shape[:-1], out)
    b.call(matmul_function("linear", [lead, *weights], schedule=b.schedule))
    pre = sample_chain(b, rng.choices([0, 1], [60, 40])[0], Range(), extra_tensors=False)
    schedule = b.schedule
    way = rng.random()
    if way < 0.25:
        norm = (
            batch_norm
            if len(b.shape) == 2 and out.full != out.small and rng.random() < 0.6
            else layer_norm
        )
        norm(b, pre, rng.choice([0, 0, 1]), "tree")
    elif way < 0.55:
        add_softmax(b, pre)
    else:
        add_reduction(b, pre, kinds={k: w for k, w in KINDS.items() if k != "prod"})
    b.schedule = schedule


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("linear", 9.0, build_linear),
    ("mlp", 2.0, build_mlp),
    ("linear_then", 4.0, build_linear_then),
)
