"""Families: convolutions in one to three dimensions, with elementwise operators fused around them."""

from collections.abc import Callable, Sequence
from dataclasses import replace

from dice.data.synth.builder import Builder, Dim
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.conv_cuda import conv_function
from dice.data.synth.conv_spec import (
    BATCH_NAMES,
    SPATIAL,
    Settings,
    draw_channels,
    draw_form,
    draw_settings,
    join_tuple,
    named_dim,
    spatial_dims,
    write_module,
)
from dice.data.synth.pointwise import point_function

_FULL_BATCH = (16, 8, 4, 32, 64, 128, 1, 2, 10, 256)
_ATTRS = {
    False: (
        "conv",
        "conv",
        "conv",
        "conv{nd}d",
        "conv{nd}d",
        "conv1",
        "layer",
        "conv_layer",
        "convolution",
    ),
    True: (
        "conv_transpose",
        "conv_transpose",
        "conv_transpose{nd}d",
        "conv_transpose{nd}d",
        "deconv",
        "conv{nd}d_transpose",
        "conv",
        "upconv",
        "conv_t",
    ),
}
TUPLES = {1: "_single", 2: "_pair", 3: "_triple"}
"""PyTorch's helpers that make a tuple of a number, by the number of axes."""


def build_conv(b: Builder) -> None:
    """A convolution, elementwise operators before and after it."""
    build_one(b, transposed=False)


def build_one(b: Builder, *, transposed: bool) -> None:
    """A convolution in either direction."""
    rng = b.rng
    nd = rng.choices([1, 2, 3], [27, 46, 27])[0]
    settings = draw_settings(rng, nd, transposed=transposed)
    form = draw_form(b)
    literal = form == "literal" and rng.random() < 0.4
    in_dim = draw_channels(b, settings, literal=literal, out=False)
    batch = named_dim(b, "batch", BATCH_NAMES, rng.choice(_FULL_BATCH), rng.choice([1, 2, 3]))
    spatial = spatial_dims(b, settings, nd, transposed=transposed)
    start_input(b, [batch, in_dim, *spatial])
    prologue = sample_chain(b, 1, Range(), extra_tensors=False) if rng.random() < 0.12 else []
    lead = b.lead()
    functional = rng.random() < 0.08 and settings.groups != 0
    if functional:
        calls, out_dim = _write_functional(b, settings, in_dim, transposed=transposed)
    else:
        calls, out_dim = write_conv(
            b, settings, in_dim, form, literal=literal, transposed=transposed
        )
    set_shape(b, settings, batch, out_dim, spatial, transposed=transposed)
    epilogue = sample_chain(b, rng.choices([0, 1, 2, 3], [56, 22, 15, 7])[0], Range())
    schedule = "direct"
    if not transposed and settings.groups == 1 and rng.random() < 0.3:
        schedule = "filters4"
    fn = conv_function(
        nd,
        [lead, *calls],
        transposed=transposed,
        schedule=schedule,
        prologue=prologue,
        epilogue=epilogue,
    )
    b.schedule = schedule
    b.call(fn)


def start_input(b: Builder, dims: Sequence[Dim]) -> None:
    """Make a new forward argument of the given sizes the current value."""
    name = b.input("x", dims)
    b.start(name, dims)


def set_shape(
    b: Builder,
    settings: Settings,
    batch: Dim,
    out_dim: Dim,
    spatial: Sequence[Dim],
    *,
    transposed: bool,
) -> None:
    """Give the current value the shape of the convolution's output."""
    sizes = []
    for axis, dim in enumerate(spatial):
        full, small = (
            settings.out_size(axis, int(v), transposed=transposed) for v in (dim.full, dim.small)
        )
        sizes.append(b.dim(SPATIAL[len(spatial)][axis], full, small))
    b.shape = (batch, out_dim, *sizes)


def write_conv(
    b: Builder,
    settings: Settings,
    in_dim: Dim,
    form: str,
    *,
    literal: bool,
    transposed: bool,
    names: Sequence[str] = (),
    in_text: str | None = None,
) -> tuple[list[str], Dim]:
    """Write a convolution module and apply it; returns the call's further arguments and the filters."""
    nd = len(settings.kernel)
    if in_text is None:
        in_text = in_dim.full if literal else b.ctor_dim(in_dim, [b.const_name(in_dim).lower()])
    if settings.groups == 0 and (transposed or b.rng.random() < 0.7):
        out_dim, out_text = in_dim, in_text
    else:
        step = replace(settings, groups=1) if settings.groups == 0 else settings
        out_dim = draw_channels(b, step, literal=literal, out=True)
        if settings.groups == 0:
            times = b.rng.choice([1, 2])
            out_dim.full, out_dim.small = (
                str(int(in_dim.full) * times),
                str(int(in_dim.small) * times),
            )
        out_text = out_dim.full if literal else b.ctor_dim(out_dim, [b.const_name(out_dim).lower()])
    cls = f"Conv{'Transpose' if transposed else ''}{nd}d"
    pool = names or [n.replace("{nd}", str(nd)) for n in _ATTRS[transposed]]
    attr = write_module(b, cls, pool, settings, in_text, out_text, transposed=transposed, form=form)
    b.apply(f"{attr}({{x}})", b.rng.choice(["conv_out", "out", "features"]))
    fields = [
        "weight",
        "bias",
        "stride",
        "padding",
        *(["output_padding"] if transposed else []),
        "dilation",
        "groups",
    ]
    return [f"{attr}.{name}" for name in fields], out_dim


