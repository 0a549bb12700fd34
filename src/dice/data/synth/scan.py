"""Family: cumulative sums and products over any dimension, forwards, reversed, exclusive, masked."""

from collections.abc import Sequence

from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, Operand, PointOp, indent
from dice.data.synth.dims import pick_axis
from dice.data.synth.pointwise import point_function
from dice.data.synth.rowwise import combine, split_dim, zero
from dice.data.synth.shapes import draw_shape

# fmt: off
_FORMS: dict[str, tuple[str, ...]] = {
    "cumsum": ("torch.cumsum({x}, dim={d})", "torch.cumsum({x}, dim={d})", "{a}.cumsum(dim={d})", "{a}.cumsum({d})", "torch.cumsum({x}, {d})"),
    "cumprod": ("torch.cumprod({x}, dim={d})", "torch.cumprod({x}, dim={d})", "{a}.cumprod(dim={d})", "{a}.cumprod({d})", "torch.cumprod({x}, {d})"),
    "reverse": (
        "torch.cumsum({a}.flip({d}), dim={d}).flip({d})", "{a}.flip({d}).cumsum(dim={d}).flip({d})", "torch.flip(torch.cumsum(torch.flip({x}, dims=[{d}]), dim={d}), dims=[{d}])",
        "torch.flip(torch.cumsum(torch.flip({x}, [{d}]), dim={d}), [{d}])", "{a}.flip(dims=[{d}]).cumsum({d}).flip(dims=[{d}])", "torch.cumsum({a}.flip([{d}]), dim={d}).flip([{d}])", "{a}.flip({d}).cumsum({d}).flip({d})",
    ),
    "exclusive": (
        "torch.cumsum({n}, dim={d}) - {n}", "{n}.cumsum(dim={d}) - {n}",
        "torch.cat((torch.zeros_like({n}.select({d}, 0).unsqueeze({d})), torch.cumsum({n}.narrow({d}, 0, {n}.size({d}) - 1), dim={d})), dim={d})",
        "torch.cat([torch.zeros_like({n}.select({d}, 0).unsqueeze({d})), torch.cumsum({n}, dim={d}).narrow({d}, 0, {n}.size({d}) - 1)], dim={d})",
        "torch.cat((torch.zeros_like({n}.narrow({d}, 0, 1)), {n}.narrow({d}, 0, {n}.size({d}) - 1).cumsum(dim={d})), dim={d})",
        "torch.cat([torch.zeros_like({n}.narrow({d}, 0, 1)), torch.cumsum({n}, dim={d}).narrow({d}, 0, {n}.shape[{d}] - 1)], dim={d})",
    ),
}
# fmt: on
_EXCLUSIVE_LINES = (
    (
        "{s} = torch.cumsum({n}.narrow(dim={d}, start=0, length={n}.size({d}) - 1), dim={d})",
        "torch.cat((torch.zeros_like({n}.select({d}, 0).unsqueeze({d})), {s}), dim={d})",
    ),
    (
        "{s} = torch.cumsum({n}.narrow({d}, 0, {n}.shape[{d}] - 1), dim={d})",
        "torch.cat([torch.zeros_like({n}.narrow({d}, 0, 1)), {s}], dim={d})",
    ),
    ("{s} = {n}.cumsum(dim={d})", "{s} - {n}"),
)


