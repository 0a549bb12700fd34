"""Family: layer, group, instance, batch and RMS normalisation, as modules and written out by hand."""

from collections.abc import Callable, Sequence

from dice.data.synth import rowwise, values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain, sample_point
from dice.data.synth.cuda import HostFunction, Operand, PointOp
from dice.data.synth.dims import axis_expr
from dice.data.synth.pointwise import point_function
from dice.data.synth.shapes import draw_dim, draw_shape

_ROWS = "NAME_kernel<<<(rows + block.x - 1) / block.x, block>>>(x.data_ptr<float>(), {args}out.data_ptr<float>(), rows, len, inner);"


def moments_body(pre: Sequence[str], post: Sequence[str], affine: str, *, eps: str = "eps", unbiased: bool = False, std_eps: bool = False, index: str | None = None) -> str:
    """Kernel body that standardises each row: mean, then variance, then the result.

    `affine` is C text after `v = (v - mean) * scale`; `std_eps` adds eps to the deviation instead of the
    variance.
    """
    first = ["float v = x[i];", *pre]
    src = "x"
    if pre:
        first.append("out[i] = v;")
        src = "out"
    again = f"float v = {src}[i];"
    divide = "(len - 1)" if unbiased else "len"
    scale = f"1.0f / (sqrtf(block_sum(sum) / {divide}) + {eps})" if std_eps else f"rsqrtf(block_sum(sum) / {divide} + {eps})"
    body = (
        "    float sum = 0.0f;\n"
        + rowwise.loop([*first, "sum += v;"])
        + "    float mean = block_sum(sum) / len;\n    sum = 0.0f;\n"
        + rowwise.loop([again, "sum += (v - mean) * (v - mean);"])
        + f"    float scale = {scale};\n"
        + rowwise.loop([again, f"v = (v - mean) * scale{affine};", *post, "out[i] = v;"])
    )
    return body if index is None else body.replace("base + r * inner", index)


def _finish(b: Builder, f: HostFunction, hidden: Sequence[str], body: str, host: Sequence[str], *, schedule: str, extra: str = "", extra_args: str = "", block: str | None = None, base: bool = True) -> None:
    """Assemble kernel and host function; `extra` are further kernel parameters."""
    rowwise.use_block(f, "sum", schedule)
    every, f.params = f.params, [p for p in f.params if p[1] not in hidden]
    text = rowwise.kernel(f, body)
    args = f.launch_args() + extra_args
    if extra:
        text = text.replace("float* out, int64_t rows", f"{extra}float* out, int64_t rows")
    if not base:
        text = text.replace("    int64_t base = o / inner * len * inner + o % inner;\n", "").replace(", int64_t inner) {", ") {")
    f.kernels.append(text)
    launch = _ROWS.replace("{args}", args)
    if not base:
        launch = launch.replace("rows, len, inner)", "rows, len)")
    if block is None or schedule == "warp_shuffle":
        block = "dim3 block(1, 256);"
    f.host_body = [*host, "auto out = torch::empty_like(x);", block, launch, "return out;"]
    f.params = every
    if schedule == "warp_shuffle":
        b.schedule = schedule
    b.call(f)


def _function(b: Builder, name: str, pre: Sequence[PointOp], post: Sequence[PointOp]) -> HostFunction:
    return HostFunction(ops=[*(op.name for op in pre), name, *(op.name for op in post)], leading=[("x", b.lead())])


_AFFINE = " * weight[{}] + bias[{}]"


def init_affine(b: Builder, attr: str) -> None:
    """Sometimes make a norm's weight and bias other than the identity."""
    rng = b.rng
    way = rng.random()
    if way < 0.12 and not b.in_sequential:
        nn = b.style.nn
        b.init_lines.append(rng.choice([f"{nn}.init.normal_({attr}.weight, mean=1.0, std=0.1)", f"{nn}.init.uniform_({attr}.weight, 0.5, 1.5)", f"{nn}.init.normal_({attr}.weight, 1.0, 0.02)", f"{nn}.init.normal_({attr}.weight)"]))
        if rng.random() < 0.8:
            b.init_lines.append(rng.choice([f"{nn}.init.normal_({attr}.bias, std=0.1)", f"{nn}.init.uniform_({attr}.bias, -0.1, 0.1)", f"{nn}.init.normal_({attr}.bias)", f"{nn}.init.normal_({attr}.bias, mean=0.0, std=0.02)"]))


