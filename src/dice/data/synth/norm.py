"""Family: layer, group, instance, batch and RMS normalisation, as modules and written out by hand."""

from collections.abc import Callable, Sequence

from dice.data.synth import rowwise, values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import Operand, PointOp
from dice.data.synth.layer_norm import handmade_layer_norm, init_affine, layer_norm
from dice.data.synth.norm_kernels import AFFINE, finish, moments_body, norm_function
from dice.data.synth.pointwise import point_function
from dice.data.synth.shapes import draw_dim, draw_shape


def group_norm(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """GroupNorm and InstanceNorm: modules."""
    rng, rank = b.rng, len(b.shape)
    channels = b.shape[1]
    instance = rng.random() < 0.45 and rank >= 3
    eps_text = (
        f", eps={b.ctor_expr(('eps', 'epsilon'), values.draw(rng, 'eps_safe'), 0.4)}"
        if rng.random() < 0.25
        else ""
    )
    if instance:
        affine = rng.random() < 0.4
        arg = b.ctor_dim(channels)
        kw = "num_features=" if rng.random() < 0.3 else ""
        attr = b.module(
            ("inorm", "instance_norm", "norm", "inst_norm", "instancenorm"),
            f"nn.InstanceNorm{rank - 2}d({kw}{arg}{eps_text}{', affine=True' if affine else ''})",
        )
        b.apply(f"{attr}({{x}})", "normed")
    else:
        affine = rng.random() < 0.93
        groups = b.dim("groups", rng.choice([8, 4, 2, 8, 16, 1, 32]), rng.choice([2, 1, 2]))
        channels.full, channels.small = (
            str(int(groups.full) * rng.choice([2, 4, 8, 1, 16, 3])),
            rng.choice(["4", "6", "8"]),
        )
        first, second = ("c", "g") if rng.random() < 0.5 else ("g", "c")
        exprs = {}
        for key in (first, second):
            exprs[key] = (
                b.ctor_dim(channels)
                if key == "c"
                else b.ctor_value(("num_groups", "groups", "G", "num_groups"), groups.token)
            )
        form = rng.choice(
            [f"{exprs['g']}, {exprs['c']}", f"num_groups={exprs['g']}, num_channels={exprs['c']}"]
        )
        attr = b.module(
            ("gn", "group_norm", "norm", "groupnorm", "gnorm"),
            f"nn.GroupNorm({form}{eps_text}{'' if affine else ', affine=False'})",
        )
        b.apply(f"{attr}({{x}})", "normed")
    if affine:
        init_affine(b, attr)
    post = sample_chain(b, post_count)
    f = norm_function(b, "instance_norm" if instance else "group_norm", pre, post)
    pre_lines = f.point(pre, "i")
    if affine:
        f.tensor(f"{attr}.weight", "raw", name="weight")
        f.tensor(f"{attr}.bias", "raw", name="bias")
    if not instance:
        f.scalar(f"{attr}.num_groups", "int64_t", "groups")
    f.scalar(f"{attr}.eps", name="eps")
    post_lines = f.point(post, "i")
    body = moments_body(pre_lines, post_lines, AFFINE.format("c", "c") if affine else "")
    host = (
        ["int64_t channels = x.size(1), spatial = x.numel() / (x.size(0) * channels);"]
        if affine
        else []
    )
    rows = "x.size(0) * groups" if not instance else "x.size(0) * x.size(1)"
    host.append(f"int64_t rows = {rows}, len = x.numel() / rows, inner = 1;")
    extra = ""
    args = ""
    if affine:
        body = body.replace(
            "        v = (v - mean)",
            "        int64_t c = i / spatial % channels;\n        v = (v - mean)",
        )
        extra, args = "int64_t channels, int64_t spatial, ", "channels, spatial, "
    finish(b, f, ("groups",), body, host, schedule=schedule, extra=extra, extra_args=args)


def batch_norm(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """BatchNorm in training mode: statistics of the batch."""
    rng, rank = b.rng, len(b.shape)
    arg = b.ctor_dim(b.shape[1])
    if b.shape[0].full == "1" or b.shape[0].small == "1":
        b.shape[0].full, b.shape[0].small = "16", "3"
    affine = rng.random() < 0.92
    kw = "num_features=" if rng.random() < 0.2 else ""
    eps_text = (
        f", eps={b.ctor_expr(('eps', 'epsilon'), values.draw(rng, 'eps_safe'), 0.5)}"
        if rng.random() < 0.22
        else ""
    )
    if rng.random() < 0.12:
        eps_text += f", momentum={b.ctor_expr(('momentum',), rng.choice(['0.1', '0.01', '0.9', '0.05']), 0.6)}"
    attr = b.module(
        ("bn", "bn", "norm", "batch_norm", "batchnorm", "bn1"),
        f"nn.BatchNorm{max(rank - 2, 1)}d({kw}{arg}{eps_text}{'' if affine else ', affine=False'})",
    )
    b.apply(f"{attr}({{x}})", "normed")
    if affine:
        init_affine(b, attr)
    post = sample_chain(b, post_count)
    f = norm_function(b, "batch_norm", pre, post)
    pre_lines = f.point(pre, "i")
    if affine:
        f.tensor(f"{attr}.weight", "raw", name="weight")
        f.tensor(f"{attr}.bias", "raw", name="bias")
    f.scalar(f"{attr}.eps", name="eps")
    post_lines = f.point(post, "i")
    index = "(r / spatial * rows + o) * spatial + r % spatial"
    body = moments_body(
        pre_lines, post_lines, AFFINE.format("o", "o") if affine else "", index=index
    )
    host = ["int64_t rows = x.size(1), len = x.numel() / rows, spatial = len / x.size(0);"]
    block = "dim3 block(spatial > 1 ? 1 : 32, spatial > 1 ? 256 : 8);"
    finish(
        b,
        f,
        (),
        body,
        host,
        schedule=schedule,
        extra="int64_t spatial, ",
        extra_args="spatial, ",
        block=block,
        base=False,
    )


def rms_norm_module(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """nn.RMSNorm over the last dimension."""
    rng = b.rng
    arg = b.ctor_dim(b.shape[-1])
    eps = None
    if rng.random() < 0.85:
        eps = b.ctor_expr(
            ("eps", "eps", "epsilon", "rms_norm_eps", "norm_eps"), values.draw(rng, "eps_safe"), 0.4
        )
    attr = b.module(
        ("norm", "rms_norm", "rmsnorm", "rms", "ln"),
        f"nn.RMSNorm({arg}{', eps=' + eps if eps else ''})",
    )
    b.apply(f"{attr}({{x}})", "normed")
    post = sample_chain(b, post_count)
    f = norm_function(b, "rms_norm", pre, post)
    pre_lines = f.point(pre, "i")
    f.tensor(f"{attr}.weight", "raw", name="weight")
    f.scalar(f"{attr}.eps" if eps else "1.1920929e-07", name="eps")
    post_lines = f.point(post, "i")
    first = ["float v = x[i];", *pre_lines, *(["out[i] = v;"] if pre else [])]
    body = (
        "    float sum = 0.0f;\n"
        + rowwise.loop([*first, "sum += v * v;"])
        + "    float scale = rsqrtf(block_sum(sum) / len + eps);\n"
        + rowwise.loop(
            [
                f"float v = {'out' if pre else 'x'}[i];",
                "v = v * scale * weight[r];",
                *post_lines,
                "out[i] = v;",
            ]
        )
    )
    finish(
        b,
        f,
        (),
        body,
        ["int64_t len = weight.numel(), rows = x.numel() / len, inner = 1;"],
        schedule=schedule,
    )


Norm = Callable[[Builder, Sequence[PointOp], int, str], None]
NORMS: tuple[tuple[Norm, float, tuple[str, ...]], ...] = (
    (layer_norm, 30, ("rows", "tokens", "tokens", "image", "signal", "cube")),
    (handmade_layer_norm, 14, ("rows", "tokens", "image", "signal")),
    (group_norm, 26, ("image", "image", "image", "signal", "volume", "rows")),
    (batch_norm, 20, ("image", "image", "rows", "signal", "volume")),
    (rms_norm_module, 10, ("rows", "tokens", "tokens")),
)


def build_norm(b: Builder) -> None:
    """A normalisation, with 0 to 2 elementwise operators before and after."""
    rng = b.rng
    norm, _, layouts = rng.choices(NORMS, [n[1] for n in NORMS])[0]
    layout = rng.choice(layouts)
    dims = draw_shape(b, layouts=[layout])
    if norm is group_norm and layout == "rows":
        dims = [dims[0], draw_dim(b, "channels")]
    name = b.input("x", dims)
    b.start(name, dims)
    pre_count = rng.choices([0, 1, 2], [72, 21, 7])[0]
    post_count = rng.choices([0, 1, 2], [64, 26, 10])[0]
    residual = pre_count == 1 and rng.random() < 0.35
    if residual:
        y = b.input("y", dims)
        b.apply(rng.choice(["{a} + {y}", "{y} + {a}"]), "h", y=y)
        pre = [
            PointOp(
                name="add",
                code=("v = v + {0};",),
                operands=(Operand(kind="same", call=f"{y}.contiguous()"),),
            )
        ]
    else:
        pre = sample_chain(b, pre_count, Range())
    schedule = "warp_shuffle" if rng.random() < 0.14 else "tree"
    b.schedule = schedule
    if pre and rng.random() < 0.2:
        b.schedule = "separate"
        point_function(b, pre)
        pre = []
    norm(b, pre, post_count, schedule)
