"""Families: pooling, adaptive and global pooling, upsampling."""

from collections.abc import Callable, Sequence

from dice.data.synth.builder import Builder, Dim
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.conv import TUPLES, start_input
from dice.data.synth.conv_spec import (
    BATCH_NAMES,
    LENGTH_NAMES,
    SPATIAL,
    draw_form,
    join_tuple,
    kernel_text,
    named_dim,
    value_text,
)
from dice.data.synth.cuda import PointOp
from dice.data.synth.pooling_cuda import (
    adaptive_function,
    bilinear_function,
    global_mean_function,
    pool_function,
    upsample_function,
)

_FULL = {
    1: (128, 256, 512, 1024, 65536, 100, 50, 4096),
    2: (32, 64, 128, 256, 512, 224, 56, 28, 2048, 100),
    3: (16, 32, 64, 128, 8, 24),
}
_CHANNEL_NAMES = ("channels", "channels", "in_channels", "features", "num_channels", "C", "c")
_POOL_ATTRS = (
    "pool",
    "pool",
    "{k}pool",
    "{k}pool",
    "{k}_pool",
    "{k}_pool",
    "{k}_pool{nd}d",
    "{k}pool{nd}d",
    "pooling",
    "pool1",
)


def start_image(b: Builder, nd: int, least: Sequence[int]) -> tuple[list[Dim], list[Dim]]:
    """Make a fresh batch of images the current value; returns its leading and its spatial sizes."""
    rng = b.rng
    lead = [
        named_dim(
            b, "batch", BATCH_NAMES, rng.choice((16, 32, 64, 128, 8, 4, 10)), rng.choice((1, 2, 3))
        ),
        named_dim(
            b,
            "channels",
            _CHANNEL_NAMES,
            rng.choice((64, 32, 128, 3, 16, 192, 256, 8, 10)),
            rng.choice((2, 3, 4)),
        ),
    ]
    value, square = rng.choice(_FULL[nd]), rng.random() < 0.6
    spatial = []
    for axis, kind in enumerate(SPATIAL[nd]):
        full = max(value if square else rng.choice(_FULL[nd]), least[axis])
        small = least[axis] + rng.choice({1: (1, 8, 21, 40), 2: (1, 2, 4, 7), 3: (1, 2, 3)}[nd])
        spatial.append(named_dim(b, kind, LENGTH_NAMES[kind], full, small))
    start_input(b, [*lead, *spatial])
    return lead, spatial


def around(b: Builder, chance: float = 0.25) -> list[PointOp]:
    """Perhaps an elementwise operator before the core."""
    return sample_chain(b, 1, Range(), extra_tensors=False) if b.rng.random() < chance else []


def behind(b: Builder) -> list[PointOp]:
    """Perhaps elementwise operators behind the core."""
    return sample_chain(b, b.rng.choices([0, 1, 2], [66, 24, 10])[0], Range())


