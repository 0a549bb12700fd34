"""Families: masks, selections and comparisons; causal and triangular masks; masked softmax."""

from dice.data.synth import values
from dice.data.synth.builder import Builder
from dice.data.synth.chains import sample_chain
from dice.data.synth.cuda import HostFunction, Operand, PointOp, indent
from dice.data.synth.pointwise import point_function
from dice.data.synth.shapes import draw_dim, draw_shape
from dice.data.synth.softmax import softmax_function

_MASK_NAMES = ("mask", "mask", "m", "cond", "condition", "valid", "attention_mask", "keep_mask")
_MASK_MAKES = (
    "torch.randint(0, 2, {size}).bool()",
    "torch.randint(0, 2, {size}, dtype=torch.bool)",
    "torch.rand({shape}) > 0.5",
    "torch.rand({shape}) < 0.3",
    "torch.randn({shape}) > 0",
)
_COMPARE = ((">", "gt"), ("<", "lt"), (">=", "ge"), ("<=", "le"), ("==", "eq"), ("!=", "ne"))


def _mask(b: Builder) -> str:
    return b.input(_MASK_NAMES, b.shape, b.rng.choice(_MASK_MAKES))


def select_ops(b: Builder) -> list[PointOp]:
    """One selection by a mask or a comparison."""
    rng = b.rng
    kind = rng.choices(
        ["masked_fill", "where_mask", "where_cmp", "where_value", "mul_mask"], [30, 24, 22, 14, 10]
    )[0]
    if kind == "masked_fill":
        m = _mask(b)
        s = b.hyper(
            ("fill_value", "value", "mask_value", "fill"),
            rng.choice(["0.0", "0", "-1.0", "-1e9", "1.0", "-10000.0", "-1e4"])
            .replace("-1e9", "-1000000000.0")
            .replace("-1e4", "-10000.0"),
        )
        inverted = rng.random() < 0.2
        b.apply(
            rng.choice(
                [
                    "{a}.masked_fill({m}, {s})",
                    "{a}.masked_fill({m}, {s})",
                    "torch.masked_fill({x}, {m}, {s})",
                ]
            ),
            "masked",
            m=f"~{m}" if inverted else m,
            s=s,
        )
        code = "v = {0} ? v : {1};" if inverted else "v = {0} ? {1} : v;"
        return [
            PointOp(
                name="masked_keep" if inverted else "masked_fill",
                code=(code,),
                operands=(
                    Operand(kind="same", call=f"{m}.contiguous()", dtype="bool"),
                    Operand(kind="scalar", call=s),
                ),
            )
        ]
    if kind == "mul_mask":
        m = _mask(b)
        b.apply(rng.choice(["{a} * {m}", "{a} * {m}.float()", "{m} * {a}"]), "masked", m=m)
        return [
            PointOp(
                name="masked",
                code=("v = {0} ? v : 0.0f;",),
                operands=(Operand(kind="same", call=f"{m}.contiguous()", dtype="bool"),),
            )
        ]
    y = b.input("y", b.shape)
    if kind == "where_mask":
        m = _mask(b)
        b.apply("torch.where({m}, {x}, {y})", "selected", m=m, y=y)
        return [
            PointOp(
                name="where",
                code=("v = {0} ? v : {1};",),
                operands=(
                    Operand(kind="same", call=f"{m}.contiguous()", dtype="bool"),
                    Operand(kind="same", call=f"{y}.contiguous()"),
                ),
            )
        ]
    sign = rng.choice([">", "<", ">=", "<="])
    if kind == "where_cmp":
        b.apply(f"torch.where({{n}} {sign} {{y}}, {{n}}, {{y}})", "selected", y=y)
        return [
            PointOp(
                name="where",
                code=(f"v = v {sign} {{0}} ? v : {{0}};",),
                operands=(Operand(kind="same", call=f"{y}.contiguous()"),),
            )
        ]
    s = b.hyper(("threshold", "cutoff", "t", "limit"), values.draw(rng, "cut"))
    b.apply(f"torch.where({{n}} {sign} {{s}}, {{n}}, {{y}})", "selected", y=y, s=s)
    return [
        PointOp(
            name="where",
            code=(f"v = v {sign} {{0}} ? v : {{1}};",),
            operands=(
                Operand(kind="scalar", call=s),
                Operand(kind="same", call=f"{y}.contiguous()"),
            ),
        )
    ]


