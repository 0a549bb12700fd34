"""Family: losses of a prediction and a target: elementwise ones, then mean or sum of everything."""

from dataclasses import dataclass
from typing import Any

from dice.data.synth import rowwise, values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, Operand, PointOp, indent
from dice.data.synth.pointwise import point_function
from dice.data.synth.reduce import whole_sum
from dice.data.synth.shapes import draw_dim, draw_shape

_PRED = (
    "predictions",
    "predictions",
    "pred",
    "prediction",
    "preds",
    "output",
    "y_pred",
    "input",
    "x",
    "outputs",
    "inputs",
    "y_hat",
    "estimate",
)
_TARGET = (
    "targets",
    "targets",
    "target",
    "target",
    "labels",
    "y_true",
    "y",
    "label",
    "t",
    "truth",
    "reference",
    "gt",
)
_LOSS_ATTR = ("loss_fn", "criterion", "loss", "loss_func", "loss_function", "crit")


@dataclass(frozen=True, slots=True, kw_only=True)
class Loss:
    """An elementwise loss: C statements turn `v` (prediction) into the loss, {0} being the target."""

    name: str
    code: tuple[str, ...]
    mean: tuple[str, ...] = ()
    """Spellings of its mean, of {p} and {t}."""
    total: tuple[str, ...] = ()
    """Spellings of its sum."""
    none: tuple[str, ...] = ()
    """Spellings without reduction."""
    module: str = ""
    param: tuple[tuple[str, ...], str, str, str] | None = None
    """Names, kind of value, module attribute, keyword of its hyper-parameter; {q} in spellings."""
    pred: str = "torch.randn({shape})"
    target: str = "torch.randn({shape})"
    weight: float = 1.0
    broadcast: float = 0.0
    """How often the target has one value per row."""


def _f(name: str, extra: str = "") -> dict[str, Any]:
    call = f"F.{name}({{p}}, {{t}}{extra}"
    return {
        "mean": (call + ")", call + ")", call + ", reduction='mean')"),
        "total": (call + ", reduction='sum')",),
        "none": (call + ", reduction='none')",),
    }