def build_pool(b: Builder) -> None:
    """Max and average pooling, as a module or a function."""
    rng = b.rng
    nd = rng.choices([1, 2, 3], [32, 42, 26])[0]
    kind = rng.choice(["max", "avg"])
    kernel = [rng.choice((2, 2, 3, 3, 4, 5, 7, 8) if nd < 3 else (2, 2, 3, 3, 4))] * nd
    if nd > 1 and rng.random() < 0.15:
        kernel = [rng.choice((1, 2, 3, 4, 5)) for _ in range(nd)]
    uneven = len(set(kernel)) > 1
    stride = [rng.choice((1, 2, 2, 3, 4))] * nd if rng.random() < 0.7 else list(kernel)
    given = stride != kernel or rng.random() < 0.3
    padding = [rng.choice((1, 1, 2, 3, 4)) if rng.random() < 0.45 else 0] * nd
    padding = [min(p, k // 2) for p, k in zip(padding, kernel, strict=True)]
    dilation = [rng.choice((1, 1, 1, 2, 3)) if kind == "max" and rng.random() < 0.4 else 1] * nd
    span = [d * (k - 1) + 1 for d, k in zip(dilation, kernel, strict=True)]
    lead, spatial = start_image(b, nd, [max(1, s + st) for s, st in zip(span, stride, strict=True)])
    ceil = "False" if kind == "max" and rng.random() < 0.12 else None
    if ceil and rng.random() < 0.5:
        ceil = "True"
    count_pad = kind == "max" or rng.random() < 0.93
    prologue = around(b)
    call = b.lead()
    table = [("stride", stride, None), ("padding", padding, 0)]
    if kind == "max":
        table.append(("dilation", dilation, 1))
    functional = rng.random() < 0.2
    vectors, flag = _write_pool(
        b, kind, nd, kernel, table, given, ceil, count_pad, functional=functional, uneven=uneven
    )
    b.candidate_import(f"from torch.nn.modules.utils import {TUPLES[nd]}")
    sizes = []
    for axis, dim in enumerate(spatial):
        outs = []
        for size in (int(dim.full), int(dim.small)):
            s, p = stride[axis], padding[axis]
            out = (size + 2 * p - span[axis] + (s - 1 if ceil == "True" else 0)) // s + 1
            if ceil == "True" and (out - 1) * s >= size + p:
                out -= 1
            outs.append(out)
        sizes.append(b.dim(SPATIAL[nd][axis], outs[0], outs[1]))
    b.shape = (*lead, *sizes)
    epilogue = behind(b)
    fn = pool_function(
        kind,
        nd,
        call,
        vectors,
        ceil_mode=flag,
        count_pad=count_pad,
        prologue=prologue,
        epilogue=epilogue,
    )
    b.call(fn)


def _write_pool(
    b: Builder,
    kind: str,
    nd: int,
    kernel: Sequence[int],
    table: list[tuple[str, list[int], int | None]],
    given: bool,
    ceil: str | None,
    count_pad: bool,
    *,
    functional: bool,
    uneven: bool,
) -> tuple[list[str], str | None]:
    """Write the pooling; returns the candidate's expressions of its vectors and of ceil_mode."""
    rng = b.rng
    tup = TUPLES[nd]
    if functional:
        k = b.hyper(
            ["kernel_size", "kernel_size", "pool_size"], value_text(kernel, as_tuple=uneven)
        )
        args = [f"kernel_size={k}" if rng.random() < 0.5 else k]
        vectors = [k]
        for name, values, plain in table:
            if (name == "stride" and not given) or (
                name != "stride" and values[0] == plain and rng.random() < 0.8
            ):
                vectors.append(k if name == "stride" else str(plain))
                continue
            text = b.hyper([name], value_text(values, as_tuple=False))
            args.append(f"{name}={text}")
            vectors.append(text)
        args += [f"ceil_mode={ceil}"] if ceil else []
        args += [] if count_pad else ["count_include_pad=False"]
        b.apply(f"F.{kind}_pool{nd}d({{x}}, {', '.join(args)})", "pooled")
        return [f"{tup}({v})" for v in vectors], ceil
    form = draw_form(b)
    k = kernel_text(
        b,
        kernel,
        form,
        ("kernel_size", "kernel_size", "kernel_size", "pool_size", "pool_kernel_size"),
    )
    args = [f"kernel_size={k}" if rng.random() < 0.6 else k]
    positional = not args[0].startswith("kernel_size=") and rng.random() < 0.1
    for name, values, plain in table:
        is_plain = not given if name == "stride" else values[0] == plain
        if is_plain and rng.random() > {"defaults": 0.75, "args": 0.25, "literal": 0.08}[form]:
            positional = False
            continue
        text = "None" if is_plain and name == "stride" else value_text(values, as_tuple=False)
        if form != "literal":
            usual = "None" if name == "stride" else str(plain)
            text = b.ctor_arg(
                [name, name, f"pool_{name}"], text, usual if form == "defaults" else None
            )
        args.append(text if positional and name != "dilation" else f"{name}={text}")
    if kind == "max" and rng.random() < (0.2 if form == "defaults" else 0.03):
        flag = b.ctor_arg(["return_indices"], "False", "False") if form == "defaults" else "False"
        args.append(f"return_indices={flag}")
    if ceil:
        text = b.ctor_arg(["ceil_mode"], ceil, "False") if form == "defaults" else ceil
        args.append(f"ceil_mode={text}")
    if not count_pad:
        args.append("count_include_pad=False")
    names = [n.replace("{k}", kind).replace("{nd}", str(nd)) for n in _POOL_ATTRS]
    attr = b.module(names, f"nn.{kind.capitalize()}Pool{nd}d({', '.join(args)})")
    b.apply(f"{attr}({{x}})", "pooled")
    fields = ["kernel_size", "stride", "padding", *(["dilation"] if kind == "max" else [])]
    return [f"{tup}({attr}.{f})" for f in fields], f"{attr}.ceil_mode" if ceil else None


def build_adaptive(b: Builder) -> None:
    """Adaptive pooling to a given output size."""
    rng = b.rng
    nd = rng.choices([1, 2, 3], [25, 60, 15])[0]
    kind = rng.choices(["avg", "max"], [85, 15])[0]
    size = [rng.choice((1, 1, 1, 2, 4, 7, 3, 5, 8))] * nd
    if nd > 1 and rng.random() < 0.1:
        size = [rng.choice((1, 2, 4, 5)) for _ in range(nd)]
    lead, _ = start_image(b, nd, size)
    prologue = around(b, 0.35)
    call = b.lead()
    tup = TUPLES[nd]
    as_tuple = nd > 1 and rng.random() < 0.4
    text = value_text(size, as_tuple=as_tuple)
    if rng.random() < 0.25:
        expr = b.hyper(["output_size", "output_size", "pool_size", "out_size"], text)
        b.apply(
            rng.choice(
                [
                    f"F.adaptive_{kind}_pool{nd}d({{x}}, {{s}})",
                    f"F.adaptive_{kind}_pool{nd}d({{x}}, output_size={{s}})",
                ]
            ),
            "pooled",
            s=expr,
        )
    else:
        inner = b.ctor_expr(["output_size", "output_size", "pool_size", "target_size"], text, 0.45)
        names = (
            f"adaptive_{kind}_pool",
            f"{kind}_pool",
            f"{kind}pool",
            "pool",
            f"adaptive_pool{nd}d",
            f"adaptive_{kind}_pool{nd}d",
            f"adaptive_{kind}pool",
            "gap",
        )
        attr = b.module(
            names,
            f"nn.Adaptive{kind.capitalize()}Pool{nd}d({'output_size=' if rng.random() < 0.2 else ''}{inner})",
        )
        b.apply(f"{attr}({{x}})", "pooled")
        expr = f"{attr}.output_size"
    b.candidate_import(f"from torch.nn.modules.utils import {tup}")
    b.shape = (*lead, *(b.dim(k, v, v) for k, v in zip(SPATIAL[nd], size, strict=True)))
    b.call(
        adaptive_function(kind, nd, call, f"{tup}({expr})", prologue=prologue, epilogue=behind(b))
    )


def write_global(b: Builder, nd: int) -> bool:
    """Write the mean over the last `nd` axes; returns whether they are kept with size one."""
    rng = b.rng
    keep = rng.random() < 0.5
    axes = list(range(2, 2 + nd)) if rng.random() < 0.6 else list(range(-nd, 0))
    written: list[Callable[[list[int]], object]] = [join_tuple, list]
    dims = rng.choice(written)(axes) if nd > 1 else axes[0]
    tail = ", keepdim=True" if keep else ""
    forms = [f"{{a}}.mean(dim={dims}{tail})", f"torch.mean({{x}}, dim={dims}{tail})"]
    if keep and nd > 1 and rng.random() < 0.4:
        one = rng.choice(["1", join_tuple([1] * nd)])
        attr = b.module(
            ("gap", "global_avg_pool", "avgpool", "pool"), f"nn.AdaptiveAvgPool{nd}d({one})"
        )
        forms = [f"{attr}({{x}})"]
    elif not keep and nd == 2 and rng.random() < 0.3:
        forms = [
            "F.adaptive_avg_pool2d({x}, 1).flatten(1)",
            "torch.flatten(F.adaptive_avg_pool2d({x}, (1, 1)), 1)",
            "F.adaptive_avg_pool2d({x}, 1).squeeze(-1).squeeze(-1)",
        ]
    b.apply(rng.choice(forms), "pooled")
    return keep


def build_global(b: Builder) -> None:
    """The mean over all spatial axes."""
    nd = b.rng.choices([1, 2, 3], [15, 65, 20])[0]
    lead, _ = start_image(b, nd, [2] * nd)
    prologue = around(b, 0.35)
    call = b.lead()
    keep = write_global(b, nd)
    b.shape = (*lead, *(b.dim(k, 1, 1) for k in SPATIAL[nd])) if keep else tuple(lead)
    b.schedule = "block"
    b.call(global_mean_function(nd, call, keep=keep, prologue=prologue, epilogue=behind(b)))


def build_upsample(b: Builder) -> None:
    """Nearest or bilinear upsampling by a whole factor."""
    rng = b.rng
    bilinear = rng.random() < 0.35
    nd = 2 if bilinear else rng.choices([1, 2, 3], [20, 65, 15])[0]
    lead, spatial = start_image(b, nd, [3] * nd)
    factor = rng.choice((2, 2, 2, 3, 4))
    prologue = [] if bilinear else around(b, 0.3)
    call = b.lead()
    mode = "'bilinear'" if bilinear else "'nearest'"
    align = rng.choice([None, None, "True", "False"]) if bilinear else None
    if rng.random() < 0.45:
        expr = b.hyper(["scale_factor", "scale_factor", "scale"], str(factor))
        options = f", mode={b.hyper(['mode'], mode) if rng.random() < 0.4 else mode}"
        if not bilinear and rng.random() < 0.4:
            options = ""
        if align:
            align = b.hyper(["align_corners"], align)
            options += f", align_corners={align}"
        b.apply(f"F.interpolate({{x}}, scale_factor={expr}{options})", "upsampled")
        align = align or "False"
    else:
        inner = b.ctor_expr(["scale_factor", "scale_factor", "upscale_factor"], str(factor), 0.4)
        options = f", mode={b.ctor_expr(['mode', 'mode', 'upsample_mode'], mode, 0.5)}"
        if not bilinear and rng.random() < 0.25:
            options = ""
        if align:
            options += f", align_corners={b.ctor_expr(['align_corners'], align, 0.6)}"
        names = ("upsample", "upsample", "up", "upsampler", "interpolate")
        attr = b.module(names, f"nn.Upsample(scale_factor={inner}{options})")
        b.apply(f"{attr}({{x}})", "upsampled")
        expr, align = f"{attr}.scale_factor", f"bool({attr}.align_corners)"
    b.candidate_import(f"from torch.nn.modules.utils import {TUPLES[nd]}")
    scale = f"{TUPLES[nd]}(int({expr}))"
    b.shape = (
        *lead,
        *(b.dim(d.kind, int(d.full) * factor, int(d.small) * factor) for d in spatial),
    )
    if bilinear:
        b.call(bilinear_function(call, scale, align, epilogue=behind(b)))
    else:
        b.call(upsample_function(nd, call, scale, prologue=prologue, epilogue=behind(b)))


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("pool", 9.0, build_pool),
    ("adaptive_pool", 3.0, build_adaptive),
    ("global_pool", 2.0, build_global),
    ("upsample", 3.0, build_upsample),
)
