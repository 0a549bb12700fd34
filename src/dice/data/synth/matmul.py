"""Families: matrix products in their many spellings, with elementwise operators fused around them."""

import random
from collections.abc import Callable, Sequence

from dice.data.synth.builder import Builder, Dim
from dice.data.synth.chains import Range, sample_chain
from dice.data.synth.conv_spec import named_dim
from dice.data.synth.cuda import Operand, PointOp
from dice.data.synth.matmul_cuda import matmul_function

_LEFT_NAMES = ("A", "A", "A", "a", "x", "x1", "mat1", "input1", "lhs", "X", "left")
_RIGHT_NAMES = ("B", "B", "B", "b", "y", "x2", "mat2", "input2", "rhs", "Y", "right", "w", "weight")
_SIZE_NAMES = {
    "M": ("M", "M", "M", "m", "rows", "n_rows", "dim_m"),
    "K": ("K", "K", "K", "k", "inner", "inner_dim", "common"),
    "N": ("N", "N", "N", "n", "cols", "n_cols", "out_dim"),
    "batch": ("batch_size", "batch_size", "B", "b", "batch", "bs"),
    "heads": ("num_heads", "heads", "h", "n_heads", "groups"),
    "i": ("i", "I", "height", "seq_len", "dim1"),
    "j": ("j", "J", "width", "tokens", "dim2"),
}
_FULL = (1024, 2048, 512, 256, 4096, 128, 64, 1000, 768, 3072, 8192, 100, 96, 2949, 5921, 333)
_SMALL = (17, 33, 40, 23, 65, 9, 30, 47, 70)
_TRANSPOSED = ("{t}.T", "{t}.T", "{t}.t()", "{t}.transpose(0, 1)", "torch.transpose({t}, 0, 1)")
_BATCH_TRANSPOSED = (
    "{t}.transpose(1, 2)",
    "{t}.transpose(-2, -1)",
    "{t}.transpose(-1, -2)",
    "{t}.mT",
    "{t}.permute(0, 2, 1)",
)


def size(b: Builder, role: str, full: int | str | None = None, small: int | None = None) -> Dim:
    """A size of a matrix product; `role` names its pool."""
    rng = b.rng
    if full is None:
        full = rng.choice(_FULL)
        if rng.random() < 0.12:
            full = f"{full} * {rng.choice([2, 4, 8])}"
    kind = {"batch": "batch", "heads": "heads", "i": "seq", "j": "seq"}.get(role, "features")
    return named_dim(b, kind, _SIZE_NAMES[role], full, small or rng.choice(_SMALL))


def draw_schedule(rng: random.Random) -> str:
    """Schedules in the proportions they are taught."""
    return rng.choices(["plain", "tile16", "tile32", "register"], [25, 45, 10, 20])[0]


def draw_make(rng: random.Random, chance: float = 0.05) -> str | None:
    """Now and then a triangular matrix as input."""
    if rng.random() >= chance:
        return None
    return rng.choice(
        [
            "torch.tril(torch.rand({shape}))",
            "torch.triu(torch.rand({shape}))",
            "torch.randn({shape}) * 0.1",
        ]
    )


def chain_count(rng: random.Random, none: float = 0.55) -> int:
    """How many elementwise operators follow a product."""
    return 0 if rng.random() < none else rng.choices([1, 2, 3], [45, 38, 17])[0]


def build_matmul(b: Builder) -> None:
    """Two matrices, either of them possibly transposed, a parameter, or the same as the other."""
    rng = b.rng
    shape = rng.choices(["any", "square", "skinny", "large_k", "small_k"], [52, 22, 8, 9, 9])[0]
    m = size(b, "M") if shape != "square" else size(b, rng.choice("NM"))
    k = m if shape == "square" else size(b, "K")
    if shape == "large_k":
        k.full = rng.choice(["131072", "65536", "131072 * 4", "524288"])
    elif shape == "small_k":
        k.full = rng.choice(["32", "64", "16", "32 * 2", "8"])
    elif shape == "skinny":
        m.full, k.full = (
            rng.choice(["16384", "32768", "16384 * 2"]),
            rng.choice(["32", "16", "16 * 2"]),
        )
    n = m if shape in ("square", "skinny") else size(b, "N")
    left_t, right_t = rng.random() < 0.22, rng.random() < 0.22
    right = rng.choices(["input", "parameter", "self"], [82, 14, 4])[0]
    a = b.input(_LEFT_NAMES, (k, m) if left_t else (m, k), draw_make(rng))
    b.start(a, (k, m) if left_t else (m, k))
    prologue = []
    if right == "self":
        b.keep(a)
        w = a
        right_t, n = not left_t, m
    else:
        if rng.random() < 0.1:
            prologue = sample_chain(b, 1, Range(), extra_tensors=False)
        dims = (n, k) if right_t else (k, n)
        w = b.input(_RIGHT_NAMES, dims, draw_make(rng)) if right == "input" else _weight(b, dims)
    _spell_product(b, w, left_t, right_t)
    b.shape = (m, n)
    square = m is n
    mask = rng.choice(["triu", "tril"]) if square and rng.random() < 0.22 else None
    if mask:
        b.apply(
            rng.choice([f"torch.{mask}({{x}})", f"torch.{mask}({{x}})", f"{{a}}.{mask}()"]), "C"
        )
    epilogue = sample_chain(b, chain_count(rng), Range())
    b.schedule = draw_schedule(rng)
    left_call = f"{a}.T" if left_t else a
    right_call = f"{w}.T" if right_t else w
    b.call(
        matmul_function(
            "mm",
            [left_call, right_call],
            schedule=b.schedule,
            mask=mask,
            prologue=prologue,
            epilogue=epilogue,
        )
    )


