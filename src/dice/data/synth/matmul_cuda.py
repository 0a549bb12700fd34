"""CUDA text of matrix products: plain, tiled through shared memory, and register-tiled.

Kinds of operands: "mm" (two matrices, any strides, so that transposed views need no copy), "bmm" (the same
with a batch), "rows" (contiguous rows of any rank times a contiguous matrix), "linear" (rows times the
transpose of a weight, with an optional bias). Rows are on the grid's x axis, which has no small limit.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from dice.data.synth.cuda import PointOp, indent
from dice.data.synth.opfunction import OpFunction

SCHEDULES = ("plain", "tile16", "tile32", "register")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """How one kind of product finds its operands."""

    names: tuple[str, str]
    strides: str
    """Kernel parameters after M, N, K."""
    left: str
    """Index of the left operand; {r} and {k} are row and inner coordinate."""
    right: str
    """Index of the right operand; {k} and {c} are inner coordinate and column."""
    right_by_rows: bool
    """The right operand is contiguous along the inner coordinate."""
    host: tuple[str, ...]
    strides_args: str


_SIZES = (
    "auto sizes = {a}.sizes().vec();",
    "sizes.back() = N;",
    "auto out = torch::empty(sizes, {a}.options());",
)
_STRIDED_LEFT = "{r} * ar + ({k}) * ac"
_STRIDED_RIGHT = "({k}) * br + {c} * bc"

_KINDS: dict[str, _Kind] = {
    "mm": _Kind(
        names=("a", "b"),
        strides=", int64_t ar, int64_t ac, int64_t br, int64_t bc",
        left=_STRIDED_LEFT,
        right=_STRIDED_RIGHT,
        right_by_rows=False,
        host=(
            "int M = a.size(0), K = a.size(1), N = b.size(1);",
            "auto out = torch::empty({M, N}, a.options());",
        ),
        strides_args=", a.stride(0), a.stride(1), b.stride(0), b.stride(1)",
    ),
    "bmm": _Kind(
        names=("a", "b"),
        strides=", int64_t an, int64_t ar, int64_t ac, int64_t bn, int64_t br, int64_t bc",
        left=_STRIDED_LEFT,
        right=_STRIDED_RIGHT,
        right_by_rows=False,
        host=(
            "int M = a.size(-2), K = a.size(-1), N = b.size(-1);",
            *(line.replace("{a}", "a") for line in _SIZES),
            "a = a.flatten(0, -3);",
            "b = b.flatten(0, -3);",
        ),
        strides_args=", a.stride(0), a.stride(1), a.stride(2), b.stride(0), b.stride(1), b.stride(2)",
    ),
    "rows": _Kind(
        names=("a", "b"),
        strides="",
        left="(int64_t){r} * K + {k}",
        right="(int64_t)({k}) * N + {c}",
        right_by_rows=False,
        host=(
            "int K = a.size(-1), M = a.numel() / K, N = b.size(-1);",
            *(line.replace("{a}", "a") for line in _SIZES),
        ),
        strides_args="",
    ),
    "linear": _Kind(
        names=("x", "weight"),
        strides="",
        left="(int64_t){r} * K + {k}",
        right="(int64_t){c} * K + {k}",
        right_by_rows=True,
        host=(
            "int K = x.size(-1), M = x.numel() / K, N = weight.size(0);",
            *(line.replace("{a}", "x") for line in _SIZES),
        ),
        strides_args="",
    ),
}


def matmul_function(
    kind: str,
    calls: Sequence[str],
    *,
    schedule: str = "plain",
    mask: str | None = None,
    prologue: Sequence[PointOp] = (),
    epilogue: Sequence[PointOp] = (),
) -> OpFunction:
    """Host function of a matrix product.

    `calls` are the Python expressions of both operands, and of the bias for "linear". `prologue` applies
    to the left operand's elements, `epilogue` to the product's. `mask` is "triu" or "tril": the other
    triangle of the product is zero.
    """
    k = _KINDS[kind]
    a, b = k.names
    name = {"mm": "matmul", "rows": "matmul"}.get(kind, kind)
    bias = kind == "linear"
    fn = OpFunction(
        ops=[*(op.name for op in prologue), name, mask or "", *(op.name for op in epilogue)],
        leading=[(a, calls[0]), (b, calls[1])],
        typed=[("std::optional<torch::Tensor> bias", calls[2])] if bias else [],
    )
    body = {"plain": _plain, "register": _register}.get(schedule, _tiled)(fn, k, prologue)
    depth = 3 if schedule == "register" else 1
    value = "acc[p][q]" if schedule == "register" else "acc"
    row = "((int64_t)blockIdx.z * M + row)" if kind == "bmm" else "(int64_t)row"
    store = indent([f"int64_t i = {row} * N + col;"], depth)
    if mask:
        value = f"{'row <= col' if mask == 'triu' else 'row >= col'} ? {value} : 0.0f"
    if bias:
        value += " + (bias ? bias[col] : 0.0f)"
    store += fn.store(value, epilogue, depth)
    if schedule == "register":
        store += "        }\n    }\n"
    batch = ""
    if kind == "bmm":
        batch = indent([f"{a} += blockIdx.z * an;", f"{b} += blockIdx.z * bn;"], 1)
    fn.kernels.append(
        f"__global__ void NAME_kernel(const float* {a}, const float* {b}, {'const float* bias, ' if bias else ''}"
        f"{fn.kernel_params()}float* out, int M, int N, int K{k.strides}) {{\n{batch}{body}{store}}}"
    )
    tile = {"plain": "16", "register": "64"}.get(schedule, "TILE")
    if tile == "TILE":
        fn.helpers.append(f"#define TILE {schedule[4:]}")
    less = "TILE - 1" if tile == "TILE" else str(int(tile) - 1)
    block = "dim3(256)" if schedule == "register" else f"dim3({tile}, {tile})"
    depth_z = f", {a}.size(0)" if kind == "bmm" else ""
    bias_arg = "bias ? bias->data_ptr<float>() : nullptr, " if bias else ""
    fn.host_body += [
        *k.host,
        f"dim3 grid((M + {less}) / {tile}, (N + {less}) / {tile}{depth_z});",
        f"NAME_kernel<<<grid, {block}>>>({a}.data_ptr<float>(), {b}.data_ptr<float>(), {bias_arg}"
        f"{fn.launch_args('out')}out.data_ptr<float>(), M, N, K{k.strides_args});",
        "return out;",
    ]
    return fn


def _left(k: _Kind, r: str, inner: str) -> str:
    return f"{k.names[0]}[{_clean(k.left.replace('{r}', r).replace('{k}', inner))}]"


def _right(k: _Kind, inner: str, c: str) -> str:
    return f"{k.names[1]}[{_clean(k.right.replace('{k}', inner).replace('{c}', c))}]"


def _clean(index: str) -> str:
    return index.replace("(k)", "k").replace("(ka)", "ka").replace("(kb)", "kb")


def _plain(fn: OpFunction, k: _Kind, prologue: Sequence[PointOp]) -> str:
    head = [
        "int row = blockIdx.x * 16 + threadIdx.y;",
        "int col = blockIdx.y * 16 + threadIdx.x;",
        "if (row >= M || col >= N) return;",
        "float acc = 0.0f;",
        "for (int k = 0; k < K; k++) {",
    ]
    load = fn.load(_left(k, "row", "k"), prologue, 2, f"acc += {{v}} * {_right(k, 'k', 'col')};")
    return indent(head, 1) + load + "    }\n"


def _guarded(
    fn: OpFunction, target: str, guard: str, element: str, prologue: Sequence[PointOp]
) -> list[str]:
    """Statements that fill one element of a tile, zero outside of the operand."""
    if not prologue:
        return [f"{target} = {guard} ? {element} : 0.0f;"]
    inner = [f"v = {element};", *fn.point(prologue)]
    return [
        "float v = 0.0f;",
        f"if ({guard}) {{",
        *("    " + line for line in inner),
        "}",
        f"{target} = v;",
    ]


def _tiled(fn: OpFunction, k: _Kind, prologue: Sequence[PointOp]) -> str:
    left = _guarded(fn, "As[ty][tx]", "row < M && t + tx < K", _left(k, "row", "t + tx"), prologue)
    if k.right_by_rows:
        right = [
            "int r = blockIdx.y * TILE + ty;",
            f"Bs[tx][ty] = r < N && t + tx < K ? {_right(k, 't + tx', 'r')} : 0.0f;",
        ]
    else:
        right = [f"Bs[ty][tx] = t + ty < K && col < N ? {_right(k, 't + ty', 'col')} : 0.0f;"]
    head = [
        "__shared__ float As[TILE][TILE];",
        f"__shared__ float Bs[TILE][TILE{' + 1' if k.right_by_rows else ''}];",
        "int tx = threadIdx.x, ty = threadIdx.y;",
        "int row = blockIdx.x * TILE + ty;",
        "int col = blockIdx.y * TILE + tx;",
        "float acc = 0.0f;",
        "for (int t = 0; t < K; t += TILE) {",
    ]
    loop = [
        *left,
        *right,
        "__syncthreads();",
        "for (int k = 0; k < TILE; k++) acc += As[ty][k] * Bs[k][tx];",
        "__syncthreads();",
    ]
    return indent(head, 1) + indent(loop, 2) + indent(["}", "if (row >= M || col >= N) return;"], 1)


def _register(fn: OpFunction, k: _Kind, prologue: Sequence[PointOp]) -> str:
    left = _guarded(fn, "As[i % 16][i / 16]", "row < M && ka < K", _left(k, "row", "ka"), prologue)
    if k.right_by_rows:
        col = "i / 16"
        right = [f"Bs[i % 16][i / 16] = ka < K && col < N ? {_right(k, 'ka', 'col')} : 0.0f;"]
        inner = "ka = t + i % 16"
    else:
        col = "i % 64"
        right = [f"Bs[i / 64][i % 64] = kb < K && col < N ? {_right(k, 'kb', 'col')} : 0.0f;"]
        inner = "ka = t + i % 16, kb = t + i / 64"
    head = [
        "__shared__ float As[16][64];",
        "__shared__ float Bs[16][64];",
        "int tx = threadIdx.x % 16, ty = threadIdx.x / 16;",
        "int row0 = blockIdx.x * 64, col0 = blockIdx.y * 64;",
        "float acc[4][4] = {};",
        "for (int t = 0; t < K; t += 16) {",
        "    for (int i = threadIdx.x; i < 1024; i += 256) {",
        f"        int row = row0 + i / 16, col = col0 + {col}, {inner};",
    ]
    loop = [
        "__syncthreads();",
        "for (int k = 0; k < 16; k++)",
        "    for (int p = 0; p < 4; p++)",
        "        for (int q = 0; q < 4; q++) acc[p][q] += As[k][ty * 4 + p] * Bs[k][tx * 4 + q];",
        "__syncthreads();",
    ]
    tail = [
        "}",
        "for (int p = 0; p < 4; p++) {",
        "    for (int q = 0; q < 4; q++) {",
        "        int row = row0 + ty * 4 + p, col = col0 + tx * 4 + q;",
        "        if (row >= M || col >= N) continue;",
    ]
    return (
        indent(head, 1)
        + indent([*left, *right], 3)
        + "        }\n"
        + indent(loop, 2)
        + indent(tail, 1)
    )