# fmt: off
LOSSES: tuple[Loss, ...] = (
    Loss(name="mse", code=("v = v - {0};", "v = v * v;"), module="MSELoss", weight=4,
         mean=(*_f("mse_loss")["mean"], "torch.mean(({p} - {t}) ** 2)", "torch.mean(({p} - {t}) ** 2)", "(({p} - {t}) ** 2).mean()", "({p} - {t}).pow(2).mean()", "torch.mean(torch.square({p} - {t}))", "torch.mean(torch.pow({p} - {t}, 2))", "torch.square({p} - {t}).mean()",
               "L:diff = {p} - {t}|(diff * diff).mean()", "L:diff = {p} - {t}|torch.mean(diff ** 2)", "L:diff = {p} - {t}|diff.pow(2).mean()", "L:err = {p} - {t}|torch.mean(err * err)", "L:sq = ({p} - {t}) ** 2|sq.mean()"),
         total=(*_f("mse_loss")["total"], "torch.sum(({p} - {t}) ** 2)", "(({p} - {t}) ** 2).sum()", "({p} - {t}).pow(2).sum()", "L:diff = {p} - {t}|torch.sum(diff * diff)"), none=_f("mse_loss")["none"]),
    Loss(name="l1", code=("v = fabsf(v - {0});",), module="L1Loss", weight=2.5,
         mean=(*_f("l1_loss")["mean"], "torch.mean(torch.abs({p} - {t}))", "({p} - {t}).abs().mean()", "torch.abs({p} - {t}).mean()", "L:diff = {p} - {t}|diff.abs().mean()", "L:err = torch.abs({p} - {t})|torch.mean(err)"),
         total=(*_f("l1_loss")["total"], "torch.sum(torch.abs({p} - {t}))", "({p} - {t}).abs().sum()"), none=_f("l1_loss")["none"]),
    Loss(name="smooth_l1", code=("v = fabsf(v - {0});", "v = v < {1} ? 0.5f * v * v / {1} : v - 0.5f * {1};"), module="SmoothL1Loss", weight=3,
         mean=_f("smooth_l1_loss", "{q}")["mean"], total=_f("smooth_l1_loss", "{q}")["total"], none=_f("smooth_l1_loss", "{q}")["none"], param=(("beta",), "margin", "beta", "beta")),
    Loss(name="huber", code=("v = fabsf(v - {0});", "v = v <= {1} ? 0.5f * v * v : {1} * (v - 0.5f * {1});"), module="HuberLoss", weight=2,
         mean=_f("huber_loss", "{q}")["mean"], total=_f("huber_loss", "{q}")["total"], none=_f("huber_loss", "{q}")["none"], param=(("delta",), "margin", "delta", "delta")),
    Loss(name="hinge", code=("v = fmaxf(1.0f - v * {0}, 0.0f);",), weight=3, target="torch.randint(0, 2, {size}).float() * 2 - 1", broadcast=0.5,
         mean=("torch.mean(torch.clamp(1 - {p} * {t}, min=0))", "torch.mean(torch.clamp(1 - {p} * {t}, min=0))", "torch.clamp(1 - {p} * {t}, min=0).mean()", "torch.mean(F.relu(1 - {p} * {t}))", "F.relu(1 - {p} * {t}).mean()", "torch.mean(torch.relu(1.0 - {t} * {p}))", "(1 - {t} * {p}).clamp(min=0).mean()", "torch.clamp(1.0 - {t} * {p}, min=0.0).mean()"),
         total=("torch.sum(torch.clamp(1 - {p} * {t}, min=0))", "F.relu(1 - {p} * {t}).sum()")),
    Loss(name="squared_hinge", code=("v = fmaxf(1.0f - v * {0}, 0.0f);", "v = v * v;"), weight=0.8, target="torch.randint(0, 2, {size}).float() * 2 - 1",
         mean=("torch.mean(torch.clamp(1 - {p} * {t}, min=0) ** 2)", "F.relu(1 - {p} * {t}).pow(2).mean()", "torch.clamp(1 - {t} * {p}, min=0).square().mean()")),
    Loss(name="bce", code=("v = -({0} * fmaxf(logf(v), -100.0f) + (1.0f - {0}) * fmaxf(log1pf(-v), -100.0f));",), module="BCELoss", pred="torch.rand({shape})", target="torch.rand({shape})", weight=1.5, **_f("binary_cross_entropy")),
    Loss(name="bce_with_logits", code=("v = fmaxf(v, 0.0f) - v * {0} + log1pf(expf(-fabsf(v)));",), module="BCEWithLogitsLoss", target="torch.randint(0, 2, {size}).float()", weight=2, **_f("binary_cross_entropy_with_logits")),
    Loss(name="kl_div", code=("v = {0} > 0.0f ? {0} * (logf({0}) - v) : 0.0f;",), module="KLDivLoss", pred="torch.randn({shape}).log_softmax(dim=-1)", target="torch.rand({shape}).softmax(dim=-1)", weight=2.5,
         mean=("F.kl_div({p}, {t})", "F.kl_div({p}, {t}, reduction='mean')"), total=("F.kl_div({p}, {t}, reduction='sum')", "torch.sum({t} * (torch.log({t}) - {p}))")),
    Loss(name="log_cosh", code=("v = logf(coshf(v - {0}));",), weight=0.8, mean=("torch.mean(torch.log(torch.cosh({p} - {t})))", "torch.log(torch.cosh({p} - {t})).mean()"), total=("torch.sum(torch.log(torch.cosh({p} - {t})))",)),
    Loss(name="poisson_nll", code=("v = expf(v) - {0} * v;",), module="PoissonNLLLoss", target="torch.rand({shape}) * 3", weight=0.8, **_f("poisson_nll_loss")),
    Loss(name="soft_margin", code=("v = log1pf(expf(-{0} * v));",), module="SoftMarginLoss", target="torch.randint(0, 2, {size}).float() * 2 - 1", weight=0.8, **_f("soft_margin_loss")),
    Loss(name="charbonnier", code=("v = v - {0};", "v = sqrtf(v * v + {1});"), weight=0.8, mean=("torch.mean(torch.sqrt(({p} - {t}) ** 2 + {q}))", "torch.sqrt(({p} - {t}).pow(2) + {q}).mean()"), param=(("eps", "epsilon"), "eps_safe", "", "")),
    Loss(name="dot", code=("v = v * {0};",), weight=0.7, mean=("torch.mean({p} * {t})", "({p} * {t}).mean()"), total=("torch.sum({p} * {t})", "({p} * {t}).sum()")),
)
# fmt: on
_ONLY_KL_BATCH = (
    "F.kl_div({p}, {t}, reduction='batchmean')",
    "F.kl_div({p}, {t}, reduction='batchmean')",
    "M:nn.KLDivLoss(reduction='batchmean')",
)


