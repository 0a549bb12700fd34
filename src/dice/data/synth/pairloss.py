"""Family: row-wise comparisons of two or three tensors: cosine similarity, distances, triplet margin."""

from dice.data.synth import rowwise, values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, Operand, PointOp, indent
from dice.data.synth.loss import _LOSS_ATTR
from dice.data.synth.reduce import whole_sum
from dice.data.synth.shapes import draw_shape

_FIRST = (
    "x1",
    "a",
    "x",
    "input1",
    "predictions",
    "u",
    "embedding1",
    "x",
    "anchor",
    "query",
    "pred",
    "emb1",
)
_SECOND = ("x2", "b", "y", "input2", "targets", "v", "embedding2", "other", "key", "target", "emb2")


def _rows_kernel(f: HostFunction, body: str, schedule: str, *, mean: bool, split: bool) -> None:
    """Kernel, allocation and launch of a reduction of several tensors along rows."""
    f.kernels.append(rowwise.kernel(f, body))
    host = (
        rowwise.split_dim()
        if split
        else ["int64_t len = x.size(-1), rows = x.numel() / len, inner = 1;"]
    )
    if mean:
        host.append("auto out = torch::zeros({}, x.options());")
    elif split:
        host += [
            "auto sizes = x.sizes().vec();",
            "sizes.erase(sizes.begin() + dim);",
            "auto out = torch::empty(sizes, x.options());",
        ]
    else:
        host += [
            "auto sizes = x.sizes().vec();",
            "sizes.pop_back();",
            "auto out = torch::empty(sizes, x.options());",
        ]
    lines = rowwise.launch(f, schedule)
    if not split:
        lines[0] = "dim3 block(1, 256);"
    f.host_body = [*host, *lines]


def _store(lines: list[str]) -> str:
    return "    if (threadIdx.y == 0 && o < rows) {\n" + indent(lines, 2) + "    }\n"


def build_cosine(b: Builder) -> None:
    """cosine_similarity of two tensors along a dimension, and what people make of it."""
    rng = b.rng
    dims = (
        draw_shape(b, ranks=(2, 2, 3, 4)) if rng.random() < 0.3 else draw_shape(b, layouts=["rows"])
    )
    x, y = b.input(_FIRST, dims), b.input(_SECOND, dims)
    b.start(x, dims)
    rank = len(dims)
    index = 1 if rank == 2 or rng.random() < 0.5 else rank - 1
    d = str(index if index == 1 or rng.random() < 0.4 else index - rank)
    if rng.random() < 0.3:
        if rng.random() < 0.5:
            attr = b.module(
                ("cos", "cosine", "similarity", "cos_sim", "cosine_similarity"),
                f"nn.CosineSimilarity(dim={d})",
            )
        else:
            eps = values.draw(rng, "eps_safe")
            attr = b.module(
                ("cos", "cosine", "similarity", "cos_sim"),
                f"nn.CosineSimilarity(dim={d}, eps={b.ctor_expr(('eps',), eps, 0.5)})",
            )
        b.apply(f"{attr}({{x}}, {y})", "similarity")
        dim_call, eps_call = f"{attr}.dim", f"{attr}.eps"
    else:
        dim_call, eps_call = d, "1e-08"
        if rng.random() < 0.35:
            dim_call = b.hyper(("dim", "axis"), d, literal=False)
        extra = ""
        if rng.random() < 0.25:
            eps_call = b.hyper(("eps",), values.draw(rng, "eps_safe"))
            extra = f", eps={eps_call}"
        form = f"F.cosine_similarity({{x}}, {y}, dim={dim_call}{extra})"
        if dim_call == "1" and rng.random() < 0.3:
            form = f"F.cosine_similarity({{x}}, {y}{extra})"
        b.apply(rng.choice([form, form, form.replace("F.cosine", "torch.cosine")]), "similarity")
    b.shape = tuple(q for i, q in enumerate(dims) if i != index)
    tail = rng.choices(
        ["plain", "one_minus", "one_minus_mean", "mean", "chain"], [44, 12, 22, 10, 12]
    )[0]
    post: list[PointOp] = []
    if tail.startswith("one_minus"):
        one = rng.choice(["1", "1.0", "1"])
        b.apply(f"{one} - {{a}}", "distance")
        post = [
            PointOp(
                name="rsub", code=("v = {0} - v;",), operands=(Operand(kind="scalar", call=one),)
            )
        ]
    elif tail == "chain":
        post = sample_chain(b, 1, Range())
    if tail.endswith("mean"):
        b.apply(rng.choice(["torch.mean({x})", "{a}.mean()"]), "loss")
    f = HostFunction(
        ops=["cosine_similarity", *(o.name for o in post)],
        leading=[("x", b.lead()), ("y", f"{y}.contiguous()")],
    )
    schedule = "warp_shuffle" if rng.random() < 0.14 else "tree"
    b.schedule = schedule
    rowwise.use_block(f, "sum", schedule)
    f.scalar(dim_call, "int64_t", "dim")
    f.scalar(eps_call, name="eps")
    post_lines = f.point(post, "o")
    every, f.params = f.params, [p for p in f.params if p[1] != "dim"]
    body = (
        "    float xy = 0.0f, xx = 0.0f, yy = 0.0f;\n"
        + rowwise.loop(["xy += x[i] * y[i];", "xx += x[i] * x[i];", "yy += y[i] * y[i];"])
        + "    xy = block_sum(xy);\n    xx = block_sum(xx);\n    yy = block_sum(yy);\n"
        + _store(
            [
                "float v = xy / (fmaxf(sqrtf(xx), eps) * fmaxf(sqrtf(yy), eps));",
                *post_lines,
                "out[o] = v;",
            ]
        )
    )
    _rows_kernel(f, body, schedule, mean=False, split=True)
    _second_pointer(f, "out" if post else "x")
    f.params = every
    b.call(f)
    if tail.endswith("mean"):
        g = HostFunction(ops=["mean"], leading=[("x", b.lead())])
        whole_sum(b, g, "mean", [])
        b.shape = ()


