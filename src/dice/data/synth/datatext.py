"""The half of a problem file around the class: constants, `get_inputs` and `get_init_inputs`."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dice.data.synth.builder import Builder, Dim, InputSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class DataText:
    """Source text, sizes still as placeholders."""

    consts: tuple[str, ...]
    inputs: str
    init_inputs: str


_UNUSED = (
    ("dim", "1"),
    ("eps", "1e-05"),
    ("num_classes", "10"),
    ("dropout", "0.1"),
    ("out_features", "64"),
    ("num_layers", "2"),
    ("hidden_size", "256"),
    ("num_heads", "8"),
    ("momentum", "0.1"),
    ("seed", "0"),
    ("out_channels", "32"),
    ("kernel_size", "3"),
)


def data_text(b: "Builder") -> DataText:
    """Write the sizes where the author keeps them, then the two functions that use them."""
    rng, layout = b.rng, b.style.layout
    used = _sizes(b)
    if layout == "mixed":
        named_dims = [d for d in used if rng.random() < 0.62]
    elif layout in ("const", "tuple", "local"):
        named_dims = used
    else:
        named_dims = []
    for d in named_dims:
        b.const_name(d)
    first = b.inputs[0].dims if b.inputs else ()
    consts: list[str] = []
    local_lines: list[str] = []
    tuple_name = ""
    if layout == "local":
        local_lines = _assignments(b, named_dims)
    elif layout == "tuple" and len(named_dims) > 1:
        cut = len(named_dims) if rng.random() < 0.75 else rng.randrange(1, len(named_dims))
        consts += [_tuple_assignment(part) for part in (named_dims[:cut], named_dims[cut:]) if part]
    elif layout in ("shape", "batch_shape") and first:
        body = first[1:] if layout == "batch_shape" and len(first) > 1 else first
        whole = len(body) == len(first)
        pool = (
            ("shape", "input_shape", "x_shape", "input_size", "dims")
            if whole
            else ("input_shape", "input_shape", "shape", "feature_shape")
        )
        tuple_name = b.free_name(pool, b.global_names, upper=True)
        if not whole:
            consts.append(f"{b.const_name(first[0])} = {first[0].token}")
        consts.append(
            f"{tuple_name} = ({', '.join(d.token for d in body)}{',' if len(body) == 1 else ''})"
        )
    else:
        consts += _assignments(b, named_dims)

    def size(d: "Dim") -> str:
        return d.name if d in named_dims and d.name is not None else d.token

    def constant_size(d: "Dim") -> str:
        return d.token if layout == "local" else size(d)

    for arg in b.args:
        if arg.const is not None:
            consts.append(f"{arg.const} = {_named(b, arg.value, constant_size)}")
    if rng.random() < 0.08 and layout != "local":
        name, value = rng.choice(_UNUSED)
        if name not in b.global_names:
            consts.insert(rng.randrange(len(consts) + 1), f"{name} = {value}")
    # a tensor named like a size would hide it inside get_inputs
    use_locals = b.style.input_locals and not any(i.name in b.global_names for i in b.inputs)
    made = [(i.name, _made(b, i, use_locals, tuple_name, size)) for i in b.inputs]
    lines = [*local_lines, *b.input_lines]
    if use_locals:
        lines += [f"{name} = {text}" for name, text in made]
        lines.append(f"return [{', '.join(name for name, _ in made)}]")
    else:
        lines.append(f"return [{', '.join(text for _, text in made)}]")
    inputs = "def get_inputs():\n" + "".join(f"    {line}\n" for line in lines)
    return DataText(consts=tuple(consts), inputs=inputs, init_inputs=_init_inputs(b, constant_size))


def _sizes(b: "Builder") -> list["Dim"]:
    """Every size of an input or a constructor argument, once, in order."""
    used: list[Dim] = []
    for item in b.inputs:
        for d in item.dims:
            if d not in used:
                used.append(d)
    for arg in b.args:
        if arg.dim is not None and arg.dim not in used:
            used.append(arg.dim)
    return used


def _assignments(b: "Builder", dims: list["Dim"]) -> list[str]:
    lines: list[str] = []
    k = 0
    while k < len(dims):
        d = dims[k]
        if (
            k + 1 < len(dims)
            and (d.full, d.small) == (dims[k + 1].full, dims[k + 1].small)
            and b.rng.random() < 0.5
        ):
            lines.append(f"{d.name} = {dims[k + 1].name} = {d.token}")
            k += 2
        elif k + 1 < len(dims) and b.rng.random() < 0.05:
            lines.append(_tuple_assignment(dims[k : k + 2]))
            k += 2
        else:
            lines.append(f"{d.name} = {d.token}")
            k += 1
    return lines


def _tuple_assignment(dims: list["Dim"]) -> str:
    return f"{', '.join(d.name or d.token for d in dims)} = {', '.join(d.token for d in dims)}"


def _named(b: "Builder", text: str, size: Callable[["Dim"], str]) -> str:
    """Put the names of sizes into a text that holds their placeholders."""
    table = {d.token: d for d in b.dims}
    return re.sub(r"SIZE\d+_", lambda m: size(table[m.group(0)]), text)


def _made(
    b: "Builder", item: "InputSpec", use_locals: bool, tuple_name: str, size: Callable[["Dim"], str]
) -> str:
    """The expression that makes one input."""
    text = item.make.replace("{like}", f"{b.inputs[0].name}.shape" if use_locals else "{size}")
    sizes = ", ".join(size(d) for d in item.dims)
    text = text.replace("{size}", f"({sizes}{',' if len(item.dims) == 1 else ''})")
    shape = sizes
    first = b.inputs[0].dims
    if tuple_name and item.dims == first:
        if b.style.layout == "batch_shape" and len(first) > 1:
            shape = f"{b.const_name(first[0])}, *{tuple_name}"
        else:
            shape = (
                tuple_name if b.style.input_locals and ".uniform_" not in text else f"*{tuple_name}"
            )
    elif not item.dims:
        shape = "()"
    elif b.style.upper and len(item.dims) > 1:
        shape = f"({sizes})"
    text = text.replace("{shape}", shape)
    for d in b.dims:
        text = text.replace(f"{{{d.token}}}", size(d))
    return text


def _init_inputs(b: "Builder", size: Callable[["Dim"], str]) -> str:
    ordered = b.ordered_args()
    count = max((k + 1 for k, a in enumerate(ordered) if a.default != a.value), default=0)
    while count < len(ordered) and b.rng.random() < 0.25:
        count += 1
    values = []
    for arg in ordered[:count]:
        if arg.dim is not None:
            values.append(size(arg.dim))
        else:
            values.append(arg.const or _named(b, arg.value, size))
    return f"def get_init_inputs():\n    return [{', '.join(values)}]\n"