def _scaled(b: Builder, make: str) -> str:
    """Sometimes the author scales the prediction by one random number."""
    if b.rng.random() < 0.25 and make in ("torch.rand({shape})", "torch.randn({shape})"):
        b.input_lines.append("scale = torch.rand(())")
        return f"{make} * scale"
    return make


def build_loss(b: Builder) -> None:
    """An elementwise loss with its reduction, and perhaps a factor after it."""
    rng = b.rng
    loss = rng.choices(LOSSES, [x.weight for x in LOSSES])[0]
    dims = (
        draw_shape(b, ranks=(1, 2, 2, 2, 3, 4))
        if rng.random() < 0.35
        else draw_shape(b, layouts=["rows"])
    )
    pred, target = loss.pred, loss.target
    if rng.random() < 0.4:
        pred, target = pred.replace("randn", "rand"), target.replace("randn", "rand")
    if "randint" in target and rng.random() < 0.25 and loss.name == "bce_with_logits":
        target = "torch.rand({shape})"
    p = b.input(_PRED, dims, _scaled(b, pred))
    broadcast = rng.random() < loss.broadcast and len(dims) == 2
    t_dims = [dims[-1]] if broadcast else dims
    if broadcast:
        # the last two sizes are equal when one value per row is broadcast along the last dimension
        dims[0].full, dims[0].small = dims[1].full, dims[1].small = (
            rng.choice(["32768", "4096", "1024", "2048", "512"]),
            rng.choice(["33", "20", "64"]),
        )
        t_dims = [dims[0]]
    t = b.input(_TARGET, t_dims, target)
    b.start(p, dims)
    batchmean = loss.name == "kl_div" and rng.random() < 0.65
    ways = [("mean", loss.mean, 70), ("sum", loss.total, 14), ("none", loss.none, 6)]
    reduction, forms, _ = rng.choices([w for w in ways if w[1]], [w[2] for w in ways if w[1]])[0]
    operand = Operand(kind="broadcast" if loss.broadcast else "same", call=f"{t}.contiguous()")
    pre: list[PointOp] = []
    if loss.name == "kl_div" and rng.random() < 0.5:
        how = rng.choice(["log", "log", "log_softmax"])
        if how == "log":
            b.inputs[0].make = rng.choice(
                [
                    "torch.rand({shape}).softmax(dim=-1)",
                    "torch.randn({shape}).softmax(dim=-1)",
                    "torch.softmax(torch.rand({shape}), dim=-1)",
                ]
            )
            if b.input_lines or rng.random() < 0.3:
                b.input_lines[:] = ["scale = torch.rand(())"]
                b.inputs[0].make = "(torch.rand({shape}) * scale).softmax(dim=-1)"
            b.apply(rng.choice(["torch.log({x})", "{a}.log()", "torch.log({x})"]), "log_p")
            pre.append(PointOp(name="log", code=("v = logf(v);",)))
    elif rng.random() < 0.1 and loss.pred.startswith("torch.randn"):
        pre = sample_chain(b, 1, Range(), extra_tensors=False)
    operands = [operand]
    q = ""
    names_param = loss.param
    module = loss.module and rng.random() < 0.34 and reduction in ("mean", "sum")
    if module:
        args = []
        if batchmean:
            args.append("reduction='batchmean'")
        elif reduction == "sum" or rng.random() < 0.15:
            args.append(f"reduction='{reduction}'")
        if names_param is not None and rng.random() < 0.6:
            args.insert(
                0,
                f"{names_param[3]}={b.ctor_expr(names_param[0], values.draw(rng, names_param[1]), 0.4)}",
            )
        attr = b.module(_LOSS_ATTR, f"nn.{loss.module}({', '.join(args)})")
        b.apply(f"{attr}({{x}}, {t})", "loss")
        if names_param is not None:
            operands.append(Operand(kind="scalar", call=f"{attr}.{names_param[2]}"))
    else:
        if batchmean:
            forms = _ONLY_KL_BATCH[:2]
        form = rng.choice(forms)
        if names_param is not None:
            call = "1.0"
            if names_param[2] == "" or rng.random() < 0.55:
                call = b.hyper(names_param[0], values.draw(rng, names_param[1]))
                q = call if names_param[2] == "" else f", {names_param[3]}={call}"
            operands.append(Operand(kind="scalar", call=call))
        if form.startswith("L:"):
            first, second = form[2:].split("|")
            var = first.split(" = ")[0]
            name = b.local((var, var, "diff", "err", "error", "delta", "d", "e", "residual"))
            right = (
                first.split(" = ")[1]
                .replace("{p}", b.cur if b.cur.isidentifier() else f"({b.cur})")
                .replace("{t}", t)
            )
            b.line(f"{name} = {right}")
            b.cur = second.replace(var, name)
        else:
            swap = loss.name in ("mse", "l1") and rng.random() < 0.1
            cur = b.cur if b.cur.isidentifier() or "F." in form or not pre else f"({b.cur})"
            text = form.replace("{q}", q)
            text = (
                text.replace("{p}", "\0")
                .replace("{t}", cur if swap else t)
                .replace("\0", t if swap else cur)
            )
            b.apply(text.replace("{x}", cur), "loss")
    ops = [*pre, PointOp(name=loss.name, code=loss.code, operands=tuple(operands))]
    if reduction == "none" and not batchmean:
        point_function(
            b, [*pre, PointOp(name=f"{loss.name}_loss", code=loss.code, operands=tuple(operands))]
        )
        return
    b.shape = ()
    kind = "sum" if reduction == "sum" else "mean"
    f = HostFunction(
        ops=[*(o.name for o in ops), "batchmean" if batchmean else kind], leading=[("x", b.lead())]
    )
    if batchmean:
        batch_mean(b, f, ops)
    else:
        whole_sum(b, f, kind, ops)
    if rng.random() < 0.14:
        post = sample_chain(b, 1, Range(sign="nonneg", large=True), extra_tensors=False)
        point_function(b, post)