def _weight(b: Builder, dims: Sequence[Dim]) -> str:
    args = [b.ctor_dim(d, [b.const_name(d).lower()]) for d in dims]
    init = b.rng.choice(
        ["torch.randn({shape})", "torch.randn({shape}) * 0.02", "torch.rand({shape})"]
    )
    return b.parameter(["weight", "weight", "W", "w", "matrix", "B", "proj"], ", ".join(args), init)


def _spell_product(b: Builder, w: str, left_t: bool, right_t: bool) -> None:
    """Write the product of the current value and `w`."""
    rng = b.rng
    hint = rng.choice(["C", "out", "product", "result", "c"])
    if rng.random() < 0.1:
        letters = rng.choice(["ikj", "mkn", "abc", "ijk"])
        i, k, j = list(letters)
        left, right = (k + i if left_t else i + k), (j + k if right_t else k + j)
        space = rng.choice(["", "", " "])
        b.apply(
            f"torch.einsum('{left},{space}{right}{space}->{space}{i}{j}', {{x}}, {{w}})", hint, w=w
        )
        return
    x = rng.choice(_TRANSPOSED).replace("{t}", "{a}") if left_t else "{x}"
    operand = "{a}" if x == "{x}" else x
    y = rng.choice(_TRANSPOSED).replace("{t}", "{w}") if right_t else "{w}"
    forms = [f"torch.matmul({x}, {y})"] * 4 + [f"torch.mm({x}, {y})"] * 3 + [f"{operand} @ {y}"] * 3
    b.apply(rng.choice([*forms, f"{operand}.matmul({y})", f"{operand}.mm({y})"]), hint, w=w)


def build_bmm(b: Builder) -> None:
    """Batched products of rank three and four, either operand possibly transposed."""
    rng = b.rng
    rank4 = rng.random() < 0.22
    batch = [size(b, "batch", rng.choice([16, 8, 32, 64, 128, 4, 10]), rng.choice([1, 2, 3]))]
    if rank4:
        batch.append(size(b, "heads", rng.choice([8, 12, 16, 4]), 2))
    sizes: list[int | str] = [128, 256, 512, 64, 1024, 10, 32, "128 * 4"]
    m, k, n = (size(b, role, rng.choice(sizes)) for role in "MKN")
    left_t, right_t = rng.random() < 0.15, rng.random() < 0.22
    left_dims = [*batch, k, m] if left_t else [*batch, m, k]
    right_dims = [*batch, n, k] if right_t else [*batch, k, n]
    a = b.input(_LEFT_NAMES, left_dims)
    b.start(a, left_dims)
    if not rank4 and rng.random() < 0.08:
        b.keep(a)
        w, right_t, n = a, not left_t, m
    else:
        w = b.input(_RIGHT_NAMES, right_dims)
    last_two = [
        t for t in _BATCH_TRANSPOSED if not rank4 or ("1, 2" not in t and "permute" not in t)
    ]
    x = rng.choice(last_two).replace("{t}", "{a}") if left_t else "{x}"
    operand = "{a}" if x == "{x}" else x
    y = rng.choice(last_two).replace("{t}", "{w}") if right_t else "{w}"
    forms = [f"torch.matmul({x}, {y})"] * 2 + [f"{operand} @ {y}"]
    if not rank4:
        forms += [f"torch.bmm({x}, {y})"] * 5 + [f"{operand}.bmm({y})"]
    if rng.random() < 0.14:
        lead = "bh" if rank4 else "b"
        left, right = ("ki" if left_t else "ik"), ("jk" if right_t else "kj")
        forms = [f"torch.einsum('{lead}{left},{lead}{right}->{lead}ij', {{x}}, {{w}})"]
    b.apply(rng.choice(forms), rng.choice(["out", "C", "scores", "product"]), w=w)
    b.shape = (*batch, m, n)
    epilogue = sample_chain(b, chain_count(rng), Range())
    b.schedule = draw_schedule(rng)
    calls = [f"{a}.transpose(-2, -1)" if left_t else a, f"{w}.transpose(-2, -1)" if right_t else w]
    b.call(matmul_function("bmm", calls, schedule=b.schedule, epilogue=epilogue))