def layer_norm(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """LayerNorm over the last dimension or several: module or functional."""
    rng, rank = b.rng, len(b.shape)
    count = 1 if rank < 3 or rng.random() < 0.72 else rng.choice([rank - 1, rank - 1, 2])
    dims = b.shape[rank - count :]
    if count == 1 and rng.random() < 0.75:
        shape = b.ctor_dim(dims[0])
        tuple_shape = f"({shape},)"
        if rng.random() < 0.06:
            shape = tuple_shape
    else:
        text = "(" + ", ".join(d.token for d in dims) + ("," if count == 1 else "") + ")"
        if rng.random() < 0.25:
            text = text.replace("(", "[").replace(",)", ")").replace(")", "]")
        shape = tuple_shape = b.ctor_value(("normalized_shape", "normalized_shape", "shape", "norm_shape", "ln_shape"), text)
    eps_text, eps = "", "1e-05"
    names = ("ln", "norm", "layer_norm", "layernorm", "norm1", "ln1", "ln_f", "normalization")
    way = rng.choices(["module", "functional"], [86, 0 if b.in_sequential else 14])[0]
    if way == "module":
        if rng.random() < 0.3:
            eps_text = f", eps={b.ctor_expr(('eps', 'eps', 'epsilon', 'layer_norm_eps'), values.draw(rng, 'eps_safe'), 0.4)}"
        plain = rng.random() < 0.07 and count == 1
        extra = ", elementwise_affine=False" if plain else ""
        kw = "normalized_shape=" if rng.random() < 0.15 else ""
        attr = b.module(names, f"nn.LayerNorm({kw}{shape}{eps_text}{extra})")
        b.apply(f"{attr}({{x}})", rng.choice(["normed", "normalized", "out"]))
        weight, bias, eps = f"{attr}.weight", f"{attr}.bias", f"{attr}.eps"
        if not plain:
            init_affine(b, attr)
        else:
            standardize(b, "layer_norm_plain", "-1", eps, pre, sample_chain(b, post_count), schedule)
            return
    else:
        star = f"*{shape}" if count > 1 or shape == tuple_shape else shape
        weight = b.parameter(("weight", "gamma", "scale", "g", "ln_weight"), star, rng.choice([None, "torch.ones({shape})"]))
        bias = b.parameter(("bias", "beta", "shift", "b", "ln_bias"), star, rng.choice([None, "torch.zeros({shape})"]))
        eps = b.hyper(("eps", "epsilon"), values.draw(rng, "eps_safe"))
        form = rng.choice(["F.layer_norm({x}, {w}.shape, {w}, {c}, {e})", "F.layer_norm({x}, {w}.shape, {w}, {c}, eps={e})", "F.layer_norm({x}, {w}.shape, weight={w}, bias={c}, eps={e})"])
        if count == 1:
            form = rng.choice([form, "F.layer_norm({n}, ({n}.size(-1),), {w}, {c}, {e})", "F.layer_norm({n}, {n}.shape[-1:], {w}, {c}, {e})"])
        b.apply(form, "normed", w=weight, c=bias, e=eps)
    post = sample_chain(b, post_count)
    f = _function(b, "layer_norm", pre, post)
    pre_lines = f.point(pre, "i")
    f.tensor(weight, "raw", name="weight")
    f.tensor(bias, "raw", name="bias")
    f.scalar(eps, name="eps")
    post_lines = f.point(post, "i")
    body = moments_body(pre_lines, post_lines, _AFFINE.format("r", "r"))
    _finish(b, f, (), body, ["int64_t len = weight.numel(), rows = x.numel() / len, inner = 1;"], schedule=schedule)


def standardize(b: Builder, name: str, dim: str, eps: str, pre: Sequence[PointOp], post: Sequence[PointOp], schedule: str, **how: bool) -> None:
    """Host function: (x - mean) / sqrt(var + eps) over one dimension."""
    f = _function(b, "standardize", pre, post)
    pre_lines = f.point(pre, "i")
    f.scalar(dim, "int64_t", "dim")
    f.scalar(eps, name="eps")
    post_lines = f.point(post, "i")
    body = moments_body(pre_lines, post_lines, "", **how)  # type: ignore[arg-type]
    _finish(b, f, ("dim",), body, rowwise.split_dim(), schedule=schedule, block="dim3 block(inner > 1 ? 32 : 1, inner > 1 ? 8 : 256);")
    assert name


def handmade_layer_norm(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """mean, var and the rest, in the author's words; affine terms are elementwise operators after it."""
    rng, rank = b.rng, len(b.shape)
    index = rank - 1 if rng.random() < 0.72 or rank < 3 else 1
    d = axis_expr(b, index, attribute=0.2)
    eps = b.hyper(("eps", "eps", "epsilon"), values.draw(rng, "eps_safe"))
    n = b.as_name()
    b.keep(n)
    mean = b.local(("mean", "mu", "m", "avg", "u"))
    b.line(rng.choice([f"{mean} = {n}.mean(dim={d}, keepdim=True)", f"{mean} = {n}.mean({d}, keepdim=True)", f"{mean} = torch.mean({n}, dim={d}, keepdim=True)"]))
    way = rng.choices(["var", "square", "std", "var1"], [52, 24, 14, 10])[0]
    how = {"unbiased": way in ("std", "var1"), "std_eps": way == "std"}
    if way == "std":
        s = b.local(("std", "sigma", "s"))
        b.line(rng.choice([f"{s} = {n}.std(dim={d}, keepdim=True)", f"{s} = {n}.std({d}, keepdim=True)", f"{s} = torch.std({n}, dim={d}, keepdim=True)"]))
        b.cur = f"({n} - {mean}) / ({s} + {eps})"
    else:
        v = b.local(("var", "variance", "v", "sigma2"))
        if way == "var":
            b.line(rng.choice([f"{v} = {n}.var(dim={d}, keepdim=True, unbiased=False)", f"{v} = {n}.var({d}, unbiased=False, keepdim=True)", f"{v} = torch.var({n}, dim={d}, keepdim=True, unbiased=False)", f"{v} = {n}.var(dim={d}, correction=0, keepdim=True)"]))
        elif way == "var1":
            b.line(rng.choice([f"{v} = {n}.var(dim={d}, keepdim=True)", f"{v} = torch.var({n}, dim={d}, keepdim=True)"]))
        else:
            b.line(rng.choice([f"{v} = (({n} - {mean}) ** 2).mean(dim={d}, keepdim=True)", f"{v} = ({n} - {mean}).pow(2).mean({d}, keepdim=True)", f"{v} = torch.mean(({n} - {mean}) ** 2, dim={d}, keepdim=True)"]))
        b.cur = rng.choice([f"({n} - {mean}) / torch.sqrt({v} + {eps})", f"({n} - {mean}) / ({v} + {eps}).sqrt()", f"({n} - {mean}) * torch.rsqrt({v} + {eps})"])
    post: list[PointOp] = []
    if rng.random() < 0.55:
        post += affine_ops(b, index)
    post += sample_chain(b, post_count)
    standardize(b, "standardize", d, eps, pre, post, schedule, **how)


def affine_ops(b: Builder, index: int, *, bias: bool = True) -> list[PointOp]:
    """A gain along one dimension, and perhaps a bias, as elementwise operators."""
    rng, rank = b.rng, len(b.shape)
    arg = b.ctor_dim(b.shape[index])
    ones = rank - 1 - index
    if ones:
        lead = ["1"] * index if rng.random() < 0.6 else []
        shape = ", ".join([*lead, arg, *(["1"] * ones)])
    else:
        shape = arg
    w = b.parameter(("weight", "gamma", "scale", "g", "gain", "weight"), shape, rng.choice(["torch.ones({shape})", "torch.ones({shape})", None]))
    b.apply(rng.choice(["{a} * {w}", "{w} * {a}", "{w} * {a}", "{a} * {w}"]), "scaled", w=w)
    ops = [PointOp(name="mul", code=("v = v * {0};",), operands=(Operand(kind="broadcast", call=w),))]
    if bias:
        c = b.parameter(("bias", "beta", "shift", "b", "bias"), shape, rng.choice(["torch.zeros({shape})", "torch.zeros({shape})", None]))
        b.apply("{a} + {c}", "out", c=c)
        ops.append(PointOp(name="add", code=("v = v + {0};",), operands=(Operand(kind="broadcast", call=c),)))
    return ops


def group_norm(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """GroupNorm and InstanceNorm: modules."""
    rng, rank = b.rng, len(b.shape)
    channels = b.shape[1]
    instance = rng.random() < 0.45 and rank >= 3
    eps_text = f", eps={b.ctor_expr(('eps', 'epsilon'), values.draw(rng, 'eps_safe'), 0.4)}" if rng.random() < 0.25 else ""
    if instance:
        affine = rng.random() < 0.4
        arg = b.ctor_dim(channels)
        kw = "num_features=" if rng.random() < 0.3 else ""
        attr = b.module(("inorm", "instance_norm", "norm", "inst_norm", "instancenorm"), f"nn.InstanceNorm{rank - 2}d({kw}{arg}{eps_text}{', affine=True' if affine else ''})")
        b.apply(f"{attr}({{x}})", "normed")
    else:
        affine = rng.random() < 0.93
        groups = b.dim("groups", rng.choice([8, 4, 2, 8, 16, 1, 32]), rng.choice([2, 1, 2]))
        channels.full, channels.small = str(int(groups.full) * rng.choice([2, 4, 8, 1, 16, 3])), rng.choice(["4", "6", "8"])
        first, second = ("c", "g") if rng.random() < 0.5 else ("g", "c")
        exprs = {}
        for key in (first, second):
            exprs[key] = b.ctor_dim(channels) if key == "c" else b.ctor_value(("num_groups", "groups", "G", "num_groups"), groups.token)
        form = rng.choice([f"{exprs['g']}, {exprs['c']}", f"num_groups={exprs['g']}, num_channels={exprs['c']}"])
        attr = b.module(("gn", "group_norm", "norm", "groupnorm", "gnorm"), f"nn.GroupNorm({form}{eps_text}{'' if affine else ', affine=False'})")
        b.apply(f"{attr}({{x}})", "normed")
    if affine:
        init_affine(b, attr)
    post = sample_chain(b, post_count)
    f = _function(b, "instance_norm" if instance else "group_norm", pre, post)
    pre_lines = f.point(pre, "i")
    if affine:
        f.tensor(f"{attr}.weight", "raw", name="weight")
        f.tensor(f"{attr}.bias", "raw", name="bias")
    if not instance:
        f.scalar(f"{attr}.num_groups", "int64_t", "groups")
    f.scalar(f"{attr}.eps", name="eps")
    post_lines = f.point(post, "i")
    body = moments_body(pre_lines, post_lines, _AFFINE.format("c", "c") if affine else "")
    host = ["int64_t channels = x.size(1), spatial = x.numel() / (x.size(0) * channels);"] if affine else []
    rows = "x.size(0) * groups" if not instance else "x.size(0) * x.size(1)"
    host.append(f"int64_t rows = {rows}, len = x.numel() / rows, inner = 1;")
    extra = ""
    args = ""
    if affine:
        body = body.replace("        v = (v - mean)", "        int64_t c = i / spatial % channels;\n        v = (v - mean)")
        extra, args = "int64_t channels, int64_t spatial, ", "channels, spatial, "
    _finish(b, f, ("groups",), body, host, schedule=schedule, extra=extra, extra_args=args)


def batch_norm(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """BatchNorm in training mode: statistics of the batch."""
    rng, rank = b.rng, len(b.shape)
    arg = b.ctor_dim(b.shape[1])
    if b.shape[0].full == "1" or b.shape[0].small == "1":
        b.shape[0].full, b.shape[0].small = "16", "3"
    affine = rng.random() < 0.92
    kw = "num_features=" if rng.random() < 0.2 else ""
    eps_text = f", eps={b.ctor_expr(('eps', 'epsilon'), values.draw(rng, 'eps_safe'), 0.5)}" if rng.random() < 0.22 else ""
    if rng.random() < 0.12:
        eps_text += f", momentum={b.ctor_expr(('momentum',), rng.choice(['0.1', '0.01', '0.9', '0.05']), 0.6)}"
    attr = b.module(("bn", "bn", "norm", "batch_norm", "batchnorm", "bn1"), f"nn.BatchNorm{max(rank - 2, 1)}d({kw}{arg}{eps_text}{'' if affine else ', affine=False'})")
    b.apply(f"{attr}({{x}})", "normed")
    if affine:
        init_affine(b, attr)
    post = sample_chain(b, post_count)
    f = _function(b, "batch_norm", pre, post)
    pre_lines = f.point(pre, "i")
    if affine:
        f.tensor(f"{attr}.weight", "raw", name="weight")
        f.tensor(f"{attr}.bias", "raw", name="bias")
    f.scalar(f"{attr}.eps", name="eps")
    post_lines = f.point(post, "i")
    index = "(r / spatial * rows + o) * spatial + r % spatial"
    body = moments_body(pre_lines, post_lines, _AFFINE.format("o", "o") if affine else "", index=index)
    host = ["int64_t rows = x.size(1), len = x.numel() / rows, spatial = len / x.size(0);"]
    block = "dim3 block(spatial > 1 ? 1 : 32, spatial > 1 ? 256 : 8);"
    _finish(b, f, (), body, host, schedule=schedule, extra="int64_t spatial, ", extra_args="spatial, ", block=block, base=False)


def rms_norm_module(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """nn.RMSNorm over the last dimension."""
    rng = b.rng
    arg = b.ctor_dim(b.shape[-1])
    eps = None
    if rng.random() < 0.85:
        eps = b.ctor_expr(("eps", "eps", "epsilon", "rms_norm_eps", "norm_eps"), values.draw(rng, "eps_safe"), 0.4)
    attr = b.module(("norm", "rms_norm", "rmsnorm", "rms", "ln"), f"nn.RMSNorm({arg}{', eps=' + eps if eps else ''})")
    b.apply(f"{attr}({{x}})", "normed")
    post = sample_chain(b, post_count)
    f = _function(b, "rms_norm", pre, post)
    pre_lines = f.point(pre, "i")
    f.tensor(f"{attr}.weight", "raw", name="weight")
    f.scalar(f"{attr}.eps" if eps else "1.1920929e-07", name="eps")
    post_lines = f.point(post, "i")
    first = ["float v = x[i];", *pre_lines, *(["out[i] = v;"] if pre else [])]
    body = (
        "    float sum = 0.0f;\n"
        + rowwise.loop([*first, "sum += v * v;"])
        + "    float scale = rsqrtf(block_sum(sum) / len + eps);\n"
        + rowwise.loop([f"float v = {'out' if pre else 'x'}[i];", "v = v * scale * weight[r];", *post_lines, "out[i] = v;"])
    )
    _finish(b, f, (), body, ["int64_t len = weight.numel(), rows = x.numel() / len, inner = 1;"], schedule=schedule)


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
        pre = [PointOp(name="add", code=("v = v + {0};",), operands=(Operand(kind="same", call=f"{y}.contiguous()"),))]
    else:
        pre = sample_chain(b, pre_count, Range())
    schedule = "warp_shuffle" if rng.random() < 0.14 else "tree"
    b.schedule = schedule
    if pre and rng.random() < 0.2:
        b.schedule = "separate"
        point_function(b, pre)
        pre = []
    norm(b, pre, post_count, schedule)


_ = sample_point
