"""CUDA side of a pair: host functions, fused elementwise operators, and the candidate file's layout.

A `HostFunction` is one host function with its kernels. Elementwise operators are `PointOp`s: C statements
on a float `v`; their operands become kernel arguments in the order they occur. Sizes never appear in
CUDA text: kernels take them from the tensors at run time.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

INNER_SIZE = """static int64_t inner_size(torch::Tensor x, torch::Tensor t) {
    int64_t inner = 1;
    for (int64_t d = 1; d <= t.dim() && t.size(-d) == 1; d++) inner *= x.size(-d);
    return inner;
}"""
"""Host helper for broadcasting: element i of x meets element (i / inner) % t.numel() of t."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Operand:
    """A further argument of an elementwise operator."""

    kind: str
    """"scalar", "same" (tensor of the value's shape), "broadcast" (tensor broadcast against it) or
    "channel" (one value per index of dimension 1)."""
    call: str
    """Python expression that the candidate passes."""
    dtype: str = "float"
    """C type of the elements."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointOp:
    """An elementwise operator: C statements on `v`, with {0}, {1}, ... for its operands."""

    name: str
    """Goes into function names; empty for helpers that need no mention."""
    code: tuple[str, ...]
    operands: tuple[Operand, ...] = ()


@dataclass(slots=True)
class HostFunction:
    """One host function under construction.

    `tensors` are the names and Python expressions of its leading tensor arguments. `scalar` and `tensor`
    register further arguments; the order of registration is the order of all argument lists.
    """

    ops: list[str]
    leading: list[tuple[str, str]]
    prefix: str = ""
    params: list[tuple[str, str, str, str]] = field(default_factory=list)
    """(kind, C name, Python call expression, C type) of each registered argument."""
    kernels: list[str] = field(default_factory=list)
    host_body: list[str] = field(default_factory=list)
    helpers: list[str] = field(default_factory=list)
    fixed_name: str | None = None

    @property
    def name(self) -> str:
        if self.fixed_name is not None:
            return self.fixed_name
        return "_".join(op for op in self.ops if op)

    def scalar(self, call: str, c_type: str = "float", name: str | None = None) -> str:
        """Register a number; returns its C name. `c_type` is its type in kernels: "float", "int64_t"."""
        if name is None:
            name = f"s{sum(1 for p in self.params if p[0] == 'scalar' and p[1].startswith('s'))}"
        self.params.append(("scalar", name, call, c_type))
        return name

    def tensor(
        self, call: str, kind: str = "same", c_type: str = "float", name: str | None = None
    ) -> str:
        """Register a tensor; returns its C name. `kind` is "same", "broadcast" or "raw"."""
        if name is None:
            name = f"t{sum(1 for p in self.params if p[0] != 'scalar' and p[1].startswith('t'))}"
        self.params.append((kind, name, call, c_type))
        if kind == "broadcast" and INNER_SIZE not in self.helpers:
            self.helpers.append(INNER_SIZE)
        return name

    def point(self, ops: Sequence[PointOp], index: str = "i") -> list[str]:
        """C statements of a chain of elementwise operators; registers their operands.

        `index` is the C expression of the flat index of `v` in the tensor that the chain runs over.
        """
        lines: list[str] = []
        for op in ops:
            names = []
            for operand in op.operands:
                if operand.kind == "scalar":
                    names.append(self.scalar(operand.call))
                    continue
                t = self.tensor(operand.call, operand.kind, operand.dtype)
                if operand.kind == "same":
                    names.append(f"{t}[{index}]")
                else:
                    names.append(f"{t}[{index} / {t}_inner % {t}_size]")
            for line in op.code:
                for k, name in enumerate(names):
                    line = line.replace("{" + str(k) + "}", name)
                lines.append(line)
        return lines

    def kernel_params(self) -> str:
        """Kernel parameters of the registered arguments, each followed by ", "."""
        text = ""
        for kind, name, _, c_type in self.params:
            if kind == "scalar":
                text += f"{c_type} {name}, "
            else:
                text += f"const {c_type}* {name}, "
                if kind in ("broadcast", "channel"):
                    text += f"int64_t {name}_inner, int64_t {name}_size, "
        return text

    def launch_args(self, like: str | Mapping[str, str] = "x") -> str:
        """Launch arguments of the registered arguments, each followed by ", ".

        `like` names the tensor that operands broadcast against, one for all or one for each operand.
        """
        text = ""
        for kind, name, _, c_type in self.params:
            shape = like if isinstance(like, str) else like.get(name, "x")
            if kind == "scalar":
                text += f"{name}, "
            else:
                text += f"{name}.data_ptr<{c_type}>(), "
                if kind == "broadcast":
                    text += f"inner_size({shape}, {name}), {name}.numel(), "
                elif kind == "channel":
                    text += f"{shape}.stride(1), {name}.numel(), "
        return text

    def host_params(self) -> str:
        """Parameters of the host function."""
        parts = [f"torch::Tensor {name}" for name, _ in self.leading]
        for kind, name, _, c_type in self.params:
            if kind != "scalar":
                parts.append(f"torch::Tensor {name}")
            else:
                parts.append(f"{'double' if c_type == 'float' else c_type} {name}")
        return ", ".join(parts)

    def call_args(self) -> list[str]:
        """Python arguments of the call in the candidate's forward."""
        return [call for _, call in self.leading] + [call for _, _, call, _ in self.params]

    def declaration(self) -> str:
        return f"torch::Tensor {self.name}_cuda({self.host_params()});"

    def definition(self) -> str:
        host = "\n".join("    " + line if line else "" for line in self.host_body)
        kernels = "\n\n".join(k.replace("NAME", self.name) for k in self.kernels)
        text = f"torch::Tensor {self.name}_cuda({self.host_params()}) {{\n{host}\n}}".replace(
            "NAME", self.name
        )
        return f"{kernels}\n\n{text}" if kernels else text


def indent(lines: Sequence[str], depth: int) -> str:
    """Statements, one a line, each ending in a line feed, at `depth` levels of four spaces."""
    return "".join("    " * depth + line + "\n" for line in lines)


def module_source(functions: Sequence[HostFunction]) -> str:
    """The text from `cuda_source` to the end of the `load_inline` call."""
    helpers: dict[str, str] = {}
    for function in functions:
        for text in function.helpers:
            name = text.split("(", 1)[0]
            # of two versions of one helper, the one for any block shape serves both
            if name not in helpers or "blockDim.x" in text:
                helpers[name] = text
    parts = [
        "#include <torch/extension.h>",
        *helpers.values(),
        *(f.definition() for f in functions),
    ]
    cuda = "\n\n".join(parts)
    declarations = "\n".join(f.declaration() for f in functions)
    names = ", ".join(f'"{f.name}_cuda"' for f in functions)
    return (
        f'cuda_source = """\n{cuda}\n"""\n\n'
        f'cpp_source = """\n{declarations}\n"""\n\n'
        f'ext = load_inline(name="{functions[0].name}", cpp_sources=cpp_source, '
        f"cuda_sources=cuda_source, functions=[{names}])\n"
    )
