"""Family: gated units: the tensor is split in two along a dimension and one half gates the other."""

from dice.data.synth.builder import Builder
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.cuda import HostFunction, indent
from dice.data.synth.rowwise import split_dim
from dice.data.synth.shapes import draw_shape

_GATES: tuple[tuple[str, str, tuple[str, ...], float], ...] = (
    (
        "glu",
        "1.0f / (1.0f + expf(-g))",
        ("torch.sigmoid({g})", "F.sigmoid({g})", "{g}.sigmoid()"),
        6,
    ),
    (
        "swiglu",
        "g / (1.0f + expf(-g))",
        ("F.silu({g})", "F.silu({g})", "{g} * torch.sigmoid({g})"),
        6,
    ),
    ("geglu", "0.5f * g * (1.0f + erff(g * 0.70710678f))", ("F.gelu({g})",), 5),
    ("reglu", "fmaxf(g, 0.0f)", ("F.relu({g})", "torch.relu({g})"), 3),
    ("tanh_glu", "tanhf(g)", ("torch.tanh({g})",), 2),
    ("mul_halves", "g", ("{g}",), 2),
)


def build_glu(b: Builder) -> None:
    """F.glu, nn.GLU and their variants over any dimension."""
    rng = b.rng
    b.views = True
    dims = draw_shape(
        b, ranks=(2, 2, 3, 4), layouts=["rows", "tokens", "image", "signal", "matrix"]
    )
    rank = len(dims)
    index = rank - 1 if rng.random() < 0.72 else 1
    axis = dims[index]
    axis.full = str(int(axis.full.split(" ")[0]) // 2 * 2 or 2)
    if int(axis.full) < 2 or axis.full == "0":
        axis.full = "2"
    axis.small = str(max(2, int(axis.small) // 2 * 2))
    x = b.input("x", dims)
    b.start(x, dims)
    pre = sample_chain(b, 1 if rng.random() < 0.12 else 0, Range(), extra_tensors=False)
    name, gate_code, gate_forms, _ = rng.choices(_GATES, [g[3] for g in _GATES])[0]
    d = str(index - rank if index == rank - 1 and rng.random() < 0.75 else index)
    call = d
    swapped = False
    if name == "glu" and rng.random() < 0.6:
        if rng.random() < 0.4:
            if d == "-1" and rng.random() < 0.5:
                attr = b.module(("glu", "gate", "act"), "nn.GLU()")
            else:
                attr = b.module(
                    ("glu", "gate", "act"), f"nn.GLU(dim={b.ctor_expr(('dim',), d, 0.6)})"
                )
            b.apply(f"{attr}({{x}})", "gated")
            call = f"{attr}.dim"
        else:
            if rng.random() < 0.3:
                call = b.hyper(("dim", "axis", "split_dim"), d, literal=False)
            form = "F.glu({x}, dim={d})"
            if d == "-1" and call == d and rng.random() < 0.3:
                form = "F.glu({x})"
            b.apply(form, "gated", d=call)
    else:
        if rng.random() < 0.25:
            call = b.hyper(("dim", "axis", "split_dim"), d, literal=False)
        first, second = rng.choice(
            [
                ("a", "b"),
                ("x1", "x2"),
                ("value", "gate"),
                ("u", "g"),
                ("a", "g"),
                ("up", "gate"),
                ("h", "gate"),
                ("left", "right"),
            ]
        )
        swapped = rng.random() < 0.4
        if swapped and second == "gate":
            first, second = "gate", first
        p, q = b.local((first,)), b.local((second,))
        how = rng.choice(
            [
                "{a}.chunk(2, dim={d})",
                "{a}.chunk(2, dim={d})",
                "torch.chunk({x}, 2, dim={d})",
                "{n}.split({n}.size({d}) // 2, dim={d})",
                "torch.split({n}, {n}.shape[{d}] // 2, dim={d})",
                "SLICE" if index == rank - 1 else "{a}.chunk(2, dim={d})",
            ]
        )
        if how == "SLICE":
            n = b.as_name()
            half = b.local(("half", "d", "h2", "mid", "n_half"))
            b.line(f"{half} = {n}.shape[-1] // 2")
            b.line(f"{p}, {q} = {n}[..., :{half}], {n}[..., {half}:]")
            call = "-1"
        else:
            cur = b.as_name() if "{n}" in how else b.cur
            atom = cur if cur.isidentifier() or cur.endswith(")") else f"({cur})"
            b.line(
                f"{p}, {q} = "
                + how.replace("{x}", cur)
                .replace("{a}", atom)
                .replace("{n}", cur)
                .replace("{d}", call)
            )
        gate, value = (p, q) if swapped else (q, p)
        g = b.spell(rng.choice(gate_forms).replace("{g}", gate))
        if "*" in g:
            b.cur = rng.choice([f"{value} * ({g})", f"{g} * {value}"])
        else:
            b.cur = rng.choice([f"{value} * {g}", f"{g} * {value}"])
    half_dim = b.dim(axis.kind, int(axis.full) // 2, int(axis.small) // 2)
    b.shape = tuple(half_dim if i == index else q for i, q in enumerate(dims))
    post = sample_chain(b, rng.choices([0, 1], [78, 22])[0], Range())
    f = HostFunction(
        ops=[*(o.name for o in pre), name, *(o.name for o in post)], leading=[("x", b.lead())]
    )
    f.scalar(call, "int64_t", "dim")
    pre_lines = f.point(pre, "j")
    post_lines = f.point(post, "i")
    every, f.params = f.params, [q for q in f.params if q[1] != "dim"]
    a, g_at = ("j + half * inner", "j") if swapped else ("j", "j + half * inner")
    if pre_lines:
        load = [f"float v = x[{g_at}];", *pre_lines, "float g = v;", f"v = x[{a}];", *pre_lines]
    else:
        load = [f"float v = x[{a}];", f"float g = x[{g_at}];"]
    f.kernels.append(
        f"__global__ void NAME_kernel(const float* x, {f.kernel_params()}float* out, int64_t n, int64_t half, int64_t inner) {{\n"
        "    int64_t i = (int64_t)blockIdx.x * blockDim.x + threadIdx.x;\n"
        "    if (i < n) {\n"
        "        int64_t j = i + i / (half * inner) * half * inner;\n"
        f"{indent([*load, f'v = v * ({gate_code});' if name != 'mul_halves' else 'v = v * g;', *post_lines], 2)}"
        "        out[i] = v;\n"
        "    }\n}"
    )
    f.host_body = [
        *split_dim()[:3],
        "auto sizes = x.sizes().vec();",
        "sizes[dim] = len / 2;",
        "auto out = torch::empty(sizes, x.options());",
        "int64_t n = out.numel();",
        f"NAME_kernel<<<(n + 255) / 256, 256>>>(x.data_ptr<float>(), {f.launch_args('out')}out.data_ptr<float>(), n, len / 2, inner);",
        "return out;",
    ]
    f.params = every
    b.call(f)
