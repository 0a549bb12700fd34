"""Tensor shapes that occur in practice, full-size and small."""

from collections.abc import Sequence
from itertools import pairwise

from dice.data.synth.builder import Builder, Dim

_LAYOUTS: dict[str, tuple[str, ...]] = {
    "vector": ("numel",),
    "rows": ("batch", "features"),
    "matrix": ("rows", "cols"),
    "tokens": ("batch", "seq", "features"),
    "cube": ("batch", "dim1", "dim2"),
    "signal": ("batch", "channels", "length"),
    "image": ("batch", "channels", "height", "width"),
    "heads": ("batch", "heads", "seq", "seq2"),
    "volume": ("batch", "channels", "depth", "height", "width"),
}
_WEIGHTS = {
    "vector": 4,
    "rows": 34,
    "matrix": 9,
    "tokens": 18,
    "cube": 8,
    "signal": 4,
    "image": 17,
    "heads": 2,
    "volume": 4,
}

# fmt: off
_FULL: dict[str, Sequence[int]] = {
    "batch": (16, 32, 64, 128, 8, 4, 256, 512, 1024, 2048, 4096, 1, 2, 10, 112, 100),
    "rows": (1024, 2048, 4096, 8192, 512, 256, 16384, 1000, 3000),
    "features": (512, 1024, 2048, 4096, 256, 768, 128, 8192, 16384, 64, 1000, 3072, 393216, 65535, 32768, 1536, 100, 10),
    "cols": (1024, 2048, 4096, 512, 8192, 1000, 32000, 50257, 16384, 4095),
    "seq": (128, 512, 256, 1024, 2048, 100, 196, 64, 197, 4096, 50, 77),
    "seq2": (128, 512, 256, 1024, 64, 100),
    "channels": (64, 32, 128, 3, 16, 256, 96, 8, 512, 24, 48),
    "heads": (8, 12, 16, 4, 32, 6),
    "height": (32, 64, 128, 256, 56, 28, 224, 512, 14, 112, 100),
    "width": (32, 64, 128, 256, 56, 28, 224, 512, 14, 112, 100),
    "depth": (8, 16, 32, 64, 4, 10),
    "length": (128, 256, 1024, 512, 65536, 100, 4096, 1000),
    "classes": (10, 100, 1000, 4096, 5, 20, 32000),
    "numel": (1024, 4096, 65536, 1000000, 1048576, 10000, 16777216, 128, 1000, 10),
    "dim1": (4096, 512, 256, 1024, 128, 64, 100),
    "dim2": (4095, 512, 256, 1024, 384, 128, 100),
    "dim3": (64, 128, 256, 512, 32),
}
# fmt: on
_SMALL: dict[str, Sequence[int]] = {
    "batch": (1, 2, 3, 4, 5),
    "rows": (5, 9, 16, 33),
    "features": (33, 64, 100, 129, 257, 300, 48, 7),
    "cols": (31, 100, 64, 257, 130, 301),
    "seq": (5, 7, 12, 9),
    "seq2": (6, 11, 10),
    "channels": (4, 6, 8, 12),
    "heads": (2, 3),
    "height": (5, 7, 8, 11),
    "width": (6, 9, 8, 13),
    "depth": (3, 4, 5),
    "length": (33, 64, 100, 50),
    "classes": (5, 10, 33, 70),
    "numel": (100, 1000, 1025, 515, 33),
    "dim1": (33, 20, 12, 40),
    "dim2": (21, 30, 13, 40),
    "dim3": (10, 16, 7),
}


def draw_dim(b: Builder, kind: str) -> Dim:
    """One size of the given kind."""
    rng = b.rng
    value = rng.choice(_FULL[kind])
    full: int | str = value
    if rng.random() < 0.06 and value >= 256 and b.style.layout == "const":
        factor = rng.choice([2, 4, 8])
        full = f"{value // factor} * {factor}"
    return b.dim("seq" if kind == "seq2" else kind, full, rng.choice(_SMALL[kind]))


def draw_shape(
    b: Builder, *, ranks: Sequence[int] = (1, 2, 3, 4, 5), layouts: Sequence[str] | None = None
) -> list[Dim]:
    """A shape of one of the given ranks."""
    names = [k for k in (layouts or _LAYOUTS) if len(_LAYOUTS[k]) in ranks]
    name = b.rng.choices(names, [_WEIGHTS[k] for k in names])[0]
    dims = [draw_dim(b, kind) for kind in _LAYOUTS[name]]
    for first, second in pairwise(dims):
        if (first.kind, second.kind) == ("height", "width") and b.rng.random() < 0.4:
            second.full, second.small = first.full, first.small
    return dims


def at_least_two(dim: Dim) -> None:
    """Sizes of one make a variance undefined."""
    if dim.full == "1":
        dim.full = "16"
    if dim.small == "1":
        dim.small = "3"


def positive_input(b: Builder) -> str:
    """An expression for get_inputs whose values are positive."""
    return b.rng.choice(
        [
            "torch.rand({shape}) + 0.1",
            "torch.rand({shape}) + 1.0",
            "torch.randn({shape}).abs() + 0.1",
            "torch.rand({shape}) + 0.5",
            "torch.abs(torch.randn({shape})) + 0.01",
            "torch.rand({shape}) * 5 + 0.1",
            "torch.rand({shape}) + 1e-3",
            "torch.rand({shape}).clamp(min=0.01)",
            "torch.empty({shape}).uniform_(0.1, 2.0)",
        ]
    )


def maybe_flatten(b: Builder, chance: float) -> None:
    """Sometimes view the current value as a matrix: everything after the first dimension flattened."""
    rng = b.rng
    if len(b.shape) < 3 or rng.random() > chance:
        return
    full = small = 1
    for d in b.shape[1:]:
        if " " in d.full:
            return
        full, small = full * int(d.full), small * int(d.small)
    flat = b.dim("features", full, small)
    forms = [
        "torch.flatten({x}, 1)",
        "{a}.flatten(1)",
        "torch.flatten({x}, start_dim=1)",
        "{a}.flatten(start_dim=1)",
        "{n}.view({n}.size(0), -1)",
        "{n}.reshape({n}.size(0), -1)",
        "{n}.reshape({n}.shape[0], -1)",
        "{n}.view({n}.shape[0], -1)",
    ]
    b.reshape(rng.choice(forms), ".flatten(1)", (b.shape[0], flat))
