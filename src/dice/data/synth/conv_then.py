"""Family: a convolution with an operator behind it that needs a kernel of its own."""

from collections.abc import Callable

from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.conv import TUPLES, set_shape, start_input, write_conv
from dice.data.synth.conv_cuda import conv_function
from dice.data.synth.conv_spec import (
    BATCH_NAMES,
    draw_channels,
    draw_form,
    draw_settings,
    named_dim,
    spatial_dims,
)
from dice.data.synth.norm import batch_norm, group_norm
from dice.data.synth.pooling import write_global
from dice.data.synth.pooling_cuda import global_mean_function, pool_function
from dice.data.synth.reduce import add_reduction
from dice.data.synth.reduce_spell import KINDS
from dice.data.synth.softmax import add_softmax


def build_conv_then(b: Builder) -> None:
    """A convolution, perhaps an operator, then pooling, a norm, a global mean, a softmax or a reduction."""
    rng = b.rng
    nd = rng.choices([1, 2, 3], [25, 60, 15])[0]
    transposed = rng.random() < 0.3
    settings = draw_settings(rng, nd, transposed=transposed)
    form = draw_form(b)
    in_dim = draw_channels(b, settings, literal=False, out=False)
    batch = named_dim(b, "batch", BATCH_NAMES, rng.choice((16, 32, 64, 128, 8)), rng.choice((1, 2)))
    spatial = spatial_dims(b, settings, nd, transposed=transposed)
    start_input(b, [batch, in_dim, *spatial])
    lead = b.lead()
    calls, out_dim = write_conv(b, settings, in_dim, form, literal=False, transposed=transposed)
    set_shape(b, settings, batch, out_dim, spatial, transposed=transposed)
    epilogue = sample_chain(b, rng.choices([0, 1], [50, 50])[0], Range(), extra_tensors=False)
    b.call(conv_function(nd, [lead, *calls], transposed=transposed, epilogue=epilogue))
    then = rng.choices(["pool", "global", "softmax", "reduce"], [35 if nd < 3 else 0, 25, 15, 25])[
        0
    ]
    if then == "pool":
        _two_pool(b, nd)
    elif then == "global":
        keep = write_global(b, nd)
        lead = b.lead()
        b.shape = (*b.shape[:2], *(b.dim("one", 1, 1) for _ in range(nd))) if keep else b.shape[:2]
        b.call(global_mean_function(nd, lead, keep=keep))
    elif then == "norm":
        grouped = settings.groups == 1 and out_dim is not in_dim and rng.random() < 0.5
        (group_norm if grouped else batch_norm)(b, [], rng.choice([0, 0, 1]), "tree")
    elif then == "softmax":
        add_softmax(b, [], 0)
    else:
        add_reduction(b, [], kinds={k: w for k, w in KINDS.items() if k != "prod"})
    b.schedule = "direct"


def _two_pool(b: Builder, nd: int) -> None:
    """Pooling of size two behind the convolution, whose output is at least two wide."""
    rng = b.rng
    kind = rng.choice(["max", "max", "avg"])
    lead = b.lead()
    k = "2" if rng.random() < 0.6 else b.ctor_expr(["pool_kernel_size", "pool_size"], "2", 0.2)
    stride = rng.choice(["", "", ", stride=2", ", 2"])
    tup = TUPLES[nd]
    plain = ["0", "1"] if kind == "max" else ["0"]
    if rng.random() < 0.3:
        b.apply(f"F.{kind}_pool{nd}d({{x}}, 2{stride})", "pooled")
        vectors = [f"{tup}({v})" for v in ("2", "2", *plain)]
    else:
        size = rng.choice([k, f"kernel_size={k}"]) if stride != ", 2" else k
        attr = b.module(
            (f"{kind}_pool", f"{kind}pool", "pool", "pool", f"{kind}_pool{nd}d"),
            f"nn.{kind.capitalize()}Pool{nd}d({size}{stride})",
        )
        b.apply(f"{attr}({{x}})", "pooled")
        fields = ["kernel_size", "stride", "padding", *(["dilation"] if kind == "max" else [])]
        vectors = [f"{tup}({attr}.{f})" for f in fields]
    b.candidate_import(f"from torch.nn.modules.utils import {tup}")
    b.shape = (
        *b.shape[:2],
        *(b.dim(d.kind, int(d.full) // 2, int(d.small) // 2) for d in b.shape[2:]),
    )
    b.call(pool_function(kind, nd, lead, vectors))


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("conv_then", 5.0, build_conv_then),
)