def build_select(b: Builder) -> None:
    """A selection among elementwise operators."""
    rng = b.rng
    dims = draw_shape(b)
    x = b.input("x", dims)
    b.start(x, dims)
    ops = sample_chain(b, rng.choices([0, 1, 2], [60, 30, 10])[0])
    ops += select_ops(b)
    ops += sample_chain(b, rng.choices([0, 1], [70, 30])[0])
    point_function(b, ops)


def build_compare(b: Builder) -> None:
    """A comparison whose result is boolean, or made a float."""
    rng = b.rng
    dims = draw_shape(b)
    x = b.input("x", dims)
    b.start(x, dims)
    ops = sample_chain(b, rng.choices([0, 1, 2], [50, 38, 12])[0])
    sign, word = rng.choices(_COMPARE, [5, 5, 3, 3, 1, 1])[0]
    if rng.random() < 0.3:
        y = b.input("y", b.shape)
        call, operand = y, Operand(kind="same", call=f"{y}.contiguous()")
    else:
        call = b.hyper(("threshold", "value", "cutoff", "t"), values.draw(rng, "cut"))
        operand = Operand(kind="scalar", call=call)
    as_float = rng.random() < 0.45
    atom = rng.choice(
        [f"({{a}} {sign} {{y}})", f"torch.{word}({{x}}, {{y}})", f"{{a}}.{word}({{y}})"]
    )
    if as_float:
        b.apply(atom + rng.choice([".float()", ".float()", ".to(torch.float32)"]), "mask", y=call)
        ops.append(
            PointOp(name=word, code=(f"v = v {sign} {{0}} ? 1.0f : 0.0f;",), operands=(operand,))
        )
        ops += sample_chain(b, rng.choices([0, 1], [75, 25])[0])
        point_function(b, ops)
        return
    b.apply(atom.strip("()") if atom.startswith("(") else atom, "mask", y=call)
    if rng.random() < 0.15:
        b.apply(rng.choice(["torch.logical_not({x})", "~{a}"]), "mask")
        ops.append(
            PointOp(name=f"not_{word}", code=(f"bool p = !(v {sign} {{0}});",), operands=(operand,))
        )
    else:
        ops.append(PointOp(name=word, code=(f"bool p = v {sign} {{0}};",), operands=(operand,)))
    point_function(b, ops, out="bool")
    f = b.functions[-1]
    f.kernels[-1] = f.kernels[-1].replace("out[i] = v;", "out[i] = p;")


