"""Problem side of convolutions: settings, constructor text and sizes, shared by both directions."""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass

from dice.data.synth.builder import Builder, Dim

SPATIAL = {1: ("length",), 2: ("height", "width"), 3: ("depth", "height", "width")}
"""Dimension kinds of the spatial axes."""

_FULL_SPATIAL = {
    1: (128, 256, 512, 1024, 65536, 131072, 100, 50, 524280, 16384, 32),
    2: (32, 64, 128, 256, 512, 224, 56, 28, 1024, 16, 100),
    3: (16, 32, 64, 128, 8, 24, 48, 12),
}
_FULL_CHANNELS = (3, 16, 32, 64, 128, 8, 256, 48, 96, 4, 1, 24, 10, 20, 512)
IN_NAMES = ("in_channels",) * 6 + (
    "channels",
    "input_channels",
    "in_ch",
    "C_in",
    "in_c",
    "c_in",
    "in_planes",
)
OUT_NAMES = ("out_channels",) * 6 + (
    "out_channels",
    "output_channels",
    "out_ch",
    "C_out",
    "num_filters",
    "c_out",
    "hidden_channels",
    "out_planes",
)
BATCH_NAMES = ("batch_size",) * 6 + ("batch", "B", "N", "bs")
LENGTH_NAMES = {
    "length": ("length", "length", "L", "seq_len", "sequence_length", "width", "input_length"),
    "height": ("height", "height", "H", "h", "height_in", "input_height"),
    "width": ("width", "width", "W", "w", "width_in", "input_width"),
    "depth": ("depth", "depth", "D", "d", "depth_in", "frames"),
}


def named_dim(
    b: Builder, kind: str, names: Sequence[str], full: int | str, small: int | str
) -> Dim:
    """A size whose constant is named from the given pool."""
    dim = b.dim(kind, full, small)
    dim.name = b.free_name(names, b.global_names, upper=True)
    return dim


def join_tuple(values: Sequence[int]) -> str:
    """Source text of a tuple of numbers."""
    return "(" + ", ".join(map(str, values)) + ("," if len(values) == 1 else "") + ")"


@dataclass(slots=True, kw_only=True)
class Settings:
    """Hyper-parameters of one convolution, per spatial axis."""

    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    padding: tuple[int, ...]
    dilation: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    """0 means depthwise."""
    bias: bool

    def out_size(self, axis: int, size: int, *, transposed: bool) -> int:
        """Output size along one axis."""
        k, s, p, d = self.kernel[axis], self.stride[axis], self.padding[axis], self.dilation[axis]
        if transposed:
            return (size - 1) * s - 2 * p + d * (k - 1) + self.output_padding[axis] + 1
        return (size + 2 * p - d * (k - 1) - 1) // s + 1

    def min_size(self, axis: int, *, transposed: bool) -> int:
        """Smallest input size along one axis that gives an output of at least two."""
        size = 1
        while self.out_size(axis, size, transposed=transposed) < 2:
            size += 1
        return size


