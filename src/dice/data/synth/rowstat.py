"""Family: each row divided by, multiplied by or shifted by one statistic of it (RMS, L1, L2, mean, ...)."""

from collections.abc import Sequence
from dataclasses import dataclass

from dice.data.synth import rowwise, values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, PointOp
from dice.data.synth.dims import axis_expr
from dice.data.synth.layer_norm import affine_ops
from dice.data.synth.pointwise import point_function
from dice.data.synth.shapes import draw_shape, maybe_flatten


@dataclass(frozen=True, slots=True, kw_only=True)
class RowStat:
    """One way to normalise a row. Spellings are (statements, result): {n} is the value, {d} the
    dimension, {e} epsilon, {s} a fresh name. `term` accumulates over `v`; `result` uses `acc`."""

    name: str
    kind: str
    """"sum" or "max" or "min"."""
    term: str
    result: str
    spellings: tuple[tuple[str, str], ...]
    eps: bool = False
    weight: float = 1.0
    affine: float = 0.0
    """How often a gain follows."""
    positive: bool = False
    names: tuple[str, ...] = ("norm", "s", "denom")


# fmt: off
STATS: tuple[RowStat, ...] = (
    RowStat(
        name="rms_norm", kind="sum", term="v * v", result="v * rsqrtf(acc / len + eps)", eps=True, weight=26, affine=0.55, names=("rms", "variance", "var", "ms", "norm", "mean_sq", "r", "inv_rms", "mean_of_squares"),
        spellings=(
            ("{s} = torch.sqrt(torch.mean({n} ** 2, dim={d}, keepdim=True) + {e})", "{n} / {s}"),
            ("{s} = torch.sqrt({n}.pow(2).mean(dim={d}, keepdim=True) + {e})", "{n} / {s}"),
            ("{s} = torch.sqrt(torch.mean({n} * {n}, dim={d}, keepdim=True) + {e})", "{n} / {s}"),
            ("{s} = {n}.pow(2).mean(dim={d}, keepdim=True)", "{n} * torch.rsqrt({s} + {e})"),
            ("{s} = {n}.pow(2).mean({d}, keepdim=True)", "{n} * torch.rsqrt({s} + {e})"),
            ("{s} = torch.mean({n} ** 2, dim={d}, keepdim=True)", "{n} / torch.sqrt({s} + {e})"),
            ("{s} = torch.mean({n}.pow(2), dim={d}, keepdim=True)", "{n} * torch.rsqrt({s} + {e})"),
            ("{s} = torch.rsqrt({n}.pow(2).mean({d}, keepdim=True) + {e})", "{n} * {s}"),
            ("{s} = torch.rsqrt(({n} * {n}).mean(dim={d}, keepdim=True) + {e})", "{n} * {s}"),
            ("{s} = (({n} ** 2).mean(dim={d}, keepdim=True) + {e}).sqrt()", "{n} / {s}"),
            ("{s} = ({n} ** 2).mean({d}, keepdim=True).add({e}).rsqrt()", "{n} * {s}"),
            ("{s} = torch.square({n}).mean(dim={d}, keepdim=True)", "{n} / torch.sqrt({s} + {e})"),
            ("{s} = {n}.square().mean(dim={d}, keepdim=True)", "{n} * ({s} + {e}).rsqrt()"),
            ("{s} = {n}.pow(2).mean({d}, keepdim=True)", "{n} / torch.sqrt({s} + {e})"),
            ("", "{n} * torch.rsqrt({n}.pow(2).mean({d}, keepdim=True) + {e})"),
            ("", "{n} * torch.rsqrt({n}.pow(2).mean(dim={d}, keepdim=True) + {e})"),
            ("", "{n} / torch.sqrt(torch.mean({n} ** 2, dim={d}, keepdim=True) + {e})"),
            ("", "{n} / torch.sqrt({n}.pow(2).mean({d}, keepdim=True) + {e})"),
            ("", "{n} * torch.rsqrt(torch.mean({n} * {n}, dim={d}, keepdim=True) + {e})"),
        ),
    ),
    RowStat(
        name="rms_div", kind="sum", term="v * v", result="v / (sqrtf(acc / len) + eps)", eps=True, weight=4, affine=0.5, names=("rms", "r", "norm"),
        spellings=(
            ("{s} = {n}.pow(2).mean(dim={d}, keepdim=True).sqrt()", "{n} / ({s} + {e})"),
            ("{s} = torch.sqrt(torch.mean({n} ** 2, dim={d}, keepdim=True))", "{n} / ({s} + {e})"),
            ("{s} = torch.sqrt({n}.pow(2).mean({d}, keepdim=True))", "{n} / ({s} + {e})"),
        ),
    ),
    RowStat(
        name="l2_normalize", kind="sum", term="v * v", result="v / fmaxf(sqrtf(acc), eps)", eps=True, weight=12, affine=0.06,
        spellings=(
            ("", "F.normalize({n}, p=2, dim={d}, eps={e})"), ("", "F.normalize({n}, dim={d}, eps={e})"), ("", "F.normalize({n}, p=2.0, dim={d}, eps={e})"),
            ("{s} = {n}.norm(p=2, dim={d}, keepdim=True)", "{n} / {s}.clamp(min={e})"), ("{s} = {n}.norm(dim={d}, keepdim=True).clamp(min={e})", "{n} / {s}"),
            ("{s} = torch.norm({n}, p=2, dim={d}, keepdim=True)", "{n} / torch.clamp({s}, min={e})"),
        ),
    ),
    RowStat(
        name="l2_normalize_default", kind="sum", term="v * v", result="v / fmaxf(sqrtf(acc), eps)", weight=12, affine=0.05,
        spellings=(
            ("", "F.normalize({n}, p=2, dim={d})"), ("", "F.normalize({n}, dim={d})"), ("", "F.normalize({n}, p=2, dim={d})"), ("", "F.normalize({n}, p=2.0, dim={d})"),
        ),
    ),
    RowStat(
        name="div_norm", kind="sum", term="v * v", result="v / sqrtf(acc)", weight=12, affine=0.05,
        spellings=(
            ("", "{n} / torch.norm({n}, p=2, dim={d}, keepdim=True)"), ("", "{n} / {n}.norm(dim={d}, keepdim=True)"), ("", "{n} / {n}.norm(p=2, dim={d}, keepdim=True)"),
            ("{s} = torch.norm({n}, p=2, dim={d}, keepdim=True)", "{n} / {s}"), ("{s} = torch.norm({n}, dim={d}, keepdim=True)", "{n} / {s}"), ("{s} = {n}.norm(p=2, dim={d}, keepdim=True)", "{n} / {s}"),
            ("{s} = torch.sqrt(torch.sum({n} ** 2, dim={d}, keepdim=True))", "{n} / {s}"), ("{s} = torch.sqrt(torch.sum({n} * {n}, dim={d}, keepdim=True))", "{n} / {s}"),
            ("{s} = {n}.pow(2).sum(dim={d}, keepdim=True).sqrt()", "{n} / {s}"), ("{s} = torch.linalg.norm({n}, dim={d}, keepdim=True)", "{n} / {s}"), ("", "{n} / torch.linalg.vector_norm({n}, dim={d}, keepdim=True)"),
            ("{s} = {n}.norm(2, {d}, keepdim=True)", "{n} / {s}"), ("", "torch.div({n}, torch.norm({n}, p=2, dim={d}, keepdim=True))"),
        ),
    ),
    RowStat(
        name="div_norm_eps", kind="sum", term="v * v", result="v / (sqrtf(acc) + eps)", eps=True, weight=8, affine=0.1,
        spellings=(
            ("{s} = torch.norm({n}, p=2, dim={d}, keepdim=True)", "{n} / ({s} + {e})"), ("{s} = {n}.norm(dim={d}, keepdim=True)", "{n} / ({s} + {e})"), ("", "{n} / ({n}.norm(p=2, dim={d}, keepdim=True) + {e})"),
            ("{s} = {n}.norm(2, dim={d}, keepdim=True) + {e}", "{n} / {s}"), ("{s} = torch.sqrt(torch.sum({n} ** 2, dim={d}, keepdim=True))", "{n} / ({s} + {e})"),
        ),
    ),
    RowStat(
        name="l2_norm_rsqrt", kind="sum", term="v * v", result="v * rsqrtf(acc + eps)", eps=True, weight=4, affine=0.1,
        spellings=(
            ("{s} = torch.sqrt(torch.sum({n} ** 2, dim={d}, keepdim=True) + {e})", "{n} / {s}"), ("{s} = {n}.pow(2).sum(dim={d}, keepdim=True)", "{n} / torch.sqrt({s} + {e})"),
            ("{s} = ({n} * {n}).sum(dim={d}, keepdim=True)", "{n} * torch.rsqrt({s} + {e})"), ("", "{n} / torch.sqrt({n}.pow(2).sum({d}, keepdim=True) + {e})"),
        ),
    ),
    RowStat(
        name="div_mean_abs", kind="sum", term="fabsf(v)", result="v / (acc / len)", weight=9,
        spellings=(
            ("", "{n} / torch.mean(torch.abs({n}), dim={d}, keepdim=True)"), ("", "{n} / {n}.abs().mean(dim={d}, keepdim=True)"), ("{s} = torch.mean(torch.abs({n}), dim={d}, keepdim=True)", "{n} / {s}"),
            ("{s} = {n}.abs().mean(dim={d}, keepdim=True)", "{n} / {s}"), ("{s} = {n}.abs().mean({d}, keepdim=True)", "{n} / {s}"), ("", "torch.div({n}, torch.abs({n}).mean(dim={d}, keepdim=True))"),
        ),
    ),
    RowStat(
        name="l1_normalize", kind="sum", term="fabsf(v)", result="v / fmaxf(acc, eps)", weight=5,
        spellings=(("", "F.normalize({n}, p=1, dim={d})"), ("", "F.normalize({n}, p=1.0, dim={d})")),
    ),
    RowStat(
        name="div_sum_abs", kind="sum", term="fabsf(v)", result="v / acc", weight=5,
        spellings=(
            ("", "{n} / torch.norm({n}, p=1, dim={d}, keepdim=True)"), ("{s} = {n}.norm(p=1, dim={d}, keepdim=True)", "{n} / {s}"), ("", "{n} / {n}.abs().sum(dim={d}, keepdim=True)"),
            ("{s} = torch.sum(torch.abs({n}), dim={d}, keepdim=True)", "{n} / {s}"), ("", "{n} / torch.sum(torch.abs({n}), dim={d}, keepdim=True)"),
        ),
    ),
    RowStat(
        name="div_sum_abs_eps", kind="sum", term="fabsf(v)", result="v / (acc + eps)", eps=True, weight=3,
        spellings=(("{s} = {n}.abs().sum(dim={d}, keepdim=True)", "{n} / ({s} + {e})"), ("", "{n} / (torch.sum(torch.abs({n}), dim={d}, keepdim=True) + {e})"), ("{s} = torch.norm({n}, p=1, dim={d}, keepdim=True)", "{n} / ({s} + {e})")),
    ),
    RowStat(
        name="div_mean_abs_eps", kind="sum", term="fabsf(v)", result="v / (acc / len + eps)", eps=True, weight=3,
        spellings=(("{s} = {n}.abs().mean(dim={d}, keepdim=True)", "{n} / ({s} + {e})"), ("", "{n} / (torch.mean(torch.abs({n}), dim={d}, keepdim=True) + {e})")),
    ),
    RowStat(
        name="div_sum", kind="sum", term="v", result="v / acc", weight=4, positive=True, names=("total", "s", "denom"),
        spellings=(("", "{n} / {n}.sum(dim={d}, keepdim=True)"), ("", "{n} / torch.sum({n}, dim={d}, keepdim=True)"), ("{s} = {n}.sum(dim={d}, keepdim=True)", "{n} / {s}"), ("{s} = torch.sum({n}, dim={d}, keepdim=True)", "{n} / {s}")),
    ),
    RowStat(
        name="sub_mean", kind="sum", term="v", result="v - acc / len", weight=7, names=("mean", "mu", "m", "avg", "center"),
        spellings=(("", "{n} - {n}.mean(dim={d}, keepdim=True)"), ("", "{n} - torch.mean({n}, dim={d}, keepdim=True)"), ("{s} = {n}.mean(dim={d}, keepdim=True)", "{n} - {s}"), ("{s} = torch.mean({n}, dim={d}, keepdim=True)", "{n} - {s}"), ("", "{n} - {n}.mean({d}, keepdim=True)")),
    ),
    RowStat(
        name="sub_max", kind="max", term="v", result="v - acc", weight=4, names=("m", "mx", "max_val", "row_max"),
        spellings=(("", "{n} - {n}.max(dim={d}, keepdim=True)[0]"), ("", "{n} - torch.max({n}, dim={d}, keepdim=True)[0]"), ("{s} = {n}.amax(dim={d}, keepdim=True)", "{n} - {s}"), ("{s} = torch.max({n}, dim={d}, keepdim=True).values", "{n} - {s}")),
    ),
    RowStat(
        name="div_max", kind="max", term="v", result="v / acc", weight=2, positive=True, names=("m", "mx", "max_val", "peak"),
        spellings=(("", "{n} / {n}.max(dim={d}, keepdim=True)[0]"), ("{s} = torch.amax({n}, dim={d}, keepdim=True)", "{n} / {s}"), ("{s} = {n}.amax(dim={d}, keepdim=True)", "{n} / {s}")),
    ),
    RowStat(
        name="div_max_abs", kind="max", term="fabsf(v)", result="v / (acc + eps)", eps=True, weight=3, names=("m", "scale", "max_abs", "peak", "absmax"),
        spellings=(("{s} = {n}.abs().amax(dim={d}, keepdim=True)", "{n} / ({s} + {e})"), ("{s} = {n}.abs().max(dim={d}, keepdim=True)[0]", "{n} / ({s} + {e})"), ("", "{n} / (torch.amax(torch.abs({n}), dim={d}, keepdim=True) + {e})")),
    ),
    RowStat(
        name="mul_mean", kind="sum", term="v", result="v * (acc / len)", weight=2, names=("mean", "m", "avg", "w", "pooled"),
        spellings=(("", "{n} * {n}.mean(dim={d}, keepdim=True)"), ("{s} = {n}.mean(dim={d}, keepdim=True)", "{n} * {s}"), ("{s} = torch.mean({n}, dim={d}, keepdim=True)", "{n} * {s}")),
    ),
    RowStat(
        name="mul_sigmoid_mean", kind="sum", term="v", result="v / (1.0f + expf(-acc / len))", weight=3, names=("g", "gate", "w", "attn", "s"),
        spellings=(("{s} = torch.sigmoid({n}.mean(dim={d}, keepdim=True))", "{n} * {s}"), ("", "{n} * torch.sigmoid({n}.mean(dim={d}, keepdim=True))"), ("{s} = {n}.mean(dim={d}, keepdim=True).sigmoid()", "{n} * {s}")),
    ),
    RowStat(
        name="add_mean", kind="sum", term="v", result="v + acc / len", weight=1.5, names=("mean", "m", "avg", "context"),
        spellings=(("", "{n} + {n}.mean(dim={d}, keepdim=True)"), ("{s} = {n}.mean(dim={d}, keepdim=True)", "{n} + {s}")),
    ),
)
# fmt: on

