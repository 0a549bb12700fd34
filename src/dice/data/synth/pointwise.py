"""Family: chains of elementwise operators without a core."""

from collections.abc import Sequence

from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, PointOp, indent
from dice.data.synth.shapes import draw_shape, positive_input


def point_function(b: Builder, ops: Sequence[PointOp], schedule: str = "plain") -> None:
    """Add one host function that applies a chain of elementwise operators to the current value."""
    f = HostFunction(ops=[op.name for op in ops], leading=[("x", b.lead())])
    if schedule == "float4" and any(o.kind != "scalar" for op in ops for o in op.operands):
        schedule = "plain"
    body = f.point(ops)
    if schedule == "plain":
        f.kernels.append(
            f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t n) {{\n"
            "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
            "    if (i < n) {\n"
            "        float v = x[i];\n"
            f"{indent(body, 2)}"
            "        out[i] = v;\n"
            "    }\n"
            "}"
        )
        f.host_body = [
            "auto out = torch::empty_like(x);",
            "int64_t n = x.numel();",
            f"NAME_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), {f.launch_args()}out.data_ptr<float>(), n);",
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
    ops = sample_chain(b, count, known)
    schedule = rng.choices(["plain", "grid_stride", "float4"], [76, 10, 14])[0]
    point_function(b, ops, schedule)
