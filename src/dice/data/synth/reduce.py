"""Family: reductions over one dimension, several adjacent ones, or all, with elementwise operators around."""

from collections.abc import Sequence

from dice.data.synth import rowwise
from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, PointOp, indent
from dice.data.synth.dims import axis_expr, pick_axis
from dice.data.synth.pointwise import point_function
from dice.data.synth.shapes import draw_shape, positive_input

KINDS = {
    "sum": 14.0, "mean": 14.0, "max": 13.0, "min": 11.0, "argmax": 7.0, "argmin": 7.0, "prod": 4.0, "var": 4.0, "std": 4.0,
    "logsumexp": 7.0, "norm2": 5.0, "norm1": 3.0, "norminf": 1.0, "count": 1.0,
}
HINTS = {"sum": "total", "mean": "mean", "max": "max_values", "min": "min_values", "argmax": "indices", "argmin": "indices", "var": "var", "std": "std", "logsumexp": "lse", "norm2": "norm", "norm1": "norm"}


def spell_reduction(b: Builder, kind: str, dim: str | None, keep: bool) -> None:
    """Write the reduction into the problem's forward."""
    rng = b.rng
    k = ", keepdim=True" if keep else ""
    one = dim is not None and not dim.startswith(("(", "["))
    plain = {"sum": "sum", "mean": "mean", "prod": "prod", "var": "var", "std": "std", "argmax": "argmax", "argmin": "argmin", "max": "max", "min": "min"}
    if dim is None:
        forms = {
            "norm2": ["torch.norm({x})", "{a}.norm()", "torch.norm({x}, p='fro')", "torch.norm({x}, p=2)", "torch.linalg.norm({x})", "torch.sqrt(torch.sum({a} ** 2))"],
            "norm1": ["torch.norm({x}, p=1)", "{a}.norm(p=1)", "torch.sum(torch.abs({x}))", "{a}.abs().sum()"],
            "logsumexp": ["torch.logsumexp({x}.flatten(), dim=0)", "torch.log(torch.sum(torch.exp({x})))"],
        }.get(kind) or [f"torch.{plain[kind]}({{x}})", f"{{a}}.{plain[kind]}()"]
        b.apply(rng.choice(forms), HINTS.get(kind))
        return
    n = plain.get(kind, kind)
    d = "{d}"
    if kind in ("sum", "mean"):
        forms = [f"torch.{n}({{x}}, dim={d}{k})", f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"torch.{n}({{x}}, {d}{k})", f"{{a}}.{n}({d}{k})", f"torch.{n}({{x}}, axis={d}{k})"]
    elif kind in ("max", "min"):
        if not one:
            forms = [f"torch.a{n}({{x}}, dim={d}{k})", f"{{a}}.a{n}(dim={d}{k})"]
        elif rng.random() < 0.3:
            values = b.local(["values", "max_values" if n == "max" else "min_values", "vals", "out", "result", "m", "best", "v"])
            other = rng.choice(["_", "_", "_", "indices", "idx", "_indices"])
            form = rng.choice([f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"{{a}}.{n}({d}{k})", f"torch.{n}({{x}}, {d}{k})"])
            b.apply(form, d=dim)
            call = b.cur
            if call.isidentifier():
                call = b.forward_lines.pop().split(" = ", 1)[1]
            b.line(f"{values}, {other} = {call}")
            b.cur = values
            return
        else:
            forms = [f"torch.{n}({{x}}, dim={d}{k})[0]", f"torch.{n}({{x}}, dim={d}{k})[0]", f"torch.{n}({{x}}, dim={d}{k}).values", f"{{a}}.{n}(dim={d}{k})[0]", f"{{a}}.{n}(dim={d}{k}).values", f"torch.a{n}({{x}}, dim={d}{k})", f"{{a}}.a{n}(dim={d}{k})", f"{{a}}.{n}({d}{k})[0]", f"torch.{n}({{x}}, {d}{k})[0]", f"torch.{n}({{x}}, {d}{k}).values"]
    elif kind in ("argmax", "argmin", "prod"):
        forms = [f"torch.{n}({{x}}, dim={d}{k})", f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"{{a}}.{n}({d}{k})", f"torch.{n}({{x}}, {d}{k})"]
        if kind != "prod":
            m = n[3:]
            forms += [f"torch.{m}({{x}}, dim={d}{k})[1]", f"{{a}}.{m}(dim={d}{k})[1]", f"torch.{m}({{x}}, dim={d}{k}).indices"]
    elif kind in ("var", "std"):
        forms = [f"torch.{n}({{x}}, dim={d}{k})", f"{{a}}.{n}(dim={d}{k})", f"torch.{n}({{x}}, dim={d}, unbiased=True{k})"]
    elif kind in ("var0", "std0"):
        n = kind[:-1]
        forms = [f"torch.{n}({{x}}, dim={d}, unbiased=False{k})", f"{{a}}.{n}(dim={d}, unbiased=False{k})", f"torch.{n}({{x}}, dim={d}, correction=0{k})", f"{{a}}.{n}({d}, unbiased=False{k})"]
    elif kind == "logsumexp":
        forms = [f"torch.logsumexp({{x}}, dim={d}{k})", f"torch.logsumexp({{x}}, dim={d}{k})", f"{{a}}.logsumexp(dim={d}{k})", f"torch.logsumexp({{x}}, {d}{k})", f"torch.log(torch.sum(torch.exp({{x}}), dim={d}{k}))"]
    elif kind == "norm2":
        forms = [f"torch.norm({{x}}, p=2, dim={d}{k})", f"torch.norm({{x}}, dim={d}{k})", f"{{a}}.norm(dim={d}{k})", f"{{a}}.norm(p=2, dim={d}{k})", f"torch.linalg.norm({{x}}, dim={d}{k})", f"torch.linalg.vector_norm({{x}}, dim={d}{k})", f"torch.sqrt(torch.sum({{a}} ** 2, dim={d}{k}))", f"{{a}}.pow(2).sum(dim={d}{k}).sqrt()", f"torch.sqrt(({{n}} * {{n}}).sum(dim={d}{k}))"]
        if not one:
            forms = forms[-3:]
    elif kind == "norm1":
        forms = [f"torch.norm({{x}}, p=1, dim={d}{k})", f"{{a}}.norm(p=1, dim={d}{k})", f"torch.sum(torch.abs({{x}}), dim={d}{k})", f"{{a}}.abs().sum(dim={d}{k})"]
        if not one:
            forms = forms[-2:]
    elif kind == "norminf":
        forms = [f"torch.norm({{x}}, p=float('inf'), dim={d}{k})", f"{{a}}.abs().amax(dim={d}{k})", f"torch.amax(torch.abs({{x}}), dim={d}{k})", f"{{a}}.abs().max(dim={d}{k})[0]"]
        if not one:
            forms = forms[1:3]
    else:
        forms = [f"torch.count_nonzero({{x}}, dim={d})"]
    b.apply(rng.choice(forms), HINTS.get(kind), d=dim)


