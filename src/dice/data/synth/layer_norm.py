"""LayerNorm and RMSNorm over the last dimensions, LayerNorm written out by hand."""

from collections.abc import Sequence

from dice.data.synth import values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import sample_chain
from dice.data.synth.cuda import Operand, PointOp
from dice.data.synth.dims import axis_expr
from dice.data.synth.norm_kernels import AFFINE, finish, moments_body, norm_function, standardize
from dice.data.synth.shapes import at_least_two


def init_affine(b: Builder, attr: str) -> None:
    """Sometimes make a norm's weight and bias other than the identity."""
    rng = b.rng
    way = rng.random()
    if way < 0.12 and not b.in_sequential:
        nn = b.style.nn
        b.init_lines.append(
            rng.choice(
                [
                    f"{nn}.init.normal_({attr}.weight, mean=1.0, std=0.1)",
                    f"{nn}.init.uniform_({attr}.weight, 0.5, 1.5)",
                    f"{nn}.init.normal_({attr}.weight, 1.0, 0.02)",
                    f"{nn}.init.normal_({attr}.weight)",
                ]
            )
        )
        if rng.random() < 0.8:
            b.init_lines.append(
                rng.choice(
                    [
                        f"{nn}.init.normal_({attr}.bias, std=0.1)",
                        f"{nn}.init.uniform_({attr}.bias, -0.1, 0.1)",
                        f"{nn}.init.normal_({attr}.bias)",
                        f"{nn}.init.normal_({attr}.bias, mean=0.0, std=0.02)",
                    ]
                )
            )


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
        shape = tuple_shape = b.ctor_value(
            ("normalized_shape", "normalized_shape", "shape", "norm_shape", "ln_shape"), text
        )
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
            standardize(b, "-1", eps, pre, sample_chain(b, post_count), schedule)
            return
    else:
        star = f"*{shape}" if count > 1 or shape == tuple_shape else shape
        weight = b.parameter(
            ("weight", "gamma", "scale", "g", "ln_weight"),
            star,
            rng.choice([None, "torch.ones({shape})"]),
        )
        bias = b.parameter(
            ("bias", "beta", "shift", "b", "ln_bias"),
            star,
            rng.choice([None, "torch.zeros({shape})"]),
        )
        eps = b.hyper(("eps", "epsilon"), values.draw(rng, "eps_safe"))
        form = rng.choice(
            [
                "F.layer_norm({x}, {w}.shape, {w}, {c}, {e})",
                "F.layer_norm({x}, {w}.shape, {w}, {c}, eps={e})",
                "F.layer_norm({x}, {w}.shape, weight={w}, bias={c}, eps={e})",
            ]
        )
        if count == 1:
            form = rng.choice(
                [
                    form,
                    "F.layer_norm({n}, ({n}.size(-1),), {w}, {c}, {e})",
                    "F.layer_norm({n}, {n}.shape[-1:], {w}, {c}, {e})",
                ]
            )
        b.apply(form, "normed", w=weight, c=bias, e=eps)
    post = sample_chain(b, post_count)
    f = norm_function(b, "layer_norm", pre, post)
    pre_lines = f.point(pre, "i")
    f.tensor(weight, "raw", name="weight")
    f.tensor(bias, "raw", name="bias")
    f.scalar(eps, name="eps")
    post_lines = f.point(post, "i")
    body = moments_body(pre_lines, post_lines, AFFINE.format("r", "r"))
    finish(
        b,
        f,
        (),
        body,
        ["int64_t len = weight.numel(), rows = x.numel() / len, inner = 1;"],
        schedule=schedule,
    )


def handmade_layer_norm(b: Builder, pre: Sequence[PointOp], post_count: int, schedule: str) -> None:
    """mean, var and the rest, in the author's words; affine terms are elementwise operators after it."""
    rng, rank = b.rng, len(b.shape)
    index = rank - 1 if rng.random() < 0.72 or rank < 3 else 1
    at_least_two(b.shape[index])
    d = axis_expr(b, index, attribute=0.2)
    eps = b.hyper(("eps", "eps", "epsilon"), values.draw(rng, "eps_safe"))
    n = b.as_name()
    b.keep(n)
    mean = b.local(("mean", "mu", "m", "avg", "u"))
    b.line(
        rng.choice(
            [
                f"{mean} = {n}.mean(dim={d}, keepdim=True)",
                f"{mean} = {n}.mean({d}, keepdim=True)",
                f"{mean} = torch.mean({n}, dim={d}, keepdim=True)",
            ]
        )
    )
    way = rng.choices(["var", "square", "std", "var1"], [52, 24, 14, 10])[0]
    how = {"unbiased": way in ("std", "var1"), "std_eps": way == "std"}
    if way == "std":
        s = b.local(("std", "sigma", "s"))
        b.line(
            rng.choice(
                [
                    f"{s} = {n}.std(dim={d}, keepdim=True)",
                    f"{s} = {n}.std({d}, keepdim=True)",
                    f"{s} = torch.std({n}, dim={d}, keepdim=True)",
                ]
            )
        )
        b.cur = f"({n} - {mean}) / ({s} + {eps})"
    else:
        v = b.local(("var", "variance", "v", "sigma2"))
        if way == "var":
            b.line(
                rng.choice(
                    [
                        f"{v} = {n}.var(dim={d}, keepdim=True, unbiased=False)",
                        f"{v} = {n}.var({d}, unbiased=False, keepdim=True)",
                        f"{v} = torch.var({n}, dim={d}, keepdim=True, unbiased=False)",
                        f"{v} = {n}.var(dim={d}, correction=0, keepdim=True)",
                    ]
                )
            )
        elif way == "var1":
            b.line(
                rng.choice(
                    [
                        f"{v} = {n}.var(dim={d}, keepdim=True)",
                        f"{v} = torch.var({n}, dim={d}, keepdim=True)",
                    ]
                )
            )
        else:
            b.line(
                rng.choice(
                    [
                        f"{v} = (({n} - {mean}) ** 2).mean(dim={d}, keepdim=True)",
                        f"{v} = ({n} - {mean}).pow(2).mean({d}, keepdim=True)",
                        f"{v} = torch.mean(({n} - {mean}) ** 2, dim={d}, keepdim=True)",
                    ]
                )
            )
        b.cur = rng.choice(
            [
                f"({n} - {mean}) / torch.sqrt({v} + {eps})",
                f"({n} - {mean}) / ({v} + {eps}).sqrt()",
                f"({n} - {mean}) * torch.rsqrt({v} + {eps})",
            ]
        )
    post: list[PointOp] = []
    if rng.random() < 0.55:
        post += affine_ops(b, index)
    post += sample_chain(b, post_count)
    standardize(b, d, eps, pre, post, schedule, **how)


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
    w = b.parameter(
        ("weight", "gamma", "scale", "g", "gain", "weight"),
        shape,
        rng.choice(["torch.ones({shape})", "torch.ones({shape})", None]),
    )
    b.apply(rng.choice(["{a} * {w}", "{w} * {a}", "{w} * {a}", "{a} * {w}"]), "scaled", w=w)
    ops = [
        PointOp(name="mul", code=("v = v * {0};",), operands=(Operand(kind="broadcast", call=w),))
    ]
    if bias:
        c = b.parameter(
            ("bias", "beta", "shift", "b", "bias"),
            shape,
            rng.choice(["torch.zeros({shape})", "torch.zeros({shape})", None]),
        )
        b.apply("{a} + {c}", "out", c=c)
        ops.append(
            PointOp(
                name="add", code=("v = v + {0};",), operands=(Operand(kind="broadcast", call=c),)
            )
        )
    return ops
