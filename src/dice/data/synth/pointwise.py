"""Family: chains of elementwise operators without a core."""

from collections.abc import Sequence

from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, PointOp, indent
from dice.data.synth.shapes import draw_shape, positive_input


def point_function(
    b: Builder, ops: Sequence[PointOp], schedule: str = "plain", *, out: str = "float"
) -> None:
    """Add one host function that applies a chain of elementwise operators to the current value.

    `out` is the C type of the result, "float" or "bool".
    """
    if not ops:
        return
    if out != "float":
        schedule = "plain"
    f = HostFunction(ops=[op.name for op in ops], leading=[("x", b.lead())])
    if schedule == "float4" and any(o.kind != "scalar" for op in ops for o in op.operands):
        schedule = "plain"
    body = f.point(ops)
    if schedule == "plain":
        f.kernels.append(
            f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}{out}* out, int64_t n) {{\n"
            "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    if (i < n) {\n"
            "        float v = x[i];\n"
            f"{indent(body, 2)}"
            "        out[i] = v;\n"
            "    }\n"
            "}"
        )
        kind = ", x.options().dtype(torch::kBool)" if out == "bool" else ""
        f.host_body = [
            f"auto out = torch::empty_like(x{kind});",
            "int64_t n = x.numel();",
            f"NAME_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<{out}>(), n);",
            "return out;",
        ]
    elif schedule == "grid_stride":
        f.kernels.append(
            f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t n) {{\n"
            "    int64_t stride = (int64_t)gridDim.x * blockDim.x;\n"
            "    for (int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {\n"
            "        float v = x[i];\n"
            f"{indent(body, 2)}"
            "        out[i] = v;\n"
            "    }\n"
            "}"
        )
        f.host_body = [
            "auto out = torch::empty_like(x);",
            "int64_t n = x.numel();",
            "int64_t blocks = std::min<int64_t>((n + 255) / 256, 4096);",
            f"NAME_kernel<<<blocks, 256>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<float>(), n);",
            "return out;",
        ]
    else:
        params = f.kernel_params()
        names = "".join(f", {p[1]}" for p in f.params)
        f.kernels.append(
            f"__device__ float NAME_point({('float v, ' + params)[:-2]}) {{\n{indent(body, 1)}    return v;\n}}"
        )
        f.kernels.append(
            f"__global__ void NAME_kernel(const float* x, {params}float* out, int64_t n) {{\n"
            "    int64_t i = ((int64_t)blockIdx.x * blockDim.x + threadIdx.x) * 4;\n"
            "    if (i + 4 <= n) {\n"
            "        float4 v = *(const float4*)(x + i);\n"
            + "".join(f"        v.{c} = NAME_point(v.{c}{names});\n" for c in "xyzw")
            + "        *(float4*)(out + i) = v;\n"
            "    } else {\n"
            f"        for (; i < n; i++) out[i] = NAME_point(x[i]{names});\n"
            "    }\n"
            "}"
        )
        f.host_body = [
            "auto out = torch::empty_like(x);",
            "int64_t n = x.numel();",
            f"NAME_kernel<<<(n + 1023) / 1024, 256>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<float>(), n);",
            "return out;",
        ]
    if schedule != "plain":
        b.schedule = schedule
    b.call(f)


def build_pointwise(b: Builder) -> None:
    """1 to 5 elementwise operators on a tensor of rank 1 to 5."""
    rng = b.rng
    dims = draw_shape(b)
    known = Range()
    make = None
    if rng.random() < 0.16:
        make = positive_input(b)
        known.sign = "pos"
    name = b.input("x", dims, make)
    b.start(name, dims)
    count = rng.choices([1, 2, 3, 4, 5], [40, 27, 20, 9, 4])[0]
    if b.bare:
        b.bare, count = False, 1
    if rng.random() < 0.08:
        ops = residual_chain(b, count, known)
    else:
        ops = sample_chain(b, count, known)
    schedule = rng.choices(["plain", "grid_stride", "float4"], [76, 10, 14])[0]
    if rng.random() < 0.12 and len(ops) > 1 and all(op.name for op in ops):
        b.schedule = "separate"
        cut = rng.randrange(1, len(ops))
        point_function(b, ops[:cut])
        point_function(b, ops[cut:])
        return
    point_function(b, ops, schedule)


def residual_chain(b: Builder, count: int, known: Range) -> list[PointOp]:
    """Operators whose result meets the value they started from: x + f(x), x * f(x), ..."""
    rng = b.rng
    start = b.as_name()
    b.keep(start)
    if rng.random() < 0.3:
        kept = b.local(("residual", "identity", "shortcut", "original_x", "skip", "x0"))
        b.line(f"{kept} = {start}")
        b.keep(kept)
    else:
        kept = start
    ops = [PointOp(name="", code=("float u = v;",)), *sample_chain(b, count, known)]
    # x * sigmoid(x) and the like are operators of their own
    kind = rng.choices(["add", "mul", "sub"], [70, 20 if count > 1 else 0, 10])[0]
    sign = {"add": "+", "mul": "*", "sub": "-"}[kind]
    b.apply(
        rng.choice(
            [f"{{a}} {sign} {kept}"]
            if kind == "sub"
            else [f"{{a}} {sign} {kept}", f"{kept} {sign} {{a}}"]
        ),
        "out",
    )
    known.sign = "any"
    ops.append(PointOp(name=f"{kind}_input", code=(f"v = v {sign} u;",)))
    return ops