_EXTRA_METHODS = (
    "{n} * torch.rsqrt({n}.pow(2).mean(-1, keepdim=True) + {e})",
    "{n} / torch.sqrt({n}.pow(2).mean(-1, keepdim=True) + {e})",
    "{n} * torch.rsqrt(torch.mean({n} * {n}, dim=-1, keepdim=True) + {e})",
)


def stat_function(
    b: Builder,
    stat: RowStat,
    dim: str,
    eps: str | None,
    pre: Sequence[PointOp],
    post: Sequence[PointOp],
    schedule: str,
) -> None:
    """Add the host function."""
    name = {"l2_normalize_default": "l2_normalize"}.get(stat.name, stat.name)
    f = HostFunction(
        ops=[*(op.name for op in pre), name, *(op.name for op in post)], leading=[("x", b.lead())]
    )
    pre_lines = f.point(pre, "i")
    f.scalar(dim, "int64_t", "dim")
    if eps is not None:
        f.scalar(eps, name="eps")
    post_lines = f.point(post, "i")
    rowwise.use_block(f, stat.kind, schedule)
    first = ["float v = x[i];", *pre_lines, *(["out[i] = v;"] if pre else [])]
    update = (
        f"acc += {stat.term};"
        if stat.kind == "sum"
        else f"acc = {rowwise.combine(stat.kind, 'acc', stat.term)};"
    )
    body = (
        f"    float acc = {rowwise.zero(stat.kind)};\n"
        + rowwise.loop([*first, update])
        + f"    acc = block_{stat.kind}(acc);\n"
        + rowwise.loop(
            [
                f"float v = {'out' if pre else 'x'}[i];",
                f"v = {stat.result};",
                *post_lines,
                "out[i] = v;",
            ]
        )
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


def add_stat(
    b: Builder, pre: Sequence[PointOp], post_count: int, known: Range, *, only: str | None = None
) -> None:
    """Normalise the current value by a row statistic, both sides."""
    rng = b.rng
    fit = [
        s
        for s in STATS
        if (not s.positive or known.sign == "pos") and (only is None or s.name == only)
    ]
    stat = rng.choices(fit, [s.weight for s in fit])[0]
    rank = len(b.shape)
    last = 0.8 if stat.affine > 0.4 else 0.5
    index = (
        rank - 1
        if rank == 1 or rng.random() < last
        else (1 if rank > 2 or rng.random() < 0.7 else 0)
    )
    if rank == 2 and index == 0 and stat.affine > 0.4:
        index = 1
    method = stat.name == "rms_norm" and index == rank - 1 and rng.random() < 0.14
    d = "-1" if method else axis_expr(b, index, attribute=0.18)
    eps: str | None = None
    if stat.eps:
        kind = (
            "eps"
            if stat.name
            in (
                "l2_normalize",
                "div_norm_eps",
                "div_sum_abs_eps",
                "div_mean_abs_eps",
                "div_max_abs",
                "rms_div",
            )
            else "eps_safe"
        )
        eps = b.hyper(
            ("eps", "eps", "eps", "epsilon", "norm_eps", "variance_epsilon"), values.draw(rng, kind)
        )
    elif "normalize" in stat.name:
        eps = "1e-12"
    statement, result = rng.choice(stat.spellings)
    if method:
        n = b.as_name()
        name = rng.choice(["_norm", "_norm", "norm", "_rms_norm", "normalize"])
        text = rng.choice(_EXTRA_METHODS).replace("{n}", "x").replace("{e}", eps or "")
        b.methods.append(f"    def {name}(self, x):\n        return {text}\n")
        form = rng.choice(["self.{m}({n})", "self.{m}({n}.float()).type_as({n})", "self.{m}({n})"])
        b.cur = form.replace("{m}", name).replace("{n}", n)
        if rng.random() < 0.6:
            b.assign(rng.choice(["output", "normed", "out"]))
    else:
        simple = "{n}" in result and result.startswith("F.normalize")
        if simple:
            b.apply(
                result.replace("{n}", "{x}"), rng.choice(["normed", "normalized"]), d=d, e=eps or ""
            )
        else:
            n = b.as_name()
            if statement:
                b.keep(n)
                s = b.local(stat.names)
                b.line(
                    statement.replace("{s}", s)
                    .replace("{n}", n)
                    .replace("{d}", d)
                    .replace("{e}", eps or "")
                )
                result = result.replace("{s}", s)
            b.apply(result, rng.choice(["normed", "normalized", "x_norm", "out"]), d=d, e=eps or "")
    post: list[PointOp] = []
    if rng.random() < stat.affine and not (rank == 2 and index == 0):
        post += affine_ops(b, index, bias=rng.random() < 0.12)
    post += sample_chain(b, post_count)
    schedule = "warp_shuffle" if rng.random() < 0.14 else "tree"
    b.schedule = schedule
    if pre and rng.random() < 0.2:
        point_function(b, pre)
        b.schedule = "separate"
        pre = []
    stat_function(b, stat, d, eps, pre, post, schedule)


def build_rowstat(b: Builder) -> None:
    """A row statistic normalisation, with 0 to 2 elementwise operators before and after."""
    rng = b.rng
    dims = draw_shape(b, ranks=(2, 3, 4))
    known = Range()
    make = None
    if rng.random() < 0.2:
        make = rng.choice(
            ["torch.rand({shape}) + 0.1", "torch.rand({shape})", "torch.rand({shape}) + 0.5"]
        )
        known.sign = "pos"
    name = b.input("x", dims, make)
    b.start(name, dims)
    maybe_flatten(b, 0.05)
    pre = sample_chain(
        b,
        rng.choices([0, 1, 2], [74, 19, 7])[0],
        Range(sign="nonneg" if known.sign == "pos" else "any"),
    )
    if pre:
        known.sign = "any"
    add_stat(b, pre, rng.choices([0, 1, 2], [70, 22, 8])[0], known)


def build_global_norm(b: Builder) -> None:
    """The whole tensor divided by its norm, or shifted by its mean: two kernels."""
    rng = b.rng
    dims = draw_shape(b, ranks=(1, 2, 3, 4))
    name = b.input("x", dims)
    b.start(name, dims)
    kind = rng.choices(["fro", "mean", "l1", "mean_abs"], [64, 16, 10, 10])[0]
    pre = sample_chain(b, rng.choices([0, 1], [82, 18])[0], Range(), extra_tensors=False)
    n = b.as_name()
    b.keep(n)
    s = b.local(
        ("norm", "n", "fro_norm", "norm_value", "s") if kind != "mean" else ("mean", "mu", "m")
    )
    eps = None
    if kind == "fro":
        stat = rng.choice(
            [
                "torch.norm({n}, p='fro')",
                "torch.norm({n}, p='fro')",
                "torch.norm({n})",
                "{n}.norm()",
                "torch.linalg.norm({n})",
                "torch.sqrt(torch.sum({n} ** 2))",
                "torch.norm({n}, p=2)",
                "{n}.norm(p='fro')",
                "{n}.pow(2).sum().sqrt()",
                "torch.linalg.vector_norm({n})",
            ]
        )
        term, result = "v * v", "v / sqrtf(*total)"
        if rng.random() < 0.3:
            eps = b.hyper(("eps", "epsilon"), values.draw(rng, "eps"))
            result = "v / (sqrtf(*total) + eps)"
    elif kind == "mean":
        stat, term, result = rng.choice(["{n}.mean()", "torch.mean({n})"]), "v", "v - *total / n"
    elif kind == "l1":
        stat, term, result = (
            rng.choice(["torch.norm({n}, p=1)", "{n}.abs().sum()", "torch.sum(torch.abs({n}))"]),
            "fabsf(v)",
            "v / *total",
        )
    else:
        stat, term, result = (
            rng.choice(["torch.mean(torch.abs({n}))", "{n}.abs().mean()"]),
            "fabsf(v)",
            "v / (*total / n)",
        )
    stat = stat.replace("{n}", n)
    sign = "-" if kind == "mean" else "/"
    if rng.random() < 0.6:
        b.line(f"{s} = {stat}")
        stat = s
    b.cur = f"{n} {sign} {stat}" if eps is None else f"{n} / ({stat} + {eps})"
    if rng.random() < 0.4:
        b.assign(rng.choice(["out", "normed", "x_normalized"]))
    post = sample_chain(b, rng.choices([0, 1], [80, 20])[0], extra_tensors=False)
    op = {
        "fro": "fro_normalize",
        "mean": "global_center",
        "l1": "global_l1_normalize",
        "mean_abs": "global_div_mean_abs",
    }[kind]
    f = HostFunction(
        ops=[*(o.name for o in pre), op, *(o.name for o in post)], leading=[("x", b.lead())]
    )
    rowwise.use_block(f, "sum", "tree")
    pre_lines = f.point(pre, "i")
    first_params, first_args = f.kernel_params(), f.launch_args()
    if eps is not None:
        f.scalar(eps, name="eps")
    post_lines = f.point(post, "i")
    step = "    int64_t stride = (int64_t)gridDim.x * blockDim.y;\n    for (int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; i < n; i += stride) {\n"
    inner = "".join(f"        {line}\n" for line in ["float v = x[i];", *pre_lines])
    after = "".join(f"        {line}\n" for line in [f"v = {result};", *post_lines, "out[i] = v;"])
    f.kernels.append(
        f"__global__ void NAME_total_kernel(const float* x, {first_params}float* total, int64_t n) {{\n    float acc = 0.0f;\n{step}{inner}"
        f"        acc += {term};\n    }}\n    acc = block_sum(acc);\n    if (threadIdx.y == 0) atomicAdd(total, acc);\n}}"
    )
    f.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}const float* total, float* out, int64_t n) {{\n{step}{inner}{after}    }}\n}}"
    )
    f.host_body = [
        "auto total = torch::zeros({}, x.options());",
        "auto out = torch::empty_like(x);",
        "int64_t n = x.numel();",
        "int64_t blocks = std::min<int64_t>((n + 255) / 256, 1024);",
        "dim3 block(1, 256);",
        f"NAME_total_kernel<<<blocks, block>>>(x.data_ptr<float>(), {first_args}total.data_ptr<float>(), n);",
        f"NAME_kernel<<<blocks, block>>>(x.data_ptr<float>(), {f.launch_args()}total.data_ptr<float>(), out.data_ptr<float>(), n);",
        "return out;",
    ]
    b.call(f)