def draw_settings(
    rng: random.Random, nd: int, *, transposed: bool, depthwise_ok: bool = True
) -> Settings:
    """Random hyper-parameters, mostly the same along every axis."""
    kernels = (3,) * 10 + (5, 5, 7, 2, 4, 1) + ((9, 11) if nd < 3 else ())
    uneven = nd > 1 and rng.random() < 0.25
    k = [rng.choice(kernels)] * nd
    if uneven:
        k = [rng.choice((3, 5, 7, 1, 3, 9, 2) if nd == 2 else (3, 5, 7, 1, 3)) for _ in range(nd)]
    uneven_rest = uneven and rng.random() < 0.5

    def draw(chance: float, options: Sequence[int], plain: int) -> list[int]:
        if rng.random() >= chance:
            return [plain] * nd
        if uneven_rest:
            return [rng.choice(options) for _ in range(nd)]
        return [rng.choice(options)] * nd

    s = draw(0.4, (2, 2, 2, 3, 4, 1, 5), 1)
    d = draw(0.25, (2, 2, 3, 4), 1)
    p = draw(0.5, (1, 1, 2, 3), 0)
    if rng.random() < 0.15:
        p = [d[i] * (k[i] - 1) // 2 for i in range(nd)]
    op = [0] * nd
    if transposed:
        p = [min(p[i], d[i] * (k[i] - 1) // 2) for i in range(nd)]
        if rng.random() < 0.35:
            op = [min(1, max(s[i], d[i]) - 1) for i in range(nd)]
    groups = rng.choices([1, 2, 4, 3, 8, 0], [74, 5, 5, 2, 1, 13 if depthwise_ok else 0])[0]
    return Settings(
        kernel=tuple(k),
        stride=tuple(s),
        padding=tuple(p),
        dilation=tuple(d),
        output_padding=tuple(op),
        groups=groups,
        bias=rng.random() < 0.6,
    )


def draw_channels(b: Builder, settings: Settings, *, literal: bool, out: bool) -> Dim:
    """A channel count that the groups divide; the same at full and small size where it is a literal."""
    rng = b.rng
    step = max(1, settings.groups)
    small = step * rng.choice([1, 2, 3] if step > 2 else [2, 3, 4, 5])
    full = rng.choice([c for c in _FULL_CHANNELS if c % step == 0 and c >= step] or [step * 8])
    if literal:
        full = small = rng.choice(
            [c for c in (1, 3, 4, 6, 8, 10, 12, 16, 20, 32) if c % step == 0] or [step]
        )
    names = OUT_NAMES if out else IN_NAMES
    return named_dim(b, "channels", names, full, small)


def spatial_dims(b: Builder, settings: Settings, nd: int, *, transposed: bool) -> list[Dim]:
    """Input sizes along the spatial axes."""
    rng = b.rng
    dims = []
    value = rng.choice(_FULL_SPATIAL[nd])
    square = rng.random() < 0.6
    for axis, kind in enumerate(SPATIAL[nd]):
        full = value if square else rng.choice(_FULL_SPATIAL[nd])
        least = settings.min_size(axis, transposed=transposed)
        full = max(full, least)
        extra = rng.choice({1: (0, 7, 20, 33), 2: (0, 2, 3, 5), 3: (0, 1, 2)}[nd])
        dims.append(named_dim(b, kind, LENGTH_NAMES[kind], full, least + extra))
    return dims


def value_text(values: Sequence[int], *, as_tuple: bool) -> str:
    """A per-axis setting as source text: one number where all are equal, unless a tuple is wanted."""
    if len(set(values)) == 1 and not as_tuple:
        return str(values[0])
    return join_tuple(values)


def write_module(
    b: Builder,
    cls: str,
    names: Sequence[str],
    settings: Settings,
    in_text: str,
    out_text: str,
    *,
    transposed: bool = False,
    form: str | None = None,
) -> str:
    """Write `self.<name> = nn.<cls>(in_text, out_text, ...)`; returns the attribute's expression.

    `form` is "defaults" (constructor arguments with defaults, as in KernelBench), "args" or "literal".
    """
    rng = b.rng
    form = form or draw_form(b)
    parts = [in_text, out_text]
    if rng.random() < 0.1:
        parts = [f"in_channels={in_text}", f"out_channels={out_text}"]
    kernel = kernel_text(b, settings.kernel, form)
    keyword = "=" in parts[0] or rng.random() < 0.4
    parts.append(f"kernel_size={kernel}" if keyword else kernel)
    uneven = len({*settings.kernel}) > 1 or rng.random() < 0.06
    by_axis = kernel.startswith("(kernel_size_")
    table = [("stride", settings.stride, 1), ("padding", settings.padding, 0)]
    if transposed:
        table.append(("output_padding", settings.output_padding, 0))
    table.append(("dilation", settings.dilation, 1))
    positional = not keyword and rng.random() < 0.12
    for name, values, plain in table:
        is_plain = all(v == plain for v in values)
        if is_plain and rng.random() > {"defaults": 0.75, "args": 0.3, "literal": 0.08}[form]:
            positional = False
            continue
        text = value_text(values, as_tuple=uneven and rng.random() < 0.5 and len(values) > 1)
        if by_axis and rng.random() < 0.6:
            defaults = str(plain) if form == "defaults" else None
            ends = [re.sub("kernel_size", name, part) for part in kernel.strip("()").split(", ")]
            args = [b.ctor_arg([e], str(v), defaults) for e, v in zip(ends, values, strict=True)]
            text = f"({', '.join(args)})"
        elif form != "literal":
            default = None
            if form == "defaults":
                usual = join_tuple([plain] * len(values)) if text.startswith("(") else str(plain)
                default = usual if rng.random() < 0.8 else text
            text = b.ctor_arg([name], text, default)
        parts.append(text if positional and name in ("stride", "padding") else f"{name}={text}")
    if settings.groups == 0:
        parts.append(f"groups={in_text}")
    elif (
        settings.groups > 1 or rng.random() < {"defaults": 0.6, "args": 0.1, "literal": 0.03}[form]
    ):
        text = str(settings.groups)
        if form != "literal":
            text = b.ctor_arg(
                ["groups", "groups", "groups", "num_groups"],
                text,
                "1" if form == "defaults" else None,
            )
        parts.append(f"groups={text}")
    if not settings.bias or rng.random() < {"defaults": 0.6, "args": 0.2, "literal": 0.1}[form]:
        text = str(settings.bias)
        if form == "defaults" or (form == "args" and rng.random() < 0.7):
            default = rng.choice([text, text, text, "False"]) if form == "defaults" else None
            text = b.ctor_arg(["bias", "bias", "bias", "use_bias"], text, default)
        parts.append(f"bias={text}")
    if form == "defaults" and rng.random() < 0.05:
        unused = rng.choice([("output_padding", "0"), ("num_classes", "1000"), ("groups", "1")])
        b.ctor_arg([unused[0]], unused[1], unused[1])
    return b.module(names, f"nn.{cls}({', '.join(parts)})")


def draw_form(b: Builder) -> str:
    """Where hyper-parameters are written, by the author's habits."""
    habit = {"default": "defaults", "literal": "literal", "arg": "args"}.get(b.style.hyper)
    return (
        habit
        if habit and b.rng.random() < 0.7
        else b.rng.choice(["defaults", "defaults", "args", "literal"])
    )


def kernel_text(
    b: Builder, kernel: Sequence[int], form: str, names: Sequence[str] = ("kernel_size",)
) -> str:
    """A kernel size inside `__init__`: literal, argument, or tuple of arguments."""
    rng, nd = b.rng, len(kernel)
    if form == "literal":
        return value_text(kernel, as_tuple=nd > 1 and rng.random() < 0.1)
    if len(set(kernel)) == 1:
        arg = b.ctor_arg(list(names), str(kernel[0]))
        return f"({', '.join([arg] * nd)})" if nd > 1 and rng.random() < 0.3 else arg
    if set(kernel[1:]) == {1} or (nd == 3 and kernel[0] == kernel[1]):
        arg = b.ctor_arg(list(names), str(kernel[0]))
        return "(" + ", ".join(arg if v == kernel[0] else str(v) for v in kernel) + ")"
    if nd == 2 and rng.random() < 0.2:
        ends = rng.choice([("h", "w"), ("height", "width")])
        return (
            "("
            + ", ".join(
                b.ctor_arg([f"{names[0]}_{e}"], str(v)) for e, v in zip(ends, kernel, strict=True)
            )
            + ")"
        )
    return b.ctor_arg(list(names), join_tuple(kernel))
