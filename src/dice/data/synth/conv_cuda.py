"""CUDA text of convolutions and transposed convolutions in one, two and three dimensions.

Kernels read every size at run time and take stride, padding, dilation and groups as arguments, so one text
serves every setting. "direct" computes one output per thread, "filters4" four filters at one position.
"""

from collections.abc import Sequence

from dice.data.synth.cuda import PointOp, indent
from dice.data.synth.opfunction import AXES, OpFunction, flat_index, per_axis, unravel

_PARTS = "IOKSPD"


def conv_function(
    nd: int,
    calls: Sequence[str],
    *,
    transposed: bool = False,
    schedule: str = "direct",
    prologue: Sequence[PointOp] = (),
    epilogue: Sequence[PointOp] = (),
) -> OpFunction:
    """Host function of a convolution over `nd` spatial axes.

    `calls` are the Python expressions of x, weight, bias, stride, padding, output_padding (transposed
    only), dilation and groups.
    """
    axes = AXES[nd]
    name = f"conv_transpose{nd}d" if transposed else f"conv{nd}d"
    vectors = ["stride", "padding", *(["output_padding"] if transposed else []), "dilation"]
    decls = [
        "std::optional<torch::Tensor> bias",
        *(f"at::IntArrayRef {v}" for v in vectors),
        "int64_t groups",
    ]
    fn = OpFunction(
        ops=[*(op.name for op in prologue), name, *(op.name for op in epilogue)],
        leading=[("x", calls[0]), ("weight", calls[1])],
        typed=list(zip(decls, calls[2:], strict=True)),
    )
    if transposed:
        body = _transposed_body(fn, axes, prologue)
    elif schedule == "filters4":
        body = _filters4_body(fn, axes, prologue)
    else:
        body = _direct_body(fn, axes, prologue)
    if schedule == "filters4":
        body += (
            "    for (int q = 0; q < 4 && f + q < fend; q++) {\n"
            f"        int64_t o = {flat_index('(int64_t)n * F + f + q', axes, 'O', 'o')};\n"
            f"{fn.store('acc[q]', epilogue, 2, 'o')}    }}\n"
        )
    else:
        body += fn.store("acc", epilogue, 1)
    sizes = ", ".join(per_axis(f"int {part}{{A}}", axes) for part in _PARTS)
    fn.kernels.append(
        "__global__ void NAME_kernel(const float* x, const float* weight, const float* bias, "
        f"{fn.kernel_params()}float* out, int64_t total,\n"
        f"        int C, int F, int G, {sizes}) {{\n"
        "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        f"    if (i >= total) return;\n{body}}}"
    )
    fn.host_body += _host(fn, axes, transposed, schedule)
    return fn


def _input_loops(axes: str, depth: int) -> tuple[str, int]:
    """Loops over the taps of a convolution, skipping those that fall into the padding."""
    text = ""
    for a in axes:
        text += indent([f"for (int k{a} = 0; k{a} < K{a.upper()}; k{a}++) {{"], depth)
        depth += 1
        text += indent(
            [
                f"int i{a} = o{a} * S{a.upper()} - P{a.upper()} + k{a} * D{a.upper()};",
                f"if (i{a} < 0 || i{a} >= I{a.upper()}) continue;",
            ],
            depth,
        )
    return text, depth


def _close(depth: int) -> str:
    return "".join("    " * d + "}\n" for d in range(depth - 1, 0, -1))


def _direct_body(fn: OpFunction, axes: str, prologue: Sequence[PointOp]) -> str:
    *coordinates, rest = unravel(axes)
    text = indent(
        [
            *coordinates,
            f"int f = {rest} % F;",
            f"int n = {rest} / F;",
            "int gc = C / G, gf = F / G;",
            "int c0 = f / gf * gc;",
            "float acc = bias ? bias[f] : 0.0f;",
            "for (int c = 0; c < gc; c++) {",
        ],
        1,
    )
    loops, depth = _input_loops(axes, 2)
    x = flat_index("(int64_t)(n * C + c0 + c)", axes, "I", "i")
    w = flat_index("f * gc + c", axes, "K", "k")
    text += loops + indent([f"int64_t xi = {x};", f"int wi = {w};"], depth)
    text += fn.load("x[xi]", prologue, depth, "acc += {v} * weight[wi];")
    return text + _close(depth)