def scan_function(
    b: Builder, kind: str, dim: str, pre: Sequence[PointOp], post: Sequence[PointOp]
) -> None:
    """One thread block per row: chunks of 256 elements scanned in shared memory, with a carry."""
    base = "prod" if kind == "cumprod" else "sum"
    name = {"reverse": "reverse_cumsum", "exclusive": "exclusive_cumsum"}.get(kind, kind)
    f = HostFunction(
        ops=[*(op.name for op in pre), name, *(op.name for op in post)], leading=[("x", b.lead())]
    )
    pre_lines = f.point(pre, "i")
    f.scalar(dim, "int64_t", "dim")
    post_lines = f.point(post, "i")
    every, f.params = f.params, [p for p in f.params if p[1] != "dim"]
    where = "base + (len - 1 - r) * inner" if kind == "reverse" else "base + r * inner"
    start = zero(base)
    if kind == "exclusive":
        value = "t > 0 ? carry + s[t - 1] : carry"
    else:
        value = combine(base, "carry", "s[t]")
    f.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t len, int64_t inner) {{\n"
        "    __shared__ float s[256];\n"
        "    int t = threadIdx.x;\n"
        "    int64_t o = blockIdx.x;\n"
        "    int64_t base = o / inner * len * inner + o % inner;\n"
        f"    float carry = {start};\n"
        "    for (int64_t start = 0; start < len; start += 256) {\n"
        "        int64_t r = start + t;\n"
        f"        int64_t i = {where};\n"
        f"        float v = {start};\n"
        "        if (r < len) {\n"
        "            v = x[i];\n"
        f"{indent(pre_lines, 3)}"
        "        }\n"
        "        s[t] = v;\n"
        "        __syncthreads();\n"
        "        for (int k = 1; k < 256; k *= 2) {\n"
        f"            v = t >= k ? s[t - k] : {start};\n"
        "            __syncthreads();\n"
        f"            s[t] = {combine(base, 's[t]', 'v')};\n"
        "            __syncthreads();\n"
        "        }\n"
        "        if (r < len) {\n"
        f"            v = {value};\n"
        f"{indent(post_lines, 3)}"
        "            out[i] = v;\n"
        "        }\n"
        f"        carry = {combine(base, 'carry', 's[255]')};\n"
        "        __syncthreads();\n"
        "    }\n"
        "}"
    )
    f.host_body = [
        *split_dim(),
        "auto out = torch::empty_like(x);",
        f"NAME_kernel<<<rows, 256>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<float>(), len, inner);",
        "return out;",
    ]
    f.params = every
    b.call(f)


def build_scan(b: Builder) -> None:
    """A scan, with 0 or 1 elementwise operators before and after."""
    rng = b.rng
    dims = draw_shape(b, ranks=(2, 2, 3, 4) if rng.random() < 0.95 else (1,))
    kind = rng.choices(
        ["cumsum", "cumprod", "reverse", "exclusive", "masked"], [32, 18, 19, 16, 15]
    )[0]
    make = (
        rng.choice(
            [
                "torch.rand({shape}) + 0.5",
                "torch.rand({shape}) * 0.2 + 0.9",
                None,
                "torch.rand({shape})",
            ]
        )
        if kind == "cumprod"
        else None
    )
    name = b.input("x", dims, make)
    b.start(name, dims)
    pre = sample_chain(b, rng.choices([0, 1], [80, 20])[0], Range(large=True))
    if kind == "masked":
        mask_make = rng.choice(
            [
                "torch.randint(0, 2, {size}).bool()",
                "torch.randint(0, 2, {size}, dtype=torch.bool)",
                "torch.rand({shape}) > 0.5",
                "torch.randint(0, 2, {like}).bool()",
            ]
        )
        mask = b.input(("mask", "mask", "m", "valid", "keep", "attention_mask"), dims, mask_make)
        b.apply(
            rng.choice(
                [
                    "{a} * {m}",
                    "{a} * {m}",
                    "{a} * {m}",
                    "{m} * {a}",
                    "{a}.masked_fill(~{m}, 0)",
                    "torch.where({m}, {x}, torch.zeros_like({x}))",
                    "{a} * {m}.float()",
                ]
            )
            if b.cur.isidentifier()
            else "{a} * {m}",
            "masked",
            m=mask,
        )
        pre.append(
            PointOp(
                name="masked",
                code=("v = {0} ? v : 0.0f;",),
                operands=(Operand(kind="same", call=f"{mask}.contiguous()", dtype="bool"),),
            )
        )
        kind = "cumsum"
    axis = pick_axis(b, last=0.55, attribute=0.6)
    if kind == "exclusive" and rng.random() < 0.45:
        line, result = rng.choice(_EXCLUSIVE_LINES)
        n = b.as_name()
        b.keep(n)
        s = b.local(("cumsum", "c", "sums", "cs", "prefix", "acc"))
        b.line(line.replace("{s}", s).replace("{n}", n).replace("{d}", axis.expr))
        b.apply(result.replace("{s}", s).replace("{n}", n), "out", d=axis.expr)
    else:
        form = rng.choice(_FORMS[kind])
        b.apply(form, rng.choice(["out", "total", "scan", "result"]), d=axis.expr)
    post = sample_chain(b, rng.choices([0, 1], [82, 18])[0], Range(large=True))
    b.schedule = "block_scan"
    if post and rng.random() < 0.2:
        b.schedule = "separate"
        scan_function(b, kind, axis.expr, pre, [])
        point_function(b, post)
        return
    scan_function(b, kind, axis.expr, pre, post)
