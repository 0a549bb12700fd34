"""Family: softmax, log_softmax and softmin over any dimension, with elementwise operators around."""

from collections.abc import Sequence

from dice.data.synth import rowwise
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, PointOp
from dice.data.synth.dims import pick_axis
from dice.data.synth.pointwise import point_function
from dice.data.synth.shapes import draw_shape, maybe_flatten

_HANDWRITTEN = (
    ("e = torch.exp({n} - {n}.max(dim={d}, keepdim=True)[0])", "e / e.sum(dim={d}, keepdim=True)"),
    (
        "e = torch.exp({n} - torch.max({n}, dim={d}, keepdim=True).values)",
        "e / torch.sum(e, dim={d}, keepdim=True)",
    ),
    ("e = torch.exp({n} - {n}.amax(dim={d}, keepdim=True))", "e / e.sum(dim={d}, keepdim=True)"),
    ("e = torch.exp({n})", "e / torch.sum(e, dim={d}, keepdim=True)"),
)


def spell_softmax(b: Builder, kind: str) -> str:
    """Write it into the problem's forward; returns the candidate's expression of the dimension."""
    rng = b.rng
    hint = {
        "softmax": rng.choice(["probs", "weights", "attn", "probabilities"]),
        "log_softmax": "log_probs",
    }.get(kind, "out")
    way = rng.random()
    if kind == "softmax" and way < 0.1:
        axis = pick_axis(b, last=0.68)
        first, second = rng.choice(_HANDWRITTEN)
        n = b.as_name()
        e = b.local(["e", "exp_x", "exps", "ex", "numerator", "exp_scores"])
        b.line(first.replace("e = ", f"{e} = ", 1).replace("{n}", n).replace("{d}", axis.expr))
        b.cur = (
            second.replace("e.", f"{e}.")
            .replace("(e,", f"({e},")
            .replace("e / ", f"{e} / ", 1)
            .replace("{d}", axis.expr)
        )
        return axis.expr
    if way < 0.36:
        cls = {"softmax": "Softmax", "log_softmax": "LogSoftmax", "softmin": "Softmin"}[kind]
        rank = len(b.shape)
        index = rank - 1 if rng.random() < 0.6 else (1 if rank > 1 else 0)
        value = str(index - rank if index == rank - 1 and rng.random() < 0.6 else index)
        arg = b.ctor_expr(("dim", "axis", "softmax_dim"), value, 0.7)
        attr = b.module(
            (kind, kind, "act", "softmax", "activation", "normalize"),
            f"nn.{cls}({'dim=' if rng.random() < 0.85 else ''}{arg})",
        )
        b.apply(f"{attr}({{x}})", hint)
        return f"{attr}.dim"
    axis = pick_axis(b, last=0.62)
    d = axis.expr
    forms = [
        f"F.{kind}({{x}}, dim={{d}})",
        f"F.{kind}({{x}}, dim={{d}})",
        f"torch.nn.functional.{kind}({{x}}, dim={{d}})",
    ]
    if kind != "softmin":
        forms += [
            f"torch.{kind}({{x}}, dim={{d}})",
            f"torch.{kind}({{x}}, dim={{d}})",
            f"{{a}}.{kind}(dim={{d}})",
            f"{{a}}.{kind}({{d}})",
            f"torch.{kind}({{x}}, {{d}})",
            f"F.{kind}({{x}}, {{d}})",
        ]
    if kind == "log_softmax" and rng.random() < 0.1:
        forms = [
            "torch.log(F.softmax({x}, dim={d}))",
            "torch.log(torch.softmax({x}, dim={d}))",
            "{n} - torch.logsumexp({n}, dim={d}, keepdim=True)",
        ]
    b.apply(rng.choice(forms), hint, d=d)
    return d


def softmax_function(
    b: Builder, kind: str, dim: str, pre: Sequence[PointOp], post: Sequence[PointOp], schedule: str
) -> None:
    """Add the host function; `dim` is the candidate's expression."""
    f = HostFunction(
        ops=[*(op.name for op in pre), kind, *(op.name for op in post)], leading=[("x", b.lead())]
    )
    warp = "warp_shuffle" if schedule == "warp_shuffle" else "tree"
    rowwise.use_block(f, "max", warp)
    rowwise.use_block(f, "sum", warp)
    pre_lines = f.point(pre, "i")
    f.scalar(dim, "int64_t", "dim")
    post_lines = f.point(post, "i")
    negate = "v = -v;" if kind == "softmin" else None
    first = ["float v = x[i];", *pre_lines, *([negate] if negate else [])]
    src = "x"
    if len(first) > 1:
        first.append("out[i] = v;")
        src = "out"
    again = f"float v = {src}[i];"
    result = {"log_softmax": "v = v - m - logf(sum);"}.get(kind, "v = expf(v - m) / sum;")
    if schedule == "online":
        body = (
            "    float top = -INFINITY, sum = 0.0f;\n"
            + rowwise.loop(
                [
                    *first,
                    "float m = fmaxf(top, v);",
                    "sum = sum * expf(top - m) + expf(v - m);",
                    "top = m;",
                ]
            )
            + "    float m = block_max(top);\n"
            "    sum = block_sum(sum * expf(top - m));\n"
            + rowwise.loop([again, result, *post_lines, "out[i] = v;"])
        )
    else:
        body = (
            "    float m = -INFINITY, sum = 0.0f;\n"
            + rowwise.loop([*first, "m = fmaxf(m, v);"])
            + "    m = block_max(m);\n"
            + rowwise.loop([again, "sum += expf(v - m);"])
            + "    sum = block_sum(sum);\n"
            + rowwise.loop([again, result, *post_lines, "out[i] = v;"])
        )
    every, f.params = f.params, [p for p in f.params if p[1] != "dim"]
    f.kernels.append(rowwise.kernel(f, body))
    f.host_body = [
        *rowwise.split_dim(),
        "auto out = torch::empty_like(x);",
        *rowwise.launch(f, schedule),
    ]
    f.params = every
    b.call(f)


def add_softmax(b: Builder, pre: Sequence[PointOp], post_count: int | None = None) -> None:
    """Softmax of the current value, then perhaps further operators; both sides."""
    rng = b.rng
    kind = rng.choices(["softmax", "log_softmax", "softmin"], [66, 28, 6])[0]
    dim = spell_softmax(b, kind)
    count = rng.choices([0, 1, 2], [74, 19, 7])[0] if post_count is None else post_count
    post = sample_chain(b, count, Range(sign="nonneg" if kind != "log_softmax" else "any"))
    schedule = rng.choices(["two_pass", "online", "warp_shuffle"], [76, 12, 12])[0]
    b.schedule = schedule
    if (pre or post) and rng.random() < 0.15:
        if pre:
            point_function(b, pre)
        softmax_function(b, kind, dim, [], [], schedule)
        if post:
            point_function(b, post)
        b.schedule = "separate"
        return
    softmax_function(b, kind, dim, pre, post, schedule)


def build_softmax(b: Builder) -> None:
    """Softmax with 0 to 2 elementwise operators before and after."""
    rng = b.rng
    dims = draw_shape(b, ranks=(2, 3, 4) if rng.random() < 0.93 else (1, 5))
    name = b.input("scores" if rng.random() < 0.4 else "x", dims)
    b.start(name, dims)
    maybe_flatten(b, 0.05)
    pre = sample_chain(b, rng.choices([0, 1, 2], [62, 27, 11])[0], Range())
    add_softmax(b, pre)
