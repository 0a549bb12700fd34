"""Host functions whose leading arguments are more than tensors: optional bias, strides, counts."""

from collections.abc import Sequence
from dataclasses import dataclass, field

from dice.data.synth.cuda import HostFunction, PointOp, indent


@dataclass(slots=True)
class OpFunction(HostFunction):
    """A `HostFunction` with typed arguments between its tensors and its elementwise operands."""

    typed: list[tuple[str, str]] = field(default_factory=list)
    """(C++ parameter declaration, Python expression), in order."""

    def host_params(self) -> str:
        """Parameters of the host function."""
        tensors = [f"torch::Tensor {name}" for name, _ in self.leading]
        rest = HostFunction(ops=[], leading=[], params=self.params).host_params()
        return ", ".join([*tensors, *(decl for decl, _ in self.typed), *([rest] if rest else [])])

    def call_args(self) -> list[str]:
        """Python arguments of the call in the candidate's forward."""
        calls = [call for _, call in self.leading] + [call for _, call in self.typed]
        return calls + [call for _, _, call, _ in self.params]

    def load(self, element: str, prologue: Sequence[PointOp], depth: int, use: str) -> str:
        """Statements that read one element, apply `prologue` to it and use it.

        `use` holds {v} for the value read. `prologue` may have scalar operands only.
        """
        if not prologue:
            return indent([use.replace("{v}", element)], depth)
        lines = [f"float v = {element};", *self.point(prologue), use.replace("{v}", "v")]
        return indent(lines, depth)

    def store(self, value: str, epilogue: Sequence[PointOp], depth: int, index: str = "i") -> str:
        """Statements that apply `epilogue` to a value and write it to `out[index]`."""
        if not epilogue:
            return indent([f"out[{index}] = {value};"], depth)
        lines = [f"float v = {value};", *self.point(epilogue, index), f"out[{index}] = v;"]
        return indent(lines, depth)


AXES = {1: "w", 2: "hw", 3: "dhw"}
"""Letters of the spatial axes, outermost first, by their number."""


def per_axis(template: str, axes: str) -> str:
    """`template` once per axis, joined with commas; {A} is the axis' capital letter, {i} its number."""
    return ", ".join(
        template.replace("{A}", a.upper()).replace("{i}", str(i)) for i, a in enumerate(axes)
    )


def unravel(axes: str, index: str = "i") -> list[str]:
    """Declarations of o<axis>, the coordinates of a flat output index; what is left is returned last."""
    lines, rest = [], index
    for a in reversed(axes):
        lines.append(f"int o{a} = {rest} % O{a.upper()};")
        rest += f" / O{a.upper()}"
    return [*lines, rest]


def flat_index(first: str, axes: str, size: str, coordinate: str) -> str:
    """Flat row-major index: `first`, then one coordinate per axis; sizes are capital letters."""
    text = first
    for a in axes:
        text = f"({text})" if " + " in text and not is_cast(text) else text
        text = f"{text} * {size}{a.upper()} + {coordinate}{a}"
    return text


def is_cast(text: str) -> bool:
    """Whether an expression is one cast of a parenthesised sum."""
    return text.startswith("(int64_t)(") and text.endswith(")") and text.count("(") == 2
