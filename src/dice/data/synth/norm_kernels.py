"""Kernels and host functions of normalisations: mean and variance along rows."""

from collections.abc import Sequence

from dice.data.synth import rowwise
from dice.data.synth.builder import Builder
from dice.data.synth.cuda import HostFunction, PointOp

_ROWS = "NAME_kernel<<<(rows + block.x - 1) / block.x, block>>>(x.data_ptr<float>(), {args}out.data_ptr<float>(), rows, len, inner);"


def moments_body(
    pre: Sequence[str],
    post: Sequence[str],
    affine: str,
    *,
    eps: str = "eps",
    unbiased: bool = False,
    std_eps: bool = False,
    index: str | None = None,
) -> str:
    """Kernel body that standardises each row: mean, then variance, then the result.

    `affine` is C text after `v = (v - mean) * scale`; `std_eps` adds eps to the deviation instead of the
    variance.
    """
    first = ["float v = x[i];", *pre]
    src = "x"
    if pre:
        first.append("out[i] = v;")
        src = "out"
    again = f"float v = {src}[i];"
    divide = "(len - 1)" if unbiased else "len"
    scale = (
        f"1.0f / (sqrtf(block_sum(sum) / {divide}) + {eps})"
        if std_eps
        else f"rsqrtf(block_sum(sum) / {divide} + {eps})"
    )
    body = (
        "    float sum = 0.0f;\n"
        + rowwise.loop([*first, "sum += v;"])
        + "    float mean = block_sum(sum) / len;\n    sum = 0.0f;\n"
        + rowwise.loop([again, "sum += (v - mean) * (v - mean);"])
        + f"    float scale = {scale};\n"
        + rowwise.loop([again, f"v = (v - mean) * scale{affine};", *post, "out[i] = v;"])
    )
    return body if index is None else body.replace("base + r * inner", index)


def finish(
    b: Builder,
    f: HostFunction,
    hidden: Sequence[str],
    body: str,
    host: Sequence[str],
    *,
    schedule: str,
    extra: str = "",
    extra_args: str = "",
    block: str | None = None,
    base: bool = True,
) -> None:
    """Assemble kernel and host function; `extra` are further kernel parameters."""
    rowwise.use_block(f, "sum", schedule)
    every, f.params = f.params, [p for p in f.params if p[1] not in hidden]
    text = rowwise.kernel(f, body)
    args = f.launch_args() + extra_args
    if extra:
        text = text.replace("float* out, int64_t rows", f"{extra}float* out, int64_t rows")
    if not base:
        text = text.replace(
            "    int64_t base = o / inner * len * inner + o % inner;\n", ""
        ).replace(", int64_t inner) {", ") {")
    f.kernels.append(text)
    launch = _ROWS.replace("{args}", args)
    if not base:
        launch = launch.replace("rows, len, inner)", "rows, len)")
    if block is None or schedule == "warp_shuffle":
        block = "dim3 block(1, 256);"
    f.host_body = [*host, "auto out = torch::empty_like(x);", block, launch, "return out;"]
    f.params = every
    if schedule == "warp_shuffle":
        b.schedule = schedule
    b.call(f)


def norm_function(
    b: Builder, name: str, pre: Sequence[PointOp], post: Sequence[PointOp]
) -> HostFunction:
    return HostFunction(
        ops=[*(op.name for op in pre), name, *(op.name for op in post)], leading=[("x", b.lead())]
    )


AFFINE = " * weight[{}] + bias[{}]"


def standardize(
    b: Builder,
    dim: str,
    eps: str,
    pre: Sequence[PointOp],
    post: Sequence[PointOp],
    schedule: str,
    **how: bool,
) -> None:
    """Host function: (x - mean) / sqrt(var + eps) over one dimension."""
    f = norm_function(b, "standardize", pre, post)
    pre_lines = f.point(pre, "i")
    f.scalar(dim, "int64_t", "dim")
    f.scalar(eps, name="eps")
    post_lines = f.point(post, "i")
    body = moments_body(pre_lines, post_lines, "", **how)  # type: ignore[arg-type]
    finish(
        b,
        f,
        ("dim",),
        body,
        rowwise.split_dim(),
        schedule=schedule,
        block="dim3 block(inner > 1 ? 32 : 1, inner > 1 ? 8 : 256);",
    )
