"""Kernels over one dimension, any layout: a tensor seen as rows of `len` elements, `inner` apart.

A thread block is (x, y): x runs over rows, y along a row, so that reads are coalesced both for the last
dimension (1 x 256) and for an inner one (32 x 8). `block_sum` and `block_max` combine along y.
"""

from collections.abc import Mapping, Sequence

from dice.data.synth.cuda import HostFunction, indent

_TREE = """__device__ float block_{name}(float v) {{
    __shared__ float s[256];
    int t = threadIdx.y * blockDim.x + threadIdx.x;
    s[t] = v;
    __syncthreads();
    for (int k = blockDim.y / 2; k > 0; k /= 2) {{
        if (threadIdx.y < k) s[t] = {combine};
        __syncthreads();
    }}
    v = s[threadIdx.x];
    __syncthreads();
    return v;
}}"""

_WARP = """__device__ float block_{name}(float v) {{
    __shared__ float s[32];
    int t = threadIdx.y;
    for (int k = 16; k > 0; k /= 2) v = {combine};
    if (t % 32 == 0) s[t / 32] = v;
    __syncthreads();
    v = t < 8 ? s[t] : {zero};
    for (int k = 16; k > 0; k /= 2) v = {combine};
    if (t == 0) s[0] = v;
    __syncthreads();
    v = s[0];
    __syncthreads();
    return v;
}}"""

_COMBINE = {
    "sum": ("{a} + {b}", "0.0f"),
    "max": ("fmaxf({a}, {b})", "-INFINITY"),
    "min": ("fminf({a}, {b})", "INFINITY"),
    "prod": ("{a} * {b}", "1.0f"),
}


def zero(kind: str) -> str:
    """Neutral element of a combination, as C text."""
    return _COMBINE[kind][1]


def combine(kind: str, a: str, b: str) -> str:
    """C expression that combines two values."""
    return _COMBINE[kind][0].format(a=a, b=b)


def use_block(f: HostFunction, kind: str, schedule: str) -> None:
    """Make `block_<kind>` available in a function's kernels."""
    if schedule == "warp_shuffle":
        text = _WARP.format(
            name=kind,
            zero=zero(kind),
            combine=combine(kind, "v", "__shfl_down_sync(0xffffffff, v, k)"),
        )
    else:
        text = _TREE.format(name=kind, combine=combine(kind, "s[t]", "s[t + k * blockDim.x]"))
    if text not in f.helpers:
        f.helpers.append(text)


def loop(lines: Sequence[str]) -> str:
    """A loop of a row's threads over its elements: r is the position in the row, i the flat index."""
    return (
        "    for (int64_t r = threadIdx.y; r < len; r += blockDim.y) {\n"
        "        int64_t i = base + r * inner;\n"
        f"{indent(lines, 2)}"
        "    }\n"
    )


def kernel(f: HostFunction, body: str, *, out: str = "float", head: str = "") -> str:
    """A kernel over rows; `body` is text at one level of indentation."""
    return (
        f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}{out}* out, int64_t rows, int64_t len, int64_t inner) {{\n"
        f"{head}"
        "    int64_t o = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    int64_t base = o / inner * len * inner + o % inner;\n"
        "    if (o >= rows) len = 0;\n"
        f"{body}"
        "}"
    )


def split_dim(last: str | None = None) -> list[str]:
    """Host statements: rows, len and inner for dimension `dim`, or for `dim` to `last`."""
    if last is None:
        return [
            "if (dim < 0) dim += x.dim();",
            "int64_t len = x.size(dim), inner = 1;",
            "for (int64_t d = dim + 1; d < x.dim(); d++) inner *= x.size(d);",
            "int64_t rows = x.numel() / len;",
        ]
    return [
        "if (dim < 0) dim += x.dim();",
        f"if ({last} < 0) {last} += x.dim();",
        "int64_t len = 1, inner = 1;",
        f"for (int64_t d = dim; d <= {last}; d++) len *= x.size(d);",
        f"for (int64_t d = {last} + 1; d < x.dim(); d++) inner *= x.size(d);",
        "int64_t rows = x.numel() / len;",
    ]


def launch(
    f: HostFunction, schedule: str, *, out: str = "float", like: str | Mapping[str, str] = "x"
) -> list[str]:
    """Host statements that launch a rows kernel into `out`."""
    if schedule == "warp_shuffle":
        block = "dim3 block(1, 256);"
    else:
        block = "dim3 block(inner > 1 ? 32 : 1, inner > 1 ? 8 : 256);"
    return [
        block,
        f"NAME_kernel<<<(rows + block.x - 1) / block.x, block>>>(x.data_ptr<float>(), {f.launch_args(like)}out.data_ptr<{out}>(), rows, len, inner);",
        "return out;",
    ]
