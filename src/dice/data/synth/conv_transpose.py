"""Family: transposed convolutions in one to three dimensions."""

from collections.abc import Callable

from dice.data.synth.builder import Builder
from dice.data.synth.conv import build_one


def build_conv_transpose(b: Builder) -> None:
    """A transposed convolution, elementwise operators before and after it."""
    build_one(b, transposed=True)


FAMILIES: tuple[tuple[str, float, Callable[[Builder], None]], ...] = (
    ("conv_transpose", 12.0, build_conv_transpose),
)