def reduction_body(f: HostFunction, kind: str, pre: Sequence[str], post: Sequence[str], schedule: str, out: str) -> str:
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
            + "    sum = block_sum(sum);\n" + store(expr)
        )
    if kind == "logsumexp":
        use("max")
        use("sum")
        return (
            "    float m = -INFINITY;\n"
            + rowwise.loop([*load, "m = fmaxf(m, v);"])
            + "    m = block_max(m);\n    float sum = 0.0f;\n"
            + rowwise.loop([*load, "sum += expf(v - m);"])
            + "    sum = block_sum(sum);\n" + store("m + logf(sum)")
        )
    base = {"sum": "sum", "mean": "sum", "norm2": "sum", "norm1": "sum", "norminf": "max", "max": "max", "min": "min", "prod": "prod", "count": "sum"}[kind]
    use(base)
    term = {"norm2": "v * v", "norm1": "fabsf(v)", "norminf": "fabsf(v)"}.get(kind, "v")
    result = {"mean": "acc / len", "norm2": "sqrtf(acc)"}.get(kind, "acc")
    update = {"sum": f"acc += {term};", "prod": f"acc *= {term};"}.get(base, f"acc = {rowwise.combine(base, 'acc', term)};")
    return (
        f"    float acc = {rowwise.zero(base)};\n"
        + rowwise.loop([*load, update])
        + f"    acc = block_{base}(acc);\n" + store(result)
    )


