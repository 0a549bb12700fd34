"""CUDA text of pooling and upsampling in one, two and three dimensions.

One output per thread; kernel size, stride, padding and dilation are arguments. Adaptive pooling to one
value per channel has a second schedule, "block": a block reduces one channel.
"""

from collections.abc import Sequence

from dice.data.synth.cuda import PointOp, indent
from dice.data.synth.opfunction import AXES, OpFunction, flat_index, per_axis, unravel


def _function(
    name: str,
    call: str,
    typed: Sequence[tuple[str, str]],
    prologue: Sequence[PointOp],
    epilogue: Sequence[PointOp],
) -> OpFunction:
    return OpFunction(
        ops=[*(op.name for op in prologue), name, *(op.name for op in epilogue)],
        leading=[("x", call)],
        typed=list(typed),
    )


def _one_per_thread(
    fn: OpFunction, axes: str, parts: Sequence[str], body: str, extra: str = ""
) -> None:
    sizes = ", ".join(per_axis(f"int {part}{{A}}", axes) for part in parts)
    *coordinates, rest = unravel(axes)
    head = [
        "int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;",
        "if (i >= total) return;",
        *coordinates,
        f"int64_t n = {rest};",
    ]
    fn.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {fn.kernel_params()}float* out, int64_t total,\n"
        f"        {extra}{sizes}) {{\n{indent(head, 1)}{body}}}"
    )


def _host(
    fn: OpFunction, axes: str, sizes: Sequence[str], args: Sequence[str], extra: str = ""
) -> None:
    nd = len(axes)
    fn.host_body += [
        *sizes,
        "auto sizes = x.sizes().vec();",
        *(f"sizes[x.dim() - {nd - i}] = O{a.upper()};" for i, a in enumerate(axes)),
        "auto out = torch::empty(sizes, x.options());",
        "int64_t total = out.numel();",
        f"NAME_kernel<<<(total + 255) / 256, 256>>>(x.data_ptr<float>(), {fn.launch_args('out')}out.data_ptr<float>(), total,",
        f"    {extra}{', '.join(per_axis(arg, axes) for arg in args)});",
        "return out;",
    ]


def _window(axes: str, depth: int, dilated: bool) -> tuple[str, int]:
    text = ""
    for a in axes:
        text += indent([f"for (int k{a} = 0; k{a} < K{a.upper()}; k{a}++) {{"], depth)
        depth += 1
        step = f"k{a} * D{a.upper()}" if dilated else f"k{a}"
        text += indent(
            [
                f"int i{a} = o{a} * S{a.upper()} - P{a.upper()} + {step};",
                f"if (i{a} < 0 || i{a} >= I{a.upper()}) continue;",
            ],
            depth,
        )
    return text, depth


def _close(depth: int) -> str:
    return "".join("    " * d + "}\n" for d in range(depth - 1, 0, -1))


