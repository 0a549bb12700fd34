"""Rewrite CUDA source into C++ over the SIMT headers, by byte ranges of syntax nodes.

Guarantees: every line keeps its number, and a launch stays one expression, so that temporaries in its
arguments live to its end. Four rewrites:

- `k<<<cfg>>>(args)` becomes `SIMT_LAUNCH((k), (cfg), args)`, in macro bodies too;
- a `__shared__` declaration becomes a reference into the thread block's shared memory;
- a number declared without a value in device code starts at one that shows;
- what names the CUDA device names the CPU: `is_cuda()` and `is_cpu()` trade places, `kCUDA` is `kCPU`.

A launch inside text that the grammar does not understand is found by its tokens instead.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from dice.toolchain.edits import Edit, apply_edits, line_breaks
from dice.toolchain.launches import launches
from dice.toolchain.parse import ParsedSource, Region, descend, is_name, parse, text_of
from dice.toolchain.shared_memory import file_scope_uses, shared_declarations
from dice.toolchain.uninitialised import unset_locals


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The rewritten text and what was found on the way."""

    text: str
    launches: int
    parsed: ParsedSource


def rewrite(text: str, *, drop: tuple[tuple[int, int], ...] = ()) -> Rewritten:
    """Rewrite one source. `drop` are byte ranges to blank (their line breaks stay).

    Raises BuildFailure where a launch cannot be understood.
    """
    source = parse(text)
    edits: list[Edit] = []
    count = 0
    for region in source.regions:
        found = list(launches(region))
        count += len(found)
        for one in found:
            edits.extend(one)
        edits.extend(shared_declarations(source, region))
        edits.extend(unset_locals(region))
        edits.extend(_device_names(region))
    edits.extend(file_scope_uses(source))
    edits.extend(Edit(start, end, line_breaks(source.text[start:end])) for start, end in drop)
    return Rewritten(text=apply_edits(source.text, edits), launches=count, parsed=source)


_CUDA_DEVICE = re.compile(r'^"cuda(:\d+)?"$')


def _device_names(region: Region) -> Iterator[Edit]:
    for node in descend(region.root):
        replacement = _device_replacement(node)
        if replacement is not None:
            yield Edit(node.start_byte + region.offset, node.end_byte + region.offset, replacement)


def _device_replacement(node: Node) -> str | None:
    if node.type == "string_literal":
        return '"cpu"' if _CUDA_DEVICE.match(text_of(node)) else None
    if node.child_count or not is_name(node):
        return None
    match node.text:
        case b"is_cuda":
            return "is_cpu"
        case b"is_cpu":
            return "is_cuda"
        case b"kCUDA":
            return "kCPU"
        case b"CUDA" if _scope_of(node) in ("DeviceType", "Backend"):
            return "CPU"
        case b"cuda" if _is_method_call(node):
            return "cpu"
    return None


def _scope_of(node: Node) -> str | None:
    parent = node.parent
    if parent is None or parent.type != "qualified_identifier":
        return None
    scope = parent.child_by_field_name("scope")
    return None if scope is None or scope == node else text_of(scope)


def _is_method_call(node: Node) -> bool:
    field = node.parent
    if field is None or field.type != "field_expression" or field.parent is None:
        return False
    return (
        field.parent.type == "call_expression"
        and field.parent.child_by_field_name("function") == field
    )