def build_rows(b: Builder) -> None:
    """A tensor of rank three or four times a matrix."""
    rng = b.rng
    rank4 = rng.random() < 0.4
    lead = [size(b, "batch", rng.choice([16, 8, 32, 64, 4]), rng.choice([1, 2, 3]))]
    lead.append(size(b, "i", rng.choice([256, 512, 128, 1024, 64, 100]), rng.choice([5, 9, 17])))
    if rank4:
        lead.append(size(b, "j", rng.choice([512, 256, 64, 128, 32]), rng.choice([3, 5])))
    k, n = size(b, "K"), size(b, "N")
    a = b.input(_LEFT_NAMES, [*lead, k])
    b.start(a, [*lead, k])
    call = b.lead()
    parameter = rng.random() < 0.25
    w = _weight(b, (k, n)) if parameter else b.input(_RIGHT_NAMES, (k, n))
    forms = ["torch.matmul({x}, {w})"] * 4 + ["{a} @ {w}"] * 2 + ["{a}.matmul({w})"]
    if rng.random() < 0.35:
        head = rng.choice(["bij", "bhw", "abc"]) if rank4 else rng.choice(["bi", "bs", "nt"])
        forms = [
            f"torch.einsum('{head}l,lk->{head}k', {{x}}, {{w}})",
            f"torch.einsum('{head}l,lk->{head}k', {{x}}, {{w}})",
            f"torch.einsum('{head}d,de->{head}e', {{x}}, {{w}})",
        ]
    b.apply(rng.choice(forms), rng.choice(["out", "C", "result"]), w=w)
    b.shape = (*lead, n)
    epilogue = sample_chain(b, chain_count(rng), Range())
    b.schedule = draw_schedule(rng)
    right = w if parameter else f"{w}.contiguous()"
    b.call(matmul_function("rows", [call, right], schedule=b.schedule, epilogue=epilogue))


def build_addmm(b: Builder) -> None:
    """addmm and baddbmm: a product added to another tensor."""
    rng = b.rng
    batched = rng.random() < 0.45
    batch = (
        [size(b, "batch", rng.choice([16, 8, 32, 10]), rng.choice([1, 2, 3]))] if batched else []
    )
    m, k, n = size(b, "M"), size(b, "K"), size(b, "N")
    bias_names = ("input", "bias", "C", "M", "c", "x0", "mat", "acc")
    a = b.input(_LEFT_NAMES, [*batch, m, k])
    w = b.input(_RIGHT_NAMES, [*batch, k, n])
    if rng.random() < 0.3 and not batched:
        c, kind = (
            b.parameter(
                ["bias", "b"], b.ctor_dim(n, [b.const_name(n).lower()]), "torch.randn({shape})"
            ),
            "broadcast",
        )
        call = c
    else:
        c, kind = b.input(bias_names, [*batch, m, n]), "same"
        call = f"{c}.contiguous()"
    b.start(a, [*batch, m, k])
    name = "baddbmm" if batched else "addmm"
    operands = [Operand(kind=kind, call=call)]
    code = "v = v + {0};"
    extra = ""
    if rng.random() < 0.35:
        alpha, beta = (
            b.hyper(["alpha"], rng.choice(["0.5", "2.0", "1.5"])),
            b.hyper(["beta"], rng.choice(["0.5", "2.0", "0.8"])),
        )
        extra = f", beta={beta}, alpha={alpha}"
        code = "v = {1} * v + {2} * {0};"
        operands += [Operand(kind="scalar", call=alpha), Operand(kind="scalar", call=beta)]
    b.apply(f"torch.{name}({{c}}, {{x}}, {{w}}{extra})", "out", c=c, w=w)
    b.shape = (*batch, m, n)
    ops = [
        PointOp(name="add", code=(code,), operands=tuple(operands)),
        *sample_chain(b, chain_count(rng, 0.6), Range()),
    ]
    b.schedule = draw_schedule(rng)
    b.call(matmul_function("bmm" if batched else "mm", [a, w], schedule=b.schedule, epilogue=ops))


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("matmul", 9.0, build_matmul),
    ("bmm", 4.0, build_bmm),
    ("matmul_rows", 3.0, build_rows),
    ("addmm", 2.0, build_addmm),
)