def reduce_function(
    b: Builder, kind: str, dim: str | None, last: str | None, keep: bool, keep_expr: str | None,
    pre: Sequence[PointOp], post: Sequence[PointOp], schedule: str,
) -> None:
    """Add the host function of a reduction over `dim` (to `last`), or over everything where None."""
    f = HostFunction(ops=[*(op.name for op in pre), kind, *(op.name for op in post)], leading=[("x", b.lead())])
    whole = dim is None
    if whole and kind in ("sum", "mean", "norm1") and not post:
        whole_sum(b, f, kind, pre)
        return
    pre_lines = f.point(pre, "i")
    if dim is not None:
        f.scalar(dim, "int64_t", "dim")
    if last is not None:
        f.scalar(last, "int64_t", "last")
    if keep_expr is not None:
        f.scalar(keep_expr, "bool", "keepdim")
    params = list(f.params)
    post_lines = f.point(post, "o")
    hidden = [p for p in f.params if p[1] in ("dim", "last", "keepdim")]
    shown = [p for p in f.params if p not in hidden]
    all_params, f.params = f.params, shown
    arg = kind in ("argmax", "argmin")
    out = "int64_t" if arg else "float"
    head = "    __shared__ float s[256];\n    __shared__ int64_t p[256];\n" if arg else ""
    f.kernels.append(rowwise.kernel(f, reduction_body(f, kind, pre_lines, post_lines, schedule, out), out=out, head=head))
    options = "x.options().dtype(torch::kInt64)" if arg else "x.options()"
    if whole:
        body = ["int64_t rows = 1, len = x.numel(), inner = 1;", f"auto out = torch::empty({{}}, {options});"]
    else:
        body = rowwise.split_dim(last and "last")
        body.append("auto sizes = x.sizes().vec();")
        if keep_expr is not None:
            body.append("sizes[dim] = 1;")
            body.append("if (!keepdim) sizes.erase(sizes.begin() + dim);")
        elif last is not None:
            body.append("for (int64_t d = dim; d <= last; d++) sizes[d] = 1;" if keep else "sizes.erase(sizes.begin() + dim, sizes.begin() + last + 1);")
        else:
            body.append("sizes[dim] = 1;" if keep else "sizes.erase(sizes.begin() + dim);")
        body.append(f"auto out = torch::empty(sizes, {options});")
    assert params is not None
    f.host_body = [*body, *rowwise.launch(f, "tree" if arg else schedule, out=out, like=OPERAND_LIKE)]
    f.host_body = [line.replace(OPERAND_LIKE, "out" if post else "x") for line in f.host_body]
    f.params = all_params
    if schedule == "warp_shuffle" and not arg:
        b.schedule = schedule
    b.call(f)


OPERAND_LIKE = "LIKE"


def whole_sum(b: Builder, f: HostFunction, kind: str, pre: Sequence[PointOp], *, divide: str | None = None) -> None:
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


