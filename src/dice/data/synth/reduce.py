"""Family: reductions over one dimension, several adjacent ones, or all, with elementwise operators around."""

from collections.abc import Sequence
from dataclasses import dataclass

from dice.data.synth import rowwise
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, PointOp, indent
from dice.data.synth.dims import pick_axis
from dice.data.synth.pointwise import point_function
from dice.data.synth.reduce_spell import KINDS, spell_reduction
from dice.data.synth.shapes import at_least_two, draw_shape, maybe_flatten, positive_input


def reduction_body(
    f: HostFunction, kind: str, pre: Sequence[str], post: Sequence[str], schedule: str
) -> str:
    """Kernel body of one reduction; `pre` acts on each element, `post` on the result at index o."""
    load = ["float v = x[i];", *pre]

    def store(expression: str) -> str:
        return (
            "    if (threadIdx.y == 0 && o < rows) {\n"
            f"        float v = {expression};\n"
            f"{indent(post, 2)}"
            "        out[o] = v;\n"
            "    }\n"
        )

    def use(name: str) -> None:
        rowwise.use_block(f, name, schedule)

    if kind in ("argmax", "argmin"):
        sign = ">" if kind == "argmax" else "<"
        start = "-INFINITY" if kind == "argmax" else "INFINITY"
        return (
            f"    float best = {start};\n    int64_t at = 0;\n"
            + rowwise.loop([*load, f"if (v {sign} best) {{", "    best = v;", "    at = r;", "}"])
            + "    int t = threadIdx.y * blockDim.x + threadIdx.x;\n"
            "    s[t] = best;\n    p[t] = at;\n    __syncthreads();\n"
            "    for (int k = blockDim.y / 2; k > 0; k /= 2) {\n"
            "        int u = t + k * blockDim.x;\n"
            f"        if (threadIdx.y < k && (s[u] {sign} s[t] || (s[u] == s[t] && p[u] < p[t]))) {{\n"
            "            s[t] = s[u];\n            p[t] = p[u];\n        }\n"
            "        __syncthreads();\n    }\n"
            "    if (threadIdx.y == 0 && o < rows) out[o] = p[t];\n"
        )
    if kind in ("var", "std", "var0", "std0"):
        use("sum")
        divide = "(len - 1)" if not kind.endswith("0") else "len"
        expr = f"sum / {divide}"
        if kind.startswith("std"):
            expr = f"sqrtf({expr})"
        return (
            "    float sum = 0.0f;\n"
            + rowwise.loop([*load, "sum += v;"])
            + "    float mean = block_sum(sum) / len;\n    sum = 0.0f;\n"
            + rowwise.loop([*load, "sum += (v - mean) * (v - mean);"])
            + "    sum = block_sum(sum);\n"
            + store(expr)
        )
    if kind == "logsumexp":
        use("max")
        use("sum")
        return (
            "    float m = -INFINITY;\n"
            + rowwise.loop([*load, "m = fmaxf(m, v);"])
            + "    m = block_max(m);\n    float sum = 0.0f;\n"
            + rowwise.loop([*load, "sum += expf(v - m);"])
            + "    sum = block_sum(sum);\n"
            + store("m + logf(sum)")
        )
    base = {
        "sum": "sum",
        "mean": "sum",
        "norm2": "sum",
        "norm1": "sum",
        "norminf": "max",
        "max": "max",
        "min": "min",
        "prod": "prod",
    }[kind]
    use(base)
    term = {"norm2": "v * v", "norm1": "fabsf(v)", "norminf": "fabsf(v)"}.get(kind, "v")
    result = {"mean": "acc / len", "norm2": "sqrtf(acc)"}.get(kind, "acc")
    update = {"sum": f"acc += {term};", "prod": f"acc *= {term};"}.get(
        base, f"acc = {rowwise.combine(base, 'acc', term)};"
    )
    return (
        f"    float acc = {rowwise.zero(base)};\n"
        + rowwise.loop([*load, update])
        + f"    acc = block_{base}(acc);\n"
        + store(result)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduction:
    """What is reduced: `dim` (to `last`) as the candidate's expressions, or everything where None."""

    kind: str
    dim: str | None = None
    last: str | None = None
    keep: bool = False
    keep_expr: str | None = None
    """The candidate's expression of keepdim, where it is an attribute."""


def reduce_function(
    b: Builder, r: Reduction, pre: Sequence[PointOp], post: Sequence[PointOp], schedule: str
) -> None:
    """Add the host function of a reduction with the operators around it."""
    f = HostFunction(
        ops=[*(op.name for op in pre), r.kind, *(op.name for op in post)],
        leading=[("x", b.lead())],
    )
    if r.dim is None and r.kind in ("sum", "mean", "norm1") and not post:
        whole_sum(b, f, r.kind, pre)
        return
    pre_lines = f.point(pre, "i")
    if r.dim is not None:
        f.scalar(r.dim, "int64_t", "dim")
    if r.last is not None:
        f.scalar(r.last, "int64_t", "last")
    if r.keep_expr is not None:
        f.scalar(r.keep_expr, "bool", "keepdim")
    before = {p[1] for p in f.params}
    post_lines = f.point(post, "o")
    hidden = ("dim", "last", "keepdim")
    every, f.params = f.params, [p for p in f.params if p[1] not in hidden]
    arg = r.kind in ("argmax", "argmin")
    out = "int64_t" if arg else "float"
    head = "    __shared__ float s[256];\n    __shared__ int64_t p[256];\n" if arg else ""
    text = reduction_body(f, r.kind, pre_lines, post_lines, schedule)
    f.kernels.append(rowwise.kernel(f, text, out=out, head=head))
    like = {p[1]: "x" if p[1] in before else "out" for p in f.params}
    launch = rowwise.launch(f, "tree" if arg else schedule, out=out, like=like)
    f.host_body = [*_allocate(r, arg), *launch]
    f.params = every
    if schedule == "warp_shuffle" and not arg:
        b.schedule = schedule
    b.call(f)


def _allocate(r: Reduction, arg: bool) -> list[str]:
    """Host statements up to the allocation of the result."""
    options = "x.options().dtype(torch::kInt64)" if arg else "x.options()"
    if r.dim is None:
        return [
            "int64_t rows = 1, len = x.numel(), inner = 1;",
            f"auto out = torch::empty({{}}, {options});",
        ]
    if r.keep_expr is not None:
        drop = "if (keepdim) sizes[dim] = 1;\n    else sizes.erase(sizes.begin() + dim);"
    elif r.last is not None and r.keep:
        drop = "for (int64_t d = dim; d <= last; d++) sizes[d] = 1;"
    elif r.last is not None:
        drop = "sizes.erase(sizes.begin() + dim, sizes.begin() + last + 1);"
    else:
        drop = "sizes[dim] = 1;" if r.keep else "sizes.erase(sizes.begin() + dim);"
    return [
        *rowwise.split_dim("last" if r.last is not None else None),
        "auto sizes = x.sizes().vec();",
        drop,
        f"auto out = torch::empty(sizes, {options});",
    ]


def whole_sum(b: Builder, f: HostFunction, kind: str, pre: Sequence[PointOp]) -> None:
    """A sum or mean of everything: many thread blocks, one atomic addition each."""
    rowwise.use_block(f, "sum", "tree")
    lines = f.point(pre, "i")
    if kind == "norm1":
        lines = [*lines, "v = fabsf(v);"]
    result = "acc / n" if kind == "mean" else "acc"
    f.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t n) {{\n"
        "    float acc = 0.0f;\n"
        "    int64_t stride = (int64_t)gridDim.x * blockDim.y;\n"
        "    for (int64_t i = (int64_t)blockIdx.x * blockDim.y + threadIdx.y; i < n; i += stride) {\n"
        "        float v = x[i];\n"
        f"{indent(lines, 2)}"
        "        acc += v;\n"
        "    }\n"
        "    acc = block_sum(acc);\n"
        f"    if (threadIdx.y == 0) atomicAdd(out, {result});\n"
        "}"
    )
    f.host_body = [
        "auto out = torch::zeros({}, x.options());",
        "int64_t n = x.numel();",
        "int64_t blocks = std::min<int64_t>((n + 255) / 256, 1024);",
        f"NAME_kernel<<<blocks, dim3(1, 256)>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<float>(), n);",
        "return out;",
    ]
    b.call(f)


def reduce_one(b: Builder, kind: str) -> Reduction:
    """Write a reduction over one dimension."""
    rng = b.rng
    axis = pick_axis(b)
    keep = rng.random() < 0.35
    if kind in ("var", "std"):
        at_least_two(b.shape[axis.index])
        if rng.random() < 0.35:
            kind += "0"
    keep_expr = None
    if rng.random() < 0.06:
        keep_expr = b.hyper(("keepdim", "keep_dim", "keepdims"), str(keep), literal=False)
    before = len(b.forward_lines)
    spell_reduction(b, kind, axis.expr, True if keep_expr else keep)
    if keep_expr is not None:
        b.cur = b.cur.replace("keepdim=True", f"keepdim={keep_expr}")
        b.forward_lines[before:] = [
            line.replace("keepdim=True", f"keepdim={keep_expr}")
            for line in b.forward_lines[before:]
        ]
    _drop(b, axis.index, 1, keep)
    return Reduction(kind=kind, dim=axis.expr, keep=keep, keep_expr=keep_expr)


def reduce_many(b: Builder, kind: str) -> Reduction:
    """Write a reduction over several adjacent dimensions."""
    rng, rank = b.rng, len(b.shape)
    index = rank - 2 if rng.random() < 0.7 else 1
    count = min(2 if rng.random() < 0.75 else rank - index, rank - index)
    negative = index + count == rank and rng.random() < 0.45
    numbers = [str(i - rank if negative else i) for i in range(index, index + count)]
    text = rng.choice(["({})", "({})", "[{}]"]).format(", ".join(numbers))
    dim, last = numbers[0], numbers[-1]
    shown = text
    if rng.random() < 0.2:
        shown = b.hyper(("dims", "dim", "axes", "reduce_dims"), text, literal=False)
        dim, last = f"{shown}[0]", f"{shown}[{count - 1}]"
    keep = rng.random() < 0.4
    before = len(b.forward_lines)
    spell_reduction(b, kind, text, keep)
    b.cur = b.cur.replace(text, shown)
    b.forward_lines[before:] = [line.replace(text, shown) for line in b.forward_lines[before:]]
    _drop(b, index, count, keep)
    return Reduction(kind=kind, dim=dim, last=last, keep=keep)


def _drop(b: Builder, index: int, count: int, keep: bool) -> None:
    gone = range(index, index + count)
    ones = [b.dim("one", 1, 1) for _ in gone] if keep else []
    b.shape = (*b.shape[:index], *ones, *b.shape[index + count :])


def add_reduction(
    b: Builder, pre: Sequence[PointOp], *, kinds: dict[str, float] | None = None
) -> None:
    """Reduce the current value, then perhaps apply further operators; both sides."""
    rng = b.rng
    table = kinds or KINDS
    kind = rng.choices(list(table), list(table.values()))[0]
    scope = rng.choices(["one", "all", "many"], [74, 16, 10 if len(b.shape) >= 3 else 0])[0]
    if scope == "many" and kind in (
        "argmax",
        "argmin",
        "logsumexp",
        "prod",
        "var",
        "std",
        "norminf",
    ):
        scope = "one"
    if scope == "all" and kind in ("var", "std", "norminf"):
        scope = "one"
    if scope == "one":
        reduction = reduce_one(b, kind)
    elif scope == "many":
        reduction = reduce_many(b, kind)
    else:
        reduction = Reduction(kind=kind)
        spell_reduction(b, kind, None, False)
        b.shape = ()
    post: list[PointOp] = []
    if kind not in ("argmax", "argmin"):
        nonneg = kind.startswith(("norm", "var", "std"))
        after = Range(sign="nonneg" if nonneg else "any", large=True)
        count = rng.choices([0, 1, 2], [66, 24, 10])[0]
        post = sample_chain(b, count, after, extra_tensors=bool(b.shape))
    b.schedule = "tree"
    schedule = rng.choices(["tree", "warp_shuffle"], [84, 16])[0]
    if (pre or post) and rng.random() < 0.15:
        if pre:
            point_function(b, pre)
        reduce_function(b, reduction, [], [], schedule)
        if post:
            point_function(b, post)
        b.schedule = "separate"
    elif scope == "all" and kind in ("sum", "mean", "norm1"):
        reduce_function(b, reduction, pre, [], schedule)
        if post:
            point_function(b, post)
    else:
        reduce_function(b, reduction, pre, post, schedule)


def build_reduce(b: Builder) -> None:
    """Reductions, with 0 to 2 elementwise operators before and after."""
    rng = b.rng
    dims = draw_shape(b, ranks=(1, 2, 3, 4, 5) if rng.random() < 0.12 else (2, 3, 4))
    known = Range()
    make = None
    if rng.random() < 0.08:
        make = positive_input(b)
        known.sign = "pos"
    name = b.input("x", dims, make)
    b.start(name, dims)
    maybe_flatten(b, 0.06)
    pre = sample_chain(b, rng.choices([0, 1, 2], [62, 27, 11])[0], known)
    add_reduction(b, pre)
