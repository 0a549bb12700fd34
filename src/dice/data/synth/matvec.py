"""Families around matrix products: matrix-vector, diagonal, outer and matrix-scalar products."""

from collections.abc import Callable, Sequence

from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import Operand, PointOp, indent
from dice.data.synth.matmul import chain_count, draw_make, size
from dice.data.synth.opfunction import OpFunction
from dice.data.synth.pointwise import point_function

_MATRIX = ("A", "A", "A", "x", "mat", "a", "W", "M")


def matvec_function(
    calls: Sequence[str], epilogue: Sequence[PointOp], *, column: bool, schedule: str
) -> OpFunction:
    """Product of a matrix (any strides) and a vector; `column` gives a result of shape (M, 1)."""
    fn = OpFunction(
        ops=["matvec", *(op.name for op in epilogue)], leading=[("a", calls[0]), ("b", calls[1])]
    )
    load = "acc += a[row * ar + k * ac] * b[k];"
    if schedule == "warp":
        body = indent(
            [
                "int lane = threadIdx.x % 32;",
                "int64_t row = blockIdx.x * 8 + threadIdx.x / 32;",
                "if (row >= M) return;",
                "float acc = 0.0f;",
                f"for (int k = lane; k < K; k += 32) {load}",
                "for (int s = 16; s > 0; s /= 2) acc += __shfl_down_sync(0xffffffff, acc, s);",
                "if (lane == 0) {",
            ],
            1,
        )
        value, grid = "acc", "(M + 7) / 8"
    else:
        body = indent(
            [
                "__shared__ float tile[256];",
                "int64_t row = blockIdx.x;",
                "float acc = 0.0f;",
                f"for (int k = threadIdx.x; k < K; k += 256) {load}",
                "tile[threadIdx.x] = acc;",
                "__syncthreads();",
                "for (int s = 128; s > 0; s /= 2) {",
                "    if (threadIdx.x < s) tile[threadIdx.x] += tile[threadIdx.x + s];",
                "    __syncthreads();",
                "}",
                "if (threadIdx.x == 0) {",
            ],
            1,
        )
        value, grid = "tile[0]", "M"
    store = fn.store(value, epilogue, 2, "row")
    fn.kernels.append(
        f"__global__ void NAME_kernel(const float* a, const float* b, {fn.kernel_params()}float* out, "
        f"int M, int K, int64_t ar, int64_t ac) {{\n{body}{store}    }}\n}}"
    )
    fn.host_body += [
        "int M = a.size(0), K = a.size(1);",
        f"auto out = torch::empty({{M{', 1' if column else ''}}}, a.options());",
        f"NAME_kernel<<<{grid}, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), {fn.launch_args('out')}"
        "out.data_ptr<float>(), M, K, a.stride(0), a.stride(1));",
        "return out;",
    ]
    return fn


def build_matvec(b: Builder) -> None:
    """A matrix times a vector or a single column."""
    rng = b.rng
    m, k = size(b, "M"), size(b, "K")
    if rng.random() < 0.4:
        k.full = rng.choice(["131072", "131072 * 8", "65536", "16384"])
    left_t, column = rng.random() < 0.12, rng.random() < 0.5
    dims = (k, m) if left_t else (m, k)
    a = b.input(_MATRIX, dims)
    one = b.dim("one", 1, 1)
    v = b.input(
        ("B", "B", "b", "y") if column else ("v", "x", "b", "vec", "B"),
        (k, one) if column else (k,),
    )
    b.start(a, dims)
    left = "{a}.T" if left_t else "{x}"
    operand = "{a}.T" if left_t else "{a}"
    forms = [f"torch.matmul({left}, {v})"] * 3 + [f"{operand} @ {v}"]
    forms += [f"torch.mm({left}, {v})"] * 2 if column else [f"torch.mv({left}, {v})"] * 3
    b.apply(rng.choice(forms), "C")
    b.shape = (m, one) if column else (m,)
    epilogue = sample_chain(b, chain_count(rng), Range())
    b.schedule = rng.choice(["block", "block", "warp"])
    b.call(
        matvec_function(
            [f"{a}.T" if left_t else a, f"{v}.contiguous()"],
            epilogue,
            column=column,
            schedule=b.schedule,
        )
    )