def batch_mean(b: Builder, f: HostFunction, ops: list[PointOp]) -> None:
    """A sum of everything divided by the first size."""
    whole_sum(b, f, "sum", ops)
    f.kernels[0] = (
        f.kernels[0]
        .replace("float* out, int64_t n)", "float* out, int64_t n, int64_t batch)")
        .replace("atomicAdd(out, acc)", "atomicAdd(out, acc / batch)")
    )
    f.host_body = [
        line.replace("out.data_ptr<float>(), n)", "out.data_ptr<float>(), n, x.size(0))")
        for line in f.host_body
    ]


def build_cross_entropy(b: Builder) -> None:
    """cross_entropy and nll_loss of class scores and class indices."""
    rng = b.rng
    spatial = rng.random() < 0.1
    batch, classes = draw_dim(b, "batch"), draw_dim(b, "classes")
    dims = [batch, classes] + ([draw_dim(b, "height"), draw_dim(b, "width")] if spatial else [])
    nll = rng.random() < 0.22
    make = (
        rng.choice(
            [
                "torch.randn({shape}).log_softmax(dim=1)",
                "torch.log_softmax(torch.randn({shape}), dim=1)",
            ]
        )
        if nll
        else None
    )
    x = b.input(
        (*_PRED, "logits", "logits", "logits", "scores"),
        dims,
        make if nll else _scaled(b, rng.choice(["torch.rand({shape})", "torch.randn({shape})"])),
    )
    y_dims = [batch] if not spatial else [batch, dims[2], dims[3]]
    t = b.input(
        (*_TARGET, "labels", "y"), y_dims, f"torch.randint(0, {{{classes.token}}}, {{size}})"
    )
    b.start(x, dims)
    pre = (
        sample_chain(b, 1, Range(), extra_tensors=False) if rng.random() < 0.12 and not nll else []
    )
    kind = rng.choices(["mean", "sum", "none"], [84, 10, 6])[0]
    red = {"mean": "", "sum": ", reduction='sum'", "none": ", reduction='none'"}[kind]
    if kind == "mean" and rng.random() < 0.12:
        red = ", reduction='mean'"
    if nll:
        if rng.random() < 0.3:
            attr = b.module(_LOSS_ATTR, f"nn.NLLLoss({red[2:]})")
            b.apply(f"{attr}({{x}}, {t})", "loss")
        else:
            b.apply(f"F.nll_loss({{x}}, {t}{red})", "loss")
    elif rng.random() < 0.3:
        attr = b.module(_LOSS_ATTR, f"nn.CrossEntropyLoss({red[2:]})")
        b.apply(f"{attr}({{x}}, {t})", "loss")
    elif rng.random() < 0.14:
        if rng.random() < 0.5:
            lp = b.local(("log_probs", "logp", "lp", "log_p"))
            b.line(
                rng.choice(
                    [
                        f"{lp} = F.log_softmax({b.cur}, dim=1)",
                        f"{lp} = torch.log_softmax({b.cur}, dim=1)",
                    ]
                )
            )
            b.cur = b.spell(f"F.nll_loss({lp}, {t}{red})")
        else:
            b.apply(f"F.nll_loss(F.log_softmax({{x}}, dim=1), {t}{red})", "loss")
    else:
        b.apply(f"F.cross_entropy({{x}}, {t}{red})", "loss")
    f = HostFunction(
        ops=[
            *(o.name for o in pre),
            "nll_loss" if nll else "cross_entropy",
            *([kind] if kind != "mean" else []),
        ],
        leading=[("x", b.lead())],
    )
    pre_lines = f.point(pre, "i")
    f.tensor(f"{t}.contiguous()", "raw", "int64_t", name="target")
    result = {
        "mean": "atomicAdd(out, {} / rows);",
        "sum": "atomicAdd(out, {});",
        "none": "out[o] = {};",
    }[kind]
    at = "x[base + target[o] * inner]"
    host = ["int64_t len = x.size(1), rows = x.numel() / len, inner = rows / x.size(0);"]
    alloc = (
        "auto out = torch::zeros({}, x.options());"
        if kind != "none"
        else "auto out = torch::empty(target.sizes(), x.options());"
    )
    if nll:
        f.kernels.append(
            f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t rows, int64_t len, int64_t inner) {{\n"
            "    int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    if (o < rows) {\n"
            "        int64_t base = o / inner * len * inner + o % inner;\n"
            f"        float v = -{at};\n"
            f"        {result.format('v')}\n"
            "    }\n}"
        )
        f.host_body = [
            *host,
            alloc,
            f"NAME_kernel<<<(rows + 255) / 256, 256>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<float>(), rows, len, inner);",
            "return out;",
        ]
    else:
        schedule = "warp_shuffle" if rng.random() < 0.14 else "tree"
        b.schedule = schedule
        rowwise.use_block(f, "max", schedule)
        rowwise.use_block(f, "sum", schedule)
        picked = f"float v = {at};"
        pre_at = [line.replace("x[i]", at) for line in pre_lines]
        body = (
            "    float m = -INFINITY, sum = 0.0f;\n"
            + rowwise.loop(["float v = x[i];", *pre_lines, "m = fmaxf(m, v);"])
            + "    m = block_max(m);\n"
            + rowwise.loop(["float v = x[i];", *pre_lines, "sum += expf(v - m);"])
            + "    sum = block_sum(sum);\n"
            "    if (threadIdx.y == 0 && o < rows) {\n"
            f"{indent([picked, *pre_at, result.format('(m + logf(sum) - v)')], 2)}"
            "    }\n"
        )
        f.kernels.append(rowwise.kernel(f, body))
        f.host_body = [*host, alloc, *rowwise.launch(f, schedule)]
    b.call(f)
    b.shape = ()
    if kind == "mean" and rng.random() < 0.1:
        point_function(b, sample_chain(b, 1, Range(sign="nonneg", large=True), extra_tensors=False))