def _filters4_body(fn: OpFunction, axes: str, prologue: Sequence[PointOp]) -> str:
    *coordinates, rest = unravel(axes)
    text = indent(
        [
            "int gc = C / G, gf = F / G, tiles = (gf + 3) / 4;",
            *coordinates,
            f"int tile = {rest} % (G * tiles);",
            f"int n = {rest} / (G * tiles);",
            "int f = tile / tiles * gf + tile % tiles * 4;",
            "int fend = (tile / tiles + 1) * gf;",
            "int c0 = tile / tiles * gc;",
            "float acc[4];",
            "for (int q = 0; q < 4; q++) acc[q] = bias && f + q < fend ? bias[f + q] : 0.0f;",
            "for (int c = 0; c < gc; c++) {",
        ],
        1,
    )
    loops, depth = _input_loops(axes, 2)
    x = flat_index("(int64_t)(n * C + c0 + c)", axes, "I", "i")
    w = flat_index("(f + q) * gc + c", axes, "K", "k")
    use = f"for (int q = 0; q < 4 && f + q < fend; q++) acc[q] += v * weight[{w}];"
    text += loops + indent([f"float v = x[{x}];", *fn.point(prologue), use], depth)
    return text + _close(depth)


def _transposed_body(fn: OpFunction, axes: str, prologue: Sequence[PointOp]) -> str:
    *coordinates, rest = unravel(axes)
    text = indent(
        [
            *coordinates,
            f"int f = {rest} % F;",
            f"int n = {rest} / F;",
            "int gc = C / G, gf = F / G;",
            "int c0 = f / gf * gc;",
            "float acc = bias ? bias[f] : 0.0f;",
        ],
        1,
    )
    depth = 1
    for a in axes:
        text += indent([f"for (int k{a} = 0; k{a} < K{a.upper()}; k{a}++) {{"], depth)
        depth += 1
        text += indent(
            [
                f"int t{a} = o{a} + P{a.upper()} - k{a} * D{a.upper()};",
                f"int i{a} = t{a} / S{a.upper()};",
                f"if (t{a} < 0 || t{a} % S{a.upper()} != 0 || i{a} >= I{a.upper()}) continue;",
            ],
            depth,
        )
    text += indent(["for (int c = c0; c < c0 + gc; c++) {"], depth)
    depth += 1
    x = flat_index("(int64_t)(n * C + c)", axes, "I", "i")
    w = flat_index("c * gf + f % gf", axes, "K", "k")
    text += indent([f"int64_t xi = {x};", f"int wi = {w};"], depth)
    text += fn.load("x[xi]", prologue, depth, "acc += {v} * weight[wi];")
    return text + _close(depth)


def _host(fn: OpFunction, axes: str, transposed: bool, schedule: str) -> list[str]:
    lines = [f"int C = x.size(1), F = weight.size({'1) * groups' if transposed else '0)'};"]
    for i, a in enumerate(axes):
        lines.append(f"int I{a.upper()} = x.size({i + 2}), K{a.upper()} = weight.size({i + 2});")
        if transposed:
            size = (
                f"(I{a.upper()} - 1) * stride[{i}] - 2 * padding[{i}] + dilation[{i}] * (K{a.upper()} - 1)"
                f" + output_padding[{i}] + 1"
            )
        else:
            size = f"(I{a.upper()} + 2 * padding[{i}] - dilation[{i}] * (K{a.upper()} - 1) - 1) / stride[{i}] + 1"
        lines.append(f"int O{a.upper()} = {size};")
    total = "out.numel()"
    if schedule == "filters4":
        total = "out.numel() / F * groups * ((F / groups + 3) / 4)"
    values = ("I{A}", "O{A}", "K{A}", "stride[{i}]", "padding[{i}]", "dilation[{i}]")
    return [
        *lines,
        f"auto out = torch::empty({{x.size(0), F, {per_axis('O{A}', axes)}}}, x.options());",
        f"int64_t total = {total};",
        "NAME_kernel<<<(total + 255) / 256, 256>>>(",
        "    x.data_ptr<float>(), weight.data_ptr<float>(), bias ? bias->data_ptr<float>() : nullptr, "
        f"{fn.launch_args('out')}out.data_ptr<float>(), total,",
        f"    C, F, groups, {', '.join(per_axis(v, axes) for v in values)});",
        "return out;",
    ]