def pool_function(
    kind: str,
    nd: int,
    call: str,
    vectors: Sequence[str],
    *,
    ceil_mode: str | None = None,
    count_pad: bool = True,
    prologue: Sequence[PointOp] = (),
    epilogue: Sequence[PointOp] = (),
) -> OpFunction:
    """Max or average pooling (`kind` "max" or "avg").

    `vectors` are the Python expressions of kernel size, stride, padding and, for max, dilation.
    `ceil_mode` is the expression of that flag where the problem has one (max only); `count_pad=False`
    leaves the padding out of averages.
    """
    axes = AXES[nd]
    dilated = kind == "max"
    names = ["kernel", "stride", "padding", *(["dilation"] if dilated else [])]
    typed = [(f"at::IntArrayRef {n}", v) for n, v in zip(names, vectors, strict=True)]
    if ceil_mode is not None:
        typed.append(("bool ceil_mode", ceil_mode))
    fn = _function(f"{kind}_pool{nd}d", call, typed, prologue, epilogue)
    loops, depth = _window(axes, 1, dilated)
    x = flat_index("n", axes, "I", "i")
    use = "acc = fmaxf(acc, {v});" if kind == "max" else "acc += {v};"
    count = [] if kind == "max" or count_pad else ["int count = 0;"]
    body = indent(["float acc = -INFINITY;" if kind == "max" else "float acc = 0.0f;", *count], 1)
    body += (
        loops
        + fn.load(f"x[{x}]", prologue, depth, use)
        + indent(["count++;"] if count else [], depth)
        + _close(depth)
    )
    value = "acc"
    if kind == "avg":
        product = " * ".join(f"K{a.upper()}" for a in axes)
        value = "acc / count" if count else f"acc / ({product})" if nd > 1 else f"acc / {product}"
    body += fn.store(value, epilogue, 1)
    _one_per_thread(fn, axes, ["I", "O", "K", "S", "P", *(["D"] if dilated else [])], body)
    sizes = []
    for i, a in enumerate(axes):
        sizes.append(f"int I{a.upper()} = x.size({i - nd});")
        reach = f"dilation[{i}] * (kernel[{i}] - 1) - 1" if dilated else f"kernel[{i}]"
        up = f" + (ceil_mode ? stride[{i}] - 1 : 0)" if ceil_mode is not None else ""
        sizes.append(
            f"int O{a.upper()} = (I{a.upper()} + 2 * padding[{i}] - {reach}{up}) / stride[{i}] + 1;"
        )
        if ceil_mode is not None:
            sizes.append(
                f"if (ceil_mode && (O{a.upper()} - 1) * stride[{i}] >= I{a.upper()} + padding[{i}]) O{a.upper()}--;"
            )
    args = [
        "I{A}",
        "O{A}",
        "kernel[{i}]",
        "stride[{i}]",
        "padding[{i}]",
        *(["dilation[{i}]"] if dilated else []),
    ]
    _host(fn, axes, sizes, args)
    return fn


def adaptive_function(
    kind: str,
    nd: int,
    call: str,
    size: str,
    *,
    prologue: Sequence[PointOp] = (),
    epilogue: Sequence[PointOp] = (),
) -> OpFunction:
    """Adaptive pooling to the output size `size` (Python expression of a sequence)."""
    axes = AXES[nd]
    fn = _function(
        f"adaptive_{kind}_pool{nd}d",
        call,
        [("at::IntArrayRef size", size)],
        prologue,
        epilogue,
    )
    body = ""
    for a in axes:
        body += indent(
            [
                f"int b{a} = o{a} * I{a.upper()} / O{a.upper()};",
                f"int e{a} = ((o{a} + 1) * I{a.upper()} + O{a.upper()} - 1) / O{a.upper()};",
            ],
            1,
        )
    body += indent(["float acc = -INFINITY;" if kind == "max" else "float acc = 0.0f;"], 1)
    depth = 1
    for a in axes:
        body += indent([f"for (int i{a} = b{a}; i{a} < e{a}; i{a}++) {{"], depth)
        depth += 1
    x = flat_index("n", axes, "I", "i")
    body += fn.load(
        f"x[{x}]", prologue, depth, "acc = fmaxf(acc, {v});" if kind == "max" else "acc += {v};"
    ) + _close(depth)
    product = " * ".join(f"(e{a} - b{a})" for a in axes)
    value = "acc" if kind == "max" else f"acc / ({product})" if nd > 1 else f"acc / {product}"
    body += fn.store(value, epilogue, 1)
    _one_per_thread(fn, axes, ["I", "O"], body)
    sizes = [
        f"int I{a.upper()} = x.size({i - nd}), O{a.upper()} = size[{i}];"
        for i, a in enumerate(axes)
    ]
    _host(fn, axes, sizes, ["I{A}", "O{A}"])
    return fn