def add_reduction(b: Builder, pre: Sequence[PointOp], *, kinds: dict[str, float] | None = None, known: Range | None = None) -> None:
    """Reduce the current value, then perhaps apply further operators; both sides."""
    rng = b.rng
    table = kinds or KINDS
    kind = rng.choices(list(table), list(table.values()))[0]
    if kind == "count":
        kind = "sum"
    rank = len(b.shape)
    scope = rng.choices(["one", "all", "many"], [74, 16, 10 if rank >= 3 else 0])[0]
    if kind in ("argmax", "argmin", "logsumexp", "prod", "var", "std") and scope == "many":
        scope = "one"
    if kind in ("var", "std", "norminf") and scope == "all":
        scope = "one"
    keep, keep_expr, last = False, None, None
    dim: str | None = None
    if scope == "one":
        axis = pick_axis(b)
        dim, index = axis.expr, axis.index
        keep = rng.random() < 0.35
        if kind in ("var", "std") and rng.random() < 0.35:
            kind += "0"
        text_dim = dim
        new = [d for i, d in enumerate(b.shape) if i != index]
        spell_reduction(b, kind, text_dim, keep)
        if keep and b.forward_lines and rng.random() < 0:
            keep_expr = None
        one = b.dim("one", 1, 1) if keep else None
        b.shape = tuple(d if i != index else one for i, d in enumerate(b.shape) if i != index or keep)  # type: ignore[misc]
        assert keep or len(b.shape) == len(new)
    elif scope == "many":
        index = rank - 2 if rng.random() < 0.7 else 1
        count = 2 if rng.random() < 0.75 else rank - index
        count = min(count, rank - index)
        negative = index + count == rank and rng.random() < 0.45
        nums = [i - rank if negative else i for i in range(index, index + count)]
        inside = ", ".join(map(str, nums))
        text = rng.choice(["({})", "({})", "[{}]"]).format(inside)
        dim, last = str(nums[0]), str(nums[-1])
        if rng.random() < 0.2:
            attr = b.hyper(("dims", "dim", "axes", "reduce_dims"), text, literal=False)
            dim, last, text = f"{attr}[0]", f"{attr}[{count - 1}]", attr
            text = f"({text})" if False else text
        keep = rng.random() < 0.4
        b_shape = b.shape
        spell_many = text if text.startswith(("(", "[")) else text
        _spell_many(b, kind, spell_many, keep)
        b.shape = tuple(
            b.dim("one", 1, 1) if index <= i < index + count else d
            for i, d in enumerate(b_shape) if keep or not index <= i < index + count
        )
    else:
        if kind.endswith("0"):
            kind = kind[:-1]
        spell_reduction(b, kind, None, False)
        b.shape = ()
    post: list[PointOp] = []
    if kind not in ("argmax", "argmin"):
        count = rng.choices([0, 1, 2], [66, 24, 10])[0]
        after = Range(sign="nonneg" if kind in ("norm2", "norm1", "norminf", "var", "std", "var0", "std0") else "any", large=True)
        b_has = bool(b.shape)
        post = sample_chain(b, count, after, extra_tensors=b_has)
    schedule = rng.choices(["tree", "warp_shuffle"], [84, 16])[0]
    separate = (pre or post) and rng.random() < 0.15
    if scope == "all" and kind in ("sum", "mean", "norm1"):
        if separate and pre:
            point_function(b, pre)
            pre = []
            b.schedule = "separate"
        reduce_function(b, kind, dim, last, keep, keep_expr, pre, [], schedule)
        if post:
            point_function(b, post)
        return
    if separate:
        if pre:
            point_function(b, pre)
        reduce_function(b, kind, dim, last, keep, keep_expr, [], [], schedule)
        if post:
            point_function(b, post)
        b.schedule = "separate"
        return
    b.schedule = "tree"
    reduce_function(b, kind, dim, last, keep, keep_expr, pre, post, schedule)


def _spell_many(b: Builder, kind: str, text: str, keep: bool) -> None:
    marker = text if text.startswith(("(", "[")) else f"({text})"
    before = len(b.forward_lines)
    spell_reduction(b, kind, marker, keep)
    if marker != text:
        b.cur = b.cur.replace(marker, text)
        for i in range(before, len(b.forward_lines)):
            b.forward_lines[i] = b.forward_lines[i].replace(marker, text)


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
    pre = sample_chain(b, rng.choices([0, 1, 2], [62, 27, 11])[0], known)
    add_reduction(b, pre)


_ = axis_expr