def _second_pointer(f: HostFunction, like: str = "x") -> None:
    """The second leading tensor as a kernel argument."""
    f.kernels[-1] = f.kernels[-1].replace("const float* x, ", "const float* x, const float* y, ")
    f.host_body = [
        line.replace("x.data_ptr<float>(), ", "x.data_ptr<float>(), y.data_ptr<float>(), ").replace(
            "inner_size(x,", f"inner_size({like},"
        )
        for line in f.host_body
    ]


def build_triplet(b: Builder) -> None:
    """Triplet margin loss, cosine embedding loss, pairwise distance."""
    rng = b.rng
    kind = rng.choices(
        ["triplet", "cosine_embedding", "pairwise", "margin_ranking", "handmade"],
        [42, 18, 20, 10, 10],
    )[0]
    dims = draw_shape(b, layouts=["rows"])
    schedule = "warp_shuffle" if rng.random() < 0.14 else "tree"
    b.schedule = schedule
    if kind in ("triplet", "handmade"):
        pool = rng.choice(
            [
                ("anchor", "positive", "negative"),
                ("anchor", "positive", "negative"),
                ("a", "p", "n"),
                ("anchors", "positives", "negatives"),
                ("query", "pos", "neg"),
                ("x", "pos", "neg"),
            ]
        )
        make = rng.choice(["torch.rand({shape})", "torch.randn({shape})"])
        first = make
        if rng.random() < 0.3:
            b.input_lines.append("scale = torch.rand(())")
            first = make + " * scale"
        names = [b.input((n,), dims, first if k == 0 else make) for k, n in enumerate(pool)]
        b.start(names[0], dims)
        eps = "1e-06"
        if kind == "triplet" and rng.random() < 0.55:
            arg = b.ctor_expr(("margin",), values.draw(rng, "margin"), 0.3)
            attr = b.module(_LOSS_ATTR, f"nn.TripletMarginLoss(margin={arg})")
            b.apply(f"{attr}({{x}}, {names[1]}, {names[2]})", "loss")
            margin, eps = f"{attr}.margin", f"{attr}.eps"
        elif kind == "triplet":
            margin = "1.0"
            extra = ""
            if rng.random() < 0.75:
                margin = b.hyper(("margin",), values.draw(rng, "margin"))
                extra = f", margin={margin}"
            b.apply(f"F.triplet_margin_loss({{x}}, {names[1]}, {names[2]}{extra})", "loss")
        else:
            margin = b.hyper(("margin", "alpha"), values.draw(rng, "margin"))
            dp, dn = (
                b.local(("d_pos", "dist_pos", "pos_dist", "dp")),
                b.local(("d_neg", "dist_neg", "neg_dist", "dn")),
            )
            b.line(f"{dp} = F.pairwise_distance({names[0]}, {names[1]})")
            b.line(f"{dn} = F.pairwise_distance({names[0]}, {names[2]})")
            b.cur = b.spell(
                rng.choice(
                    [
                        f"F.relu({dp} - {dn} + {margin}).mean()",
                        f"torch.clamp({dp} - {dn} + {margin}, min=0.0).mean()",
                        f"torch.mean(torch.clamp({dp} - {dn} + {margin}, min=0))",
                    ]
                )
            )
        f = HostFunction(ops=["triplet_margin"], leading=[("x", b.lead())])
        f.tensor(f"{names[1]}.contiguous()", "raw", name="pos")
        f.tensor(f"{names[2]}.contiguous()", "raw", name="neg")
        f.scalar(margin, name="margin")
        f.scalar(eps, name="eps")
        rowwise.use_block(f, "sum", schedule)
        body = (
            "    float dp = 0.0f, dn = 0.0f;\n"
            + rowwise.loop(
                [
                    "float p = x[i] - pos[i] + eps;",
                    "float q = x[i] - neg[i] + eps;",
                    "dp += p * p;",
                    "dn += q * q;",
                ]
            )
            + "    dp = sqrtf(block_sum(dp));\n    dn = sqrtf(block_sum(dn));\n"
            "    if (threadIdx.y == 0 && o < rows) atomicAdd(out, fmaxf(dp - dn + margin, 0.0f) / rows);\n"
        )
        _rows_kernel(f, body, schedule, mean=True, split=False)
        b.call(f)
        return
    if kind == "margin_ranking":
        vec = [dims[0]]
        x, y = (
            b.input(("x1", "input1", "a", "scores1"), vec),
            b.input(("x2", "input2", "b", "scores2"), vec),
        )
        t = b.input(
            ("target", "targets", "y", "label"), vec, "torch.randint(0, 2, {size}).float() * 2 - 1"
        )
        b.start(x, vec)
        margin = b.hyper(("margin",), values.draw(rng, "margin"))
        b.apply(f"F.margin_ranking_loss({{x}}, {y}, {t}, margin={margin})", "loss")
        f = HostFunction(ops=["margin_ranking", "mean"], leading=[("x", b.lead())])
        op = PointOp(
            name="margin_ranking",
            code=("v = fmaxf(-{1} * (v - {0}) + {2}, 0.0f);",),
            operands=(
                Operand(kind="same", call=f"{y}.contiguous()"),
                Operand(kind="same", call=f"{t}.contiguous()"),
                Operand(kind="scalar", call=margin),
            ),
        )
        whole_sum(b, f, "mean", [op])
        b.schedule = "plain"
        return
    x, y = b.input(_FIRST, dims), b.input(_SECOND, dims)
    if kind == "cosine_embedding":
        t = b.input(
            ("target", "targets", "labels", "label", "t"),
            [dims[0]],
            rng.choice(
                [
                    "torch.randint(0, 2, {size}).float() * 2 - 1",
                    "torch.randint(0, 2, {size}) * 2.0 - 1.0",
                ]
            ),
        )
        b.start(x, dims)
        if rng.random() < 0.45:
            arg = b.ctor_expr(("margin",), rng.choice(["0.0", "0.1", "0.5", "0.2"]), 0.3)
            attr = b.module(_LOSS_ATTR, f"nn.CosineEmbeddingLoss(margin={arg})")
            b.apply(f"{attr}({{x}}, {y}, {t})", "loss")
            margin = f"{attr}.margin"
        else:
            margin = b.hyper(("margin",), rng.choice(["0.0", "0.1", "0.5", "0.2"]))
            b.apply(f"F.cosine_embedding_loss({{x}}, {y}, {t}, margin={margin})", "loss")
        f = HostFunction(
            ops=["cosine_embedding"], leading=[("x", b.lead()), ("y", f"{y}.contiguous()")]
        )
        f.tensor(f"{t}.contiguous()", "raw", name="target")
        f.scalar(margin, name="margin")
        rowwise.use_block(f, "sum", schedule)
        body = (
            "    float xy = 0.0f, xx = 0.0f, yy = 0.0f;\n"
            + rowwise.loop(["xy += x[i] * y[i];", "xx += x[i] * x[i];", "yy += y[i] * y[i];"])
            + "    xy = block_sum(xy);\n    xx = block_sum(xx);\n    yy = block_sum(yy);\n"
            + _store(
                [
                    "float v = xy / sqrtf((xx + 1e-12f) * (yy + 1e-12f));",
                    "v = target[o] > 0.0f ? 1.0f - v : fmaxf(v - margin, 0.0f);",
                    "atomicAdd(out, v / rows);",
                ]
            )
        )
        _rows_kernel(f, body, schedule, mean=True, split=False)
        _second_pointer(f)
        b.call(f)
        return
    b.start(x, dims)
    eps = "1e-06"
    if rng.random() < 0.35:
        attr = b.module(
            ("dist", "pdist", "distance", "pairwise_distance"), "nn.PairwiseDistance(p=2)"
        )
        b.apply(f"{attr}({{x}}, {y})", "distance")
        eps = f"{attr}.eps"
    else:
        b.apply(
            rng.choice(
                [
                    f"F.pairwise_distance({{x}}, {y})",
                    f"F.pairwise_distance({{x}}, {y}, p=2)",
                    f"torch.pairwise_distance({{x}}, {y})",
                ]
            ),
            "distance",
        )
    b.shape = (dims[0],)
    post = sample_chain(b, 1 if rng.random() < 0.25 else 0, Range(sign="nonneg", large=True))
    f = HostFunction(
        ops=["pairwise_distance", *(o.name for o in post)],
        leading=[("x", b.lead()), ("y", f"{y}.contiguous()")],
    )
    f.scalar(eps, name="eps")
    post_lines = f.point(post, "o")
    rowwise.use_block(f, "sum", schedule)
    body = (
        "    float sum = 0.0f;\n"
        + rowwise.loop(["float v = x[i] - y[i] + eps;", "sum += v * v;"])
        + "    sum = block_sum(sum);\n"
        + _store(["float v = sqrtf(sum);", *post_lines, "out[o] = v;"])
    )
    _rows_kernel(f, body, schedule, mean=False, split=False)
    _second_pointer(f, "out")
    b.call(f)