def global_mean_function(
    nd: int,
    call: str,
    *,
    keep: bool,
    prologue: Sequence[PointOp] = (),
    epilogue: Sequence[PointOp] = (),
) -> OpFunction:
    """Mean over all spatial axes, a block per channel; `keep` keeps them with size one."""
    fn = _function("global_avg_pool", call, [], prologue, epilogue)
    load = fn.load("x[(int64_t)blockIdx.x * size + j]", prologue, 2, "acc += {v};")
    store = fn.store("tile[0] / size", epilogue, 2, "blockIdx.x")
    fn.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {fn.kernel_params()}float* out, int size) {{\n"
        "    __shared__ float tile[256];\n"
        "    float acc = 0.0f;\n"
        "    for (int j = threadIdx.x; j < size; j += 256) {\n"
        f"{load}    }}\n"
        "    tile[threadIdx.x] = acc;\n"
        "    __syncthreads();\n"
        "    for (int s = 128; s > 0; s /= 2) {\n"
        "        if (threadIdx.x < s) tile[threadIdx.x] += tile[threadIdx.x + s];\n"
        "        __syncthreads();\n"
        "    }\n"
        "    if (threadIdx.x == 0) {\n"
        f"{store}    }}\n"
        "}"
    )
    shape = "x.size(0), x.size(1)" + ", 1" * (nd if keep else 0)
    fn.host_body += [
        f"auto out = torch::empty({{{shape}}}, x.options());",
        "int size = x.numel() / out.numel();",
        f"NAME_kernel<<<out.numel(), 256>>>(x.data_ptr<float>(), {fn.launch_args('out')}out.data_ptr<float>(), size);",
        "return out;",
    ]
    return fn


def upsample_function(
    nd: int,
    call: str,
    scale: str,
    *,
    prologue: Sequence[PointOp] = (),
    epilogue: Sequence[PointOp] = (),
) -> OpFunction:
    """Nearest upsampling by whole factors (`scale`: Python expression of a sequence)."""
    axes = AXES[nd]
    fn = _function(f"upsample{nd}d", call, [("at::IntArrayRef scale", scale)], prologue, epilogue)
    x = f"({flat_index('n', axes, 'I', 'o')})"
    for a in axes:
        x = x.replace(f" + o{a}", f" + o{a} / S{a.upper()}")
    if prologue or epilogue:
        body = indent(
            [f"float v = x[{x[1:-1]}];", *fn.point([*prologue, *epilogue]), "out[i] = v;"], 1
        )
    else:
        body = indent([f"out[i] = x[{x[1:-1]}];"], 1)
    _one_per_thread(fn, axes, ["I", "O", "S"], body)
    sizes = [
        f"int I{a.upper()} = x.size({i - nd}), O{a.upper()} = I{a.upper()} * scale[{i}];"
        for i, a in enumerate(axes)
    ]
    _host(fn, axes, sizes, ["I{A}", "O{A}", "scale[{i}]"])
    return fn


_BILINEAR = """float y = align ? (float)oh * (IH - 1) / max(OH - 1, 1) : fmaxf((oh + 0.5f) * IH / OH - 0.5f, 0.0f);
float z = align ? (float)ow * (IW - 1) / max(OW - 1, 1) : fmaxf((ow + 0.5f) * IW / OW - 0.5f, 0.0f);
int y0 = y, z0 = z;
int y1 = min(y0 + 1, IH - 1), z1 = min(z0 + 1, IW - 1);
float wy = y - y0, wz = z - z0;
const float* p = x + n * IH * IW;
float top = p[y0 * IW + z0] * (1.0f - wz) + p[y0 * IW + z1] * wz;
float low = p[y1 * IW + z0] * (1.0f - wz) + p[y1 * IW + z1] * wz;"""


def bilinear_function(
    call: str, scale: str, align: str, *, epilogue: Sequence[PointOp] = ()
) -> OpFunction:
    """Bilinear upsampling of images by whole factors; `align` is the expression of align_corners."""
    axes = AXES[2]
    typed = [("at::IntArrayRef scale", scale), ("bool align", align)]
    fn = _function("bilinear2d", call, typed, [], epilogue)
    body = indent(_BILINEAR.split("\n"), 1) + fn.store("top * (1.0f - wy) + low * wy", epilogue, 1)
    _one_per_thread(fn, axes, ["I", "O"], body, extra="bool align, ")
    sizes = [f"int I{a} = x.size({i - 2}), O{a} = I{a} * scale[{i}];" for i, a in enumerate("HW")]
    _host(fn, axes, sizes, ["I{A}", "O{A}"], extra="align, ")
    return fn
