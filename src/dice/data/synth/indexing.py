"""Families: transposition, embedding lookup, repetition and concatenation by index arithmetic."""

from dice.data.synth import values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, Operand, PointOp, indent
from dice.data.synth.pointwise import point_function
from dice.data.synth.shapes import draw_dim, draw_shape


def build_transpose(b: Builder) -> None:
    """Two dimensions swapped and made contiguous, with elementwise operators before and after."""
    rng = b.rng
    b.views = True
    dims = draw_shape(b, ranks=(2, 3, 4))
    rank = len(dims)
    x = b.input("x", dims)
    b.start(x, dims)
    pre = sample_chain(b, rng.choices([0, 1, 2], [55, 35, 10])[0])
    first = rng.choice([0, rank - 2, max(0, rank - 3)]) if rank > 2 else 0
    second = rng.choice([k for k in range(rank) if k > first])
    a, c = first, second
    if rng.random() < 0.3:
        a, c = first - rank, second - rank
    text = rng.choice(["{x}.transpose({p}, {q})", "torch.transpose({v}, {p}, {q})"])
    if rank == 2 and rng.random() < 0.6:
        text = rng.choice(
            ["{x}.t()", "{x}.T", "torch.t({v})", "{x}.transpose(0, 1)", "{x}.permute(1, 0)"]
        )
        a, c = 0, 1
    elif rng.random() < 0.3:
        order = list(range(rank))
        order[first], order[second] = order[second], order[first]
        text = "{x}.permute(" + ", ".join(map(str, order)) + ")"
        a, c = first, second
    text = (
        text.replace("{x}", "{a}")
        .replace("{v}", "{x}")
        .replace("{p}", str(a))
        .replace("{q}", str(c))
    )
    if rng.random() < 0.7:
        text += ".contiguous()"
    b.apply(text, "transposed")
    shape = list(dims)
    shape[first], shape[second] = shape[second], shape[first]
    b.shape = tuple(shape)
    post = sample_chain(b, rng.choices([0, 1], [75, 25])[0])
    f = HostFunction(
        ops=[*(o.name for o in pre), "transpose", *(o.name for o in post)],
        leading=[("x", b.lead())],
    )
    pre_lines = f.point(pre, "j")
    before = {p[1] for p in f.params}
    f.scalar(str(a), "int64_t", "d0")
    f.scalar(str(c), "int64_t", "d1")
    post_lines = f.point(post, "i")
    every = list(f.params)
    f.params = [p for p in every if p[1] not in ("d0", "d1")]
    args = f.launch_args({p[1]: "x" if p[1] in before else "out" for p in f.params})
    f.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t n, int64_t p, int64_t mid, int64_t q, int64_t inner) {{\n"
        "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) {\n"
        "        int64_t k = i % inner, a = i / inner % p, m = i / (inner * p) % mid, c = i / (inner * p * mid) % q;\n"
        "        int64_t j = (((i / (inner * p * mid * q) * p + a) * mid + m) * q + c) * inner + k;\n"
        f"{indent(['float v = x[j];', *pre_lines, *post_lines, 'out[i] = v;'], 2)}"
        "    }\n}"
    )
    f.host_body = [
        "if (d0 < 0) d0 += x.dim();",
        "if (d1 < 0) d1 += x.dim();",
        "auto sizes = x.sizes().vec();",
        "int64_t p = sizes[d0], q = sizes[d1], mid = 1, inner = 1;",
        "for (int64_t d = d0 + 1; d < d1; d++) mid *= sizes[d];",
        "for (int64_t d = d1 + 1; d < x.dim(); d++) inner *= sizes[d];",
        "std::swap(sizes[d0], sizes[d1]);",
        "auto out = torch::empty(sizes, x.options());",
        "int64_t n = x.numel();",
        f"NAME_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), {args}out.data_ptr<float>(), n, p, mid, q, inner);",
        "return out;",
    ]
    f.params = every
    b.call(f)


def build_embedding(b: Builder) -> None:
    """Rows of a table picked by index, with elementwise operators after; token plus position tables."""
    rng = b.rng
    batch, seq = draw_dim(b, "batch"), draw_dim(b, "seq")
    dims = [batch, seq] if rng.random() < 0.75 else [seq]
    vocab = b.dim(
        "classes",
        rng.choice([1000, 10000, 32000, 50257, 30522, 5000, 128]),
        rng.choice([17, 50, 33]),
    )
    width = b.dim("embedding", rng.choice([64, 128, 256, 512, 768, 1024]), rng.choice([8, 20, 33]))
    ids = b.input(
        ("input_ids", "ids", "tokens", "indices", "idx", "x", "token_ids", "index"),
        dims,
        f"torch.randint(0, {{{vocab.token}}}, {{size}})",
    )
    b.start(ids, dims)
    rows, cols = (
        b.ctor_dim(vocab, ("vocab_size", "num_embeddings", "num_tokens", "n_vocab", "num_classes")),
        b.ctor_dim(width),
    )
    if rng.random() < 0.75:
        attr = b.module(
            ("embedding", "embed", "emb", "token_embedding", "wte", "table"),
            f"nn.Embedding({rows}, {cols})",
        )
        b.apply(f"{attr}({{x}})", "embedded")
        weight = f"{attr}.weight"
    else:
        weight = b.parameter(
            ("weight", "table", "embedding", "codebook"), f"{rows}, {cols}", "torch.randn({shape})"
        )
        b.apply(rng.choice([f"F.embedding({{x}}, {weight})", f"{weight}[{{x}}]"]), "embedded")
    b.shape = (*dims, width)
    post = sample_chain(b, rng.choices([0, 1, 2], [45, 38, 17])[0], Range(large=True))
    f = HostFunction(
        ops=["embedding", *(o.name for o in post)], leading=[("ids", b.lead()), ("weight", weight)]
    )
    lines = f.point(post, "i")
    f.kernels.append(
        f"__global__ void NAME_kernel(const int64_t* ids, const float* weight, {f.kernel_params()}float* out, int64_t n, int64_t dim) {{\n"
        "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) {\n"
        "        float v = weight[ids[i / dim] * dim + i % dim];\n"
        f"{indent(lines, 2)}"
        "        out[i] = v;\n"
        "    }\n}"
    )
    f.host_body = [
        "auto sizes = ids.sizes().vec();",
        "int64_t dim = weight.size(1);",
        "sizes.push_back(dim);",
        "auto out = torch::empty(sizes, weight.options());",
        "int64_t n = out.numel();",
        f"NAME_kernel<<<(n + 255) / 256, 256>>>(ids.data_ptr<int64_t>(), weight.data_ptr<float>(), {f.launch_args('out')}out.data_ptr<float>(), n, dim);",
        "return out;",
    ]
    b.call(f)


def build_combine(b: Builder) -> None:
    """Formulas of two or three tensors of one shape: addcmul, lerp, gates, weighted sums."""
    rng = b.rng
    dims = draw_shape(b)
    pool = rng.choice(
        [
            ("x", "y", "z"),
            ("a", "b", "c"),
            ("x1", "x2", "x3"),
            ("x", "gate", "residual"),
            ("u", "v", "w"),
            ("A", "B", "C"),
            ("input", "other", "third"),
        ]
    )
    kind = rng.choices(
        [
            "weighted",
            "axpy",
            "addcmul",
            "lerp",
            "gate",
            "fma",
            "addcdiv",
            "hypot",
            "sigmoid_gate",
            "rotate",
        ],
        [14, 14, 8, 10, 14, 12, 4, 3, 16, 3],
    )[0]
    three = kind in ("addcmul", "gate", "fma", "addcdiv")
    makes = [None, None, "torch.rand({shape}) + 0.5" if kind == "addcdiv" else None]
    names = [
        b.input((n,), dims, make) for n, make in zip(pool[: 3 if three else 2], makes, strict=False)
    ]
    x, y = names[0], names[1]
    z = names[2] if three else ""
    b.start(x, dims)
    oy = Operand(kind="same", call=f"{y}.contiguous()")
    oz = Operand(kind="same", call=f"{z}.contiguous()")
    more: list[PointOp] = []
    if kind == "weighted":
        p, q = rng.choice([("alpha", "beta"), ("a", "b"), ("w1", "w2"), ("weight1", "weight2")])
        s, t = b.hyper((p,), values.draw(rng, "weight")), b.hyper((q,), values.draw(rng, "weight"))
        b.cur = f"{s} * {x} + {t} * {y}"
        op = PointOp(
            name="weighted_sum",
            code=("v = {1} * v + {2} * {0};",),
            operands=(oy, Operand(kind="scalar", call=s), Operand(kind="scalar", call=t)),
        )
    elif kind == "axpy":
        s = b.hyper(("alpha", "scale", "a", "factor"), values.draw(rng, "scale"))
        b.cur = rng.choice(
            [
                f"{x} + {s} * {y}",
                f"torch.add({x}, {y}, alpha={s})",
                f"{x} + {y} * {s}",
                f"{x}.add({y}, alpha={s})",
            ]
        )
        op = PointOp(
            name="axpy", code=("v = v + {1} * {0};",), operands=(oy, Operand(kind="scalar", call=s))
        )
    elif kind == "lerp":
        s = b.hyper(("weight", "w", "alpha", "t", "mix"), values.draw(rng, "weight"))
        form = rng.choice(
            [
                f"torch.lerp({x}, {y}, {s})",
                f"{x} + {s} * ({y} - {x})",
                f"(1 - {s}) * {x} + {s} * {y}",
                f"torch.lerp({x}, {y}, {s})",
            ]
        )
        b.cur = form
        op = PointOp(
            name="lerp",
            code=("v = v + {1} * ({0} - v);",),
            operands=(oy, Operand(kind="scalar", call=s)),
        )
    elif kind in ("addcmul", "addcdiv"):
        s = b.hyper(("value", "alpha", "scale"), values.draw(rng, "scale"))
        sign = "*" if kind == "addcmul" else "/"
        b.cur = rng.choice(
            [f"torch.{kind}({x}, {y}, {z}, value={s})", f"{x} + {s} * {y} {sign} {z}"]
        )
        op = PointOp(
            name=kind,
            code=(f"v = v + {{2}} * {{0}} {sign} {{1}};",),
            operands=(oy, oz, Operand(kind="scalar", call=s)),
        )
    elif kind == "gate":
        b.line(f"{'g'} = torch.sigmoid({y})")
        b.cur = rng.choice(
            [f"g * {x} + (1 - g) * {z}", f"g * {x} + (1.0 - g) * {z}", f"{z} + g * ({x} - {z})"]
        )
        op = PointOp(
            name="gate_mix",
            code=("float g = 1.0f / (1.0f + expf(-{0}));", "v = g * v + (1.0f - g) * {1};"),
            operands=(oy, oz),
        )
    elif kind == "fma":
        b.cur = rng.choice(
            [f"{x} * {y} + {z}", f"{z} + {x} * {y}", f"torch.addcmul({z}, {x}, {y})"]
        )
        op = PointOp(name="mul", code=("v = v * {0};",), operands=(oy,))
        more = [PointOp(name="add", code=("v = v + {0};",), operands=(oz,))]
    elif kind == "hypot":
        b.cur = rng.choice([f"torch.hypot({x}, {y})", f"torch.sqrt({x} ** 2 + {y} ** 2)"])
        op = PointOp(name="hypot", code=("v = sqrtf(v * v + {0} * {0});",), operands=(oy,))
    elif kind == "rotate":
        b.cur = rng.choice([f"torch.atan2({x}, {y})"])
        op = PointOp(name="atan2", code=("v = atan2f(v, {0});",), operands=(oy,))
    else:
        gate, text = rng.choice(
            [
                ("1.0f / (1.0f + expf(-{0}))", "torch.sigmoid({y})"),
                ("{0} / (1.0f + expf(-{0}))", "F.silu({y})"),
                ("tanhf({0})", "torch.tanh({y})"),
                ("fmaxf({0}, 0.0f)", "F.relu({y})"),
                ("0.5f * {0} * (1.0f + erff({0} * 0.70710678f))", "F.gelu({y})"),
            ]
        )
        label = {
            "torch.sigmoid({y})": "sigmoid",
            "F.silu({y})": "silu",
            "torch.tanh({y})": "tanh",
            "F.relu({y})": "relu",
            "F.gelu({y})": "gelu",
        }[text]
        g = b.spell(text.replace("{y}", y))
        b.cur = rng.choice([f"{x} * {g}", f"{g} * {x}"])
        op = PointOp(name=f"{label}_gate", code=(f"v = v * ({gate});",), operands=(oy,))
    if rng.random() < 0.3:
        b.assign(rng.choice(["out", "y_out", "h", "mixed"]))
    ops = [op, *more, *sample_chain(b, rng.choices([0, 1, 2], [52, 34, 14])[0])]
    point_function(b, ops)
