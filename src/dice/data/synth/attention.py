"""Family: scaled dot-product attention, a block per query row with its scores in shared memory."""

from collections.abc import Callable

from dice.data.synth.builder import Builder
from dice.data.synth.conv_spec import BATCH_NAMES, named_dim
from dice.data.synth.opfunction import OpFunction

_ROW_REDUCTION = """    for (int w = 128; w > 0; w /= 2) {
        if (t < w) tile[t] = @;
        __syncthreads();
    }
"""

_KERNEL = """__global__ void NAME_kernel(const float* q, const float* k, const float* v, float* out, int L, int S, int E, int D, float scale) {
    extern __shared__ float scores[];
    __shared__ float tile[256];
    int t = threadIdx.x;
    int64_t row = blockIdx.x, batch = row / L;
    float peak = -INFINITY;
    for (int j = t; j < COUNT; j += 256) {
        float dot = 0.0f;
        for (int e = 0; e < E; e++) dot += q[row * E + e] * k[(batch * S + j) * E + e];
        scores[j] = dot * scale;
        peak = fmaxf(peak, scores[j]);
    }
    tile[t] = peak;
    __syncthreads();
MAX    peak = tile[0];
    __syncthreads();
    float sum = 0.0f;
    for (int j = t; j < COUNT; j += 256) {
        scores[j] = expf(scores[j] - peak);
        sum += scores[j];
    }
    tile[t] = sum;
    __syncthreads();
SUM    for (int d = t; d < D; d += 256) {
        float acc = 0.0f;
        for (int j = 0; j < COUNT; j++) acc += scores[j] * v[(batch * S + j) * D + d];
        out[row * D + d] = acc / tile[0];
    }
}"""


def attention_function(calls: list[str], scale: str, *, causal: bool) -> OpFunction:
    """Host function; `calls` are the Python expressions of query, key and value."""
    fn = OpFunction(
        ops=["causal" if causal else "", "attention"],
        leading=[(n, f"{c}.contiguous()") for n, c in zip("qkv", calls, strict=True)],
        typed=[("double scale", scale)],
    )
    text = _KERNEL.replace("MAX", _ROW_REDUCTION.replace("@", "fmaxf(tile[t], tile[t + w])"))
    text = text.replace("SUM", _ROW_REDUCTION.replace("@", "tile[t] + tile[t + w]"))
    if causal:
        text = text.replace(
            "batch = row / L;\n", "batch = row / L;\n    int count = min(S, (int)(row % L) + 1);\n"
        )
    fn.kernels.append(text.replace("COUNT", "count" if causal else "S"))
    fn.host_body += [
        "int L = q.size(-2), S = k.size(-2), E = q.size(-1), D = v.size(-1);",
        "auto sizes = q.sizes().vec();",
        "sizes.back() = D;",
        "auto out = torch::empty(sizes, q.options());",
        "NAME_kernel<<<q.numel() / E, 256, S * sizeof(float)>>>(q.data_ptr<float>(), k.data_ptr<float>(), "
        "v.data_ptr<float>(), out.data_ptr<float>(), L, S, E, D, scale);",
        "return out;",
    ]
    return fn


def build_attention(b: Builder) -> None:
    """The library's function, or softmax(q k^T scale) v written out."""
    rng = b.rng
    rank4 = rng.random() < 0.65
    lead = [named_dim(b, "batch", BATCH_NAMES, rng.choice((32, 16, 8, 4, 2)), rng.choice((1, 2)))]
    if rank4:
        lead.append(
            named_dim(
                b,
                "heads",
                ("num_heads", "num_heads", "n_heads", "heads", "H"),
                rng.choice((8, 12, 16, 32)),
                2,
            )
        )
    length = named_dim(
        b,
        "seq",
        ("sequence_length", "seq_len", "seq_len", "T", "L", "seq_length"),
        rng.choice((512, 128, 256, 1024, 64, 2048)),
        rng.choice((7, 17, 33)),
    )
    cross = rng.random() < 0.15
    keys = (
        named_dim(
            b,
            "seq",
            ("kv_len", "src_len", "S", "memory_len"),
            rng.choice((256, 512, 77)),
            rng.choice((5, 19, 40)),
        )
        if cross
        else length
    )
    width = named_dim(
        b,
        "features",
        ("head_dim", "head_dim", "embedding_dimension", "d_k", "dim", "D", "head_size"),
        rng.choice((64, 128, 32, 1024, 80)),
        rng.choice((8, 13, 20)),
    )
    pools = rng.choice(
        [
            ("Q", "K", "V"),
            ("q", "k", "v"),
            ("query", "key", "value"),
            ("q", "k", "v"),
            ("Q", "K", "V"),
        ]
    )
    q = b.input(pools[:1], [*lead, length, width])
    k = b.input(pools[1:2], [*lead, keys, width])
    v = b.input(pools[2:], [*lead, keys, width])
    for name in (q, k, v):
        b.keep(name)
    b.start(q, [*lead, length, width])
    causal = False
    if rng.random() < 0.55:
        causal = not cross and rng.random() < 0.35
        extra = ", is_causal=True" if causal else ""
        scale = f"{q}.size(-1) ** -0.5"
        if rng.random() < 0.12:
            scale = b.hyper(["scale", "softmax_scale"], rng.choice(["0.125", "0.5", "0.1"]))
            extra += f", scale={scale}"
        b.apply(f"F.scaled_dot_product_attention({{x}}, {k}, {v}{extra})", "out")
    else:
        divide = rng.random() < 0.6
        if divide:
            scale = rng.choice(
                [
                    f"math.sqrt({q}.size(-1))",
                    f"math.sqrt({k}.shape[-1])",
                    f"{q}.size(-1) ** 0.5",
                    f"({q}.shape[-1] ** 0.5)",
                ]
            )
        else:
            scale = b.hyper(
                ["scale", "scale", "softmax_scale", "scaling"],
                rng.choice(["0.125", "0.25", "0.1", "0.17677669529663687"]),
            )
        t = rng.choice([".transpose(-2, -1)", ".transpose(-2, -1)", ".transpose(-1, -2)", ".mT"])
        form = rng.choice([f"torch.matmul({{x}}, {k}{t})", f"{{a}} @ {k}{t}"])
        b.apply(form, "scores")
        b.apply(f"{{a}} {'/' if divide else '*'} {scale}", "scores")
        b.apply(
            rng.choice(
                ["F.softmax({x}, dim=-1)", "torch.softmax({x}, dim=-1)", "{a}.softmax(dim=-1)"]
            ),
            rng.choice(["attn", "weights", "probs"]),
        )
        b.apply(rng.choice([f"torch.matmul({{x}}, {v})", f"{{a}} @ {v}"]), "out")
        scale = f"1.0 / {scale}" if divide else scale
    b.schedule = "row_block"
    b.call(attention_function([q, k, v], scale, causal=causal))


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("attention", 2.0, build_attention),
)
