"""Local variables of device code that start without a value get one that shows.

A register of a GPU holds whatever was in it. A C++ compiler starts such a variable at whatever suits it,
often at the very value that the kernel forgot. So numbers declared without a value in a kernel or a device
function start at `simt::Unset`, a huge number whose sign differs from launch to launch. Arrays, pointers,
structures and template parameters are left to the compiler's `-ftrivial-auto-var-init=pattern`.
"""

import re
from collections.abc import Iterator

from tree_sitter import Node

from dice.toolchain.edits import Edit
from dice.toolchain.parse import Region, descend, text_of

_NUMBERS = {"primitive_type", "sized_type_specifier"}
_JUMPS = {"goto_statement", "labeled_statement"}
"""A jump over a variable with a value is an error in C++."""
_DEVICE = re.compile(r"\b__(?:global|device)__\b")
_OTHER_RULES = re.compile(r"\bconst(?:expr|eval)\b")


def unset_locals(region: Region) -> Iterator[Edit]:
    """Edits that give every such variable of a region a value."""
    if region.in_macro:
        return
    for node in descend(region.root):
        body = node.child_by_field_name("body")
        if node.type != "function_definition" or body is None or not _is_device(node, body):
            continue
        inside = list(descend(body))
        if any(one.type in _JUMPS for one in inside):
            continue
        for one in inside:
            if one.type == "declaration" and _is_plain(one):
                yield from _edits(one, region.offset)


def _is_device(function: Node, body: Node) -> bool:
    length = body.start_byte - function.start_byte
    head = text_of(function).encode()[:length].decode(errors="replace")
    return _DEVICE.search(head) is not None and _OTHER_RULES.search(head) is None


def _is_plain(declaration: Node) -> bool:
    """Whether it declares numbers, as a statement of its own that no `switch` jumps over."""
    block = declaration.parent
    if block is None or block.type != "compound_statement":
        return False
    if block.parent is not None and block.parent.type == "switch_statement":
        return False
    declared = {one.id for one in declaration.children_by_field_name("declarator")}
    others = [one for one in declaration.named_children if one.id not in declared]
    return all(one.type in _NUMBERS or one.type == "comment" for one in others)


def _edits(declaration: Node, offset: int) -> Iterator[Edit]:
    for one in declaration.children_by_field_name("declarator"):
        if one.type == "identifier":
            end = one.end_byte + offset
            yield Edit(end, end, " = ::simt::Unset()")