def _write_functional(
    b: Builder, settings: Settings, in_dim: Dim, *, transposed: bool
) -> tuple[list[str], Dim]:
    """The functional spelling with parameters as weights."""
    rng, nd = b.rng, len(settings.kernel)
    in_text = b.ctor_dim(in_dim, [b.const_name(in_dim).lower()])
    out_dim = draw_channels(b, settings, literal=False, out=True)
    out_text = b.ctor_dim(out_dim, [b.const_name(out_dim).lower()])
    first, second = (in_text, out_text) if transposed else (out_text, in_text)
    if settings.groups > 1:
        second = f"{second} // {settings.groups}"
    if len(set(settings.kernel)) == 1:
        kernel = b.ctor_expr(["kernel_size"], str(settings.kernel[0]))
        shape = ", ".join([first, second, *[kernel] * nd])
    else:
        shape = ", ".join([first, second, *map(str, settings.kernel)])
    scale = rng.choice(["", " * 0.1", " * 0.02", " * 0.05"])
    weight = b.parameter(
        ["weight", "weight", "w", "kernel", "filters"], shape, "torch.randn({shape})" + scale
    )
    bias = "None"
    if settings.bias:
        bias = b.parameter(
            ["bias", "bias", "b"],
            out_text,
            rng.choice(["torch.zeros({shape})", "torch.randn({shape})"]),
        )
    args = [weight] + ([bias] if settings.bias else [])
    values = []
    table = [("stride", settings.stride, 1), ("padding", settings.padding, 0)]
    if transposed:
        table.append(("output_padding", settings.output_padding, 0))
    table.append(("dilation", settings.dilation, 1))
    for name, value, plain in table:
        if all(v == plain for v in value):
            values.append(f"{TUPLES[nd]}({plain})")
        elif len(set(value)) == 1:
            text = b.hyper([name], str(value[0]))
            args.append(f"{name}={text}")
            values.append(f"{TUPLES[nd]}({text})")
        else:
            args.append(f"{name}={join_tuple(value)}")
            values.append(f"{TUPLES[nd]}({join_tuple(value)})")
    if settings.groups > 1:
        args.append(f"groups={settings.groups}")
    b.candidate_import(f"from torch.nn.modules.utils import {TUPLES[nd]}")
    function = f"F.conv{'_transpose' if transposed else ''}{nd}d"
    b.apply(f"{function}({{x}}, {', '.join(args)})", "conv_out")
    return [weight, bias, *values, str(settings.groups)], out_dim


def build_separable(b: Builder) -> None:
    """A depthwise convolution and a pointwise one."""
    rng = b.rng
    nd = rng.choices([1, 2], [20, 80])[0]
    first = draw_settings(rng, nd, transposed=False)
    first.groups = 0
    form = draw_form(b)
    in_dim = draw_channels(b, first, literal=False, out=False)
    batch = named_dim(b, "batch", BATCH_NAMES, rng.choice(_FULL_BATCH), rng.choice([1, 2, 3]))
    spatial = spatial_dims(b, first, nd, transposed=False)
    start_input(b, [batch, in_dim, *spatial])
    lead = b.lead()
    in_text = b.ctor_dim(in_dim, ["in_channels"])
    out_dim = draw_channels(b, replace(first, groups=1), literal=False, out=True)
    out_text = b.ctor_dim(out_dim, ["out_channels"])
    names = rng.choice(
        [
            ("depthwise", "pointwise"),
            ("depthwise", "pointwise"),
            ("depthwise_conv", "pointwise_conv"),
            ("dw", "pw"),
            ("conv1", "conv2"),
        ]
    )
    attr = write_module(b, f"Conv{nd}d", [names[0]], first, in_text, in_text, form=form)
    b.apply(f"{attr}({{x}})", "out")
    set_shape(b, first, batch, in_dim, spatial, transposed=False)
    fields = ["weight", "bias", "stride", "padding", "dilation", "groups"]
    b.call(conv_function(nd, [lead, *(f"{attr}.{f}" for f in fields)]))
    bias = "" if first.bias and rng.random() < 0.6 else f", bias={first.bias}"
    point = b.module(
        [names[1]],
        f"nn.Conv{nd}d({in_text}, {out_text}, {rng.choice(['kernel_size=1', '1'])}{bias})",
    )
    lead = b.lead()
    b.apply(f"{point}({{x}})", "out")
    b.shape = (batch, out_dim, *b.shape[2:])
    b.call(conv_function(nd, [lead, *(f"{point}.{f}" for f in fields)]))
    count = rng.choices([0, 1, 2], [70, 20, 10])[0]
    if count:
        point_function(b, sample_chain(b, count, Range()))
    b.schedule = "direct"


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("conv", 18.0, build_conv),
    ("conv_separable", 1.5, build_separable),
)