def _product_of(
    name: str, calls: Sequence[str], index: str, sizes: str, epilogue: Sequence[PointOp]
) -> OpFunction:
    """One output element per thread, a product of one element of each operand."""
    fn = OpFunction(
        ops=[name, *(op.name for op in epilogue)], leading=[("a", calls[0]), ("b", calls[1])]
    )
    store = fn.store(index, epilogue, 1)
    fn.kernels.append(
        f"__global__ void NAME_kernel(const float* a, const float* b, {fn.kernel_params()}float* out, int64_t N, int64_t total) {{\n"
        "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    if (i >= total) return;\n{store}}}"
    )
    fn.host_body += [
        f"auto out = torch::empty({sizes}, a.options());",
        "int64_t total = out.numel();",
        f"NAME_kernel<<<(total + 255) / 256, 256>>>(a.data_ptr<float>(), b.data_ptr<float>(), {fn.launch_args('out')}"
        f"out.data_ptr<float>(), out.size(1), total);",
        "return out;",
    ]
    return fn


def build_diagonal(b: Builder) -> None:
    """A diagonal matrix, given by its diagonal, times a matrix."""
    rng = b.rng
    n, m = size(b, "N"), size(b, "M")
    a = b.input(("A", "A", "d", "diag", "a", "scale", "x"), (n,))
    w = b.input(("B", "B", "b", "mat", "M_in", "y"), (n, m))
    b.start(a, (n,))
    forms = [
        f"torch.diag({{x}}) @ {w}",
        f"torch.matmul(torch.diag({{x}}), {w})",
        f"torch.mm(torch.diag({{x}}), {w})",
        f"{{a}}.unsqueeze(1) * {w}",
        f"{{a}}[:, None] * {w}",
        f"{{a}}.diag() @ {w}",
        f"{{a}}.view(-1, 1) * {w}",
    ]
    b.apply(rng.choice(forms), "C")
    b.shape = (n, m)
    epilogue = sample_chain(b, chain_count(rng, 0.65), Range())
    b.call(
        _product_of(
            "diag_matmul",
            [f"{a}.contiguous()", f"{w}.contiguous()"],
            "a[i / N] * b[i]",
            "b.sizes()",
            epilogue,
        )
    )


def build_outer(b: Builder) -> None:
    """The outer product of two vectors."""
    rng = b.rng
    m, n = size(b, "M"), size(b, "N")
    a = b.input(("a", "x", "A", "u", "vec1"), (m,))
    w = b.input(("b", "y", "B", "v", "vec2"), (n,))
    b.start(a, (m,))
    forms = [f"torch.outer({{x}}, {w})"] * 3 + [
        f"torch.einsum('i,j->ij', {{x}}, {w})",
        f"{{a}}[:, None] * {w}[None, :]",
        f"{{a}}.unsqueeze(1) * {w}.unsqueeze(0)",
        f"torch.ger({{x}}, {w})",
    ]
    b.apply(rng.choice(forms), "C")
    b.shape = (m, n)
    epilogue = sample_chain(b, chain_count(rng, 0.65), Range())
    b.call(
        _product_of(
            "outer",
            [f"{a}.contiguous()", f"{w}.contiguous()"],
            "a[i / N] * b[i % N]",
            "{a.size(0), b.size(0)}",
            epilogue,
        )
    )


def build_matrix_scalar(b: Builder) -> None:
    """A matrix times a number that forward takes as an argument."""
    rng = b.rng
    m, n = size(b, "M"), size(b, "N")
    a = b.input(_MATRIX, (m, n), draw_make(rng))
    s = b.input(
        ("s", "s", "scalar", "alpha", "c", "k", "factor"),
        (),
        rng.choice(["3.14", "2.0", "0.5", "2.5", "1.7", "0.25"]),
    )
    b.start(a, (m, n))
    op = rng.choice(["*", "*", "*", "+", "-", "/"])
    forms = [f"{{a}} {op} {s}"]
    if op == "*":
        forms += [f"{s} * {{a}}", f"torch.mul({{x}}, {s})"]
    b.apply(rng.choice(forms), "C")
    name = {"*": "mul", "+": "add", "-": "sub", "/": "div"}[op]
    first = PointOp(
        name=name, code=(f"v = v {op} {{0}};",), operands=(Operand(kind="scalar", call=s),)
    )
    point_function(b, [first, *sample_chain(b, chain_count(rng, 0.6), Range())])


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("matvec", 2.0, build_matvec),
    ("diagonal", 1.0, build_diagonal),
    ("outer", 0.6, build_outer),
    ("matrix_scalar", 0.8, build_matrix_scalar),
)