def build_triangular(b: Builder) -> None:
    """tril and triu of matrices, with elementwise operators around."""
    rng = b.rng
    batch = [draw_dim(b, "batch")] if rng.random() < 0.45 else []
    rows = draw_dim(b, "dim1")
    dims = [*batch, rows, rows if rng.random() < 0.6 else draw_dim(b, "dim2")]
    x = b.input(("A", "x", "scores", "mat", "matrix", "x"), dims)
    b.start(x, dims)
    pre = sample_chain(b, rng.choices([0, 1], [70, 30])[0], extra_tensors=False)
    word = rng.choice(["tril", "triu"])
    k = rng.choice(["0", "0", "1", "-1", "2"])
    call = k
    if k == "0" and rng.random() < 0.6:
        b.apply(rng.choice([f"torch.{word}({{x}})", f"{{a}}.{word}()"]), "masked")
    else:
        call = b.hyper(("diagonal", "k", "offset"), k)
        b.apply(
            rng.choice(
                [
                    f"torch.{word}({{x}}, diagonal={{k}})",
                    f"torch.{word}({{x}}, {{k}})",
                    f"{{a}}.{word}({{k}})",
                ]
            ),
            "masked",
            k=call,
        )
    post = sample_chain(b, rng.choices([0, 1], [75, 25])[0], extra_tensors=False)
    f = HostFunction(
        ops=[*(o.name for o in pre), word, *(o.name for o in post)], leading=[("x", b.lead())]
    )
    pre_lines = f.point(pre, "i")
    f.scalar(call, "int64_t", "k")
    post_lines = f.point(post, "i")
    sign = "<=" if word == "tril" else ">="
    f.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t n, int64_t rows, int64_t cols) {{\n"
        "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) {\n"
        f"{indent(['float v = x[i];', *pre_lines, f'v = i % cols {sign} i / cols % rows + k ? v : 0.0f;', *post_lines, 'out[i] = v;'], 2)}"
        "    }\n}"
    )
    f.host_body = [
        "auto out = torch::empty_like(x);",
        "int64_t n = x.numel();",
        f"NAME_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<float>(), n, x.size(-2), x.size(-1));",
        "return out;",
    ]
    b.call(f)


def build_masked_softmax(b: Builder) -> None:
    """Attention-style softmax: scaled scores, a mask that is filled or added, softmax over the last dimension."""
    rng = b.rng
    dims = draw_shape(b, layouts=["heads" if rng.random() < 0.5 else "cube"])
    x = b.input("scores", dims)
    b.start(x, dims)
    ops: list[PointOp] = []
    if rng.random() < 0.6:
        if rng.random() < 0.5:
            s = b.hyper(
                ("scale", "scaling", "scale_factor"),
                rng.choice(["0.125", "0.0883883476", "0.25", "0.1", "0.5"]),
            )
            b.apply(rng.choice(["{a} * {s}", "{s} * {a}"]), "scaled", s=s)
            ops.append(
                PointOp(
                    name="mul", code=("v = v * {0};",), operands=(Operand(kind="scalar", call=s),)
                )
            )
        else:
            s = b.hyper(("temperature", "scale", "tau", "d_k"), values.draw(rng, "divisor"))
            b.apply("{a} / {s}", "scaled", s=s)
            ops.append(
                PointOp(
                    name="div", code=("v = v / {0};",), operands=(Operand(kind="scalar", call=s),)
                )
            )
    if rng.random() < 0.5:
        m = b.input(
            _MASK_NAMES,
            dims,
            rng.choice(
                [
                    "torch.rand({shape}) > 0.7",
                    "torch.rand({shape}) < 0.2",
                    "torch.rand({shape}) > 0.9",
                ]
            ),
        )
        fill = rng.choice(["float('-inf')", "-1e9", "-10000.0", "float('-inf')"])
        b.apply("{a}.masked_fill({m}, " + fill + ")", "masked", m=m)
        value = {"float('-inf')": "-INFINITY", "-1e9": "-1e9f", "-10000.0": "-10000.0f"}[fill]
        ops.append(
            PointOp(
                name="masked_fill",
                code=(f"v = {{0}} ? {value} : v;",),
                operands=(Operand(kind="same", call=f"{m}.contiguous()", dtype="bool"),),
            )
        )
    else:
        m = b.input(("mask", "attn_mask", "attention_mask", "bias", "attn_bias"), dims)
        b.apply("{a} + {m}", "masked", m=m)
        ops.append(
            PointOp(
                name="add",
                code=("v = v + {0};",),
                operands=(Operand(kind="same", call=f"{m}.contiguous()"),),
            )
        )
    d = "-1" if rng.random() < 0.85 else str(len(dims) - 1)
    if rng.random() < 0.2:
        attr = b.module(("softmax", "act", "attn_softmax"), f"nn.Softmax(dim={d})")
        b.apply(f"{attr}({{x}})", "attn")
        d = f"{attr}.dim"
    else:
        b.apply(
            rng.choice(
                ["F.softmax({x}, dim={d})", "torch.softmax({x}, dim={d})", "{a}.softmax(dim={d})"]
            ),
            "attn",
            d=d,
        )
    b.schedule = "two_pass"
    softmax_function(b, "softmax", d, ops, [], "two_pass")
