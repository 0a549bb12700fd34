"""What a mutator is, and what mutators ask of a syntax tree.

A mutator takes CUDA source and returns every text that differs from it by one fault of its kind. The faults
are in `faults_device` and `faults_host`; importing these fills `MUTATORS`.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from tree_sitter import Node

from dice.toolchain.edits import Edit, apply_edits
from dice.toolchain.parse import ParsedSource, descend, parse, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One changed text. `line` counts from 1 in that text."""

    text: str
    description: str
    line: int


Mutator: TypeAlias = Callable[[str], list[Mutation]]
Places: TypeAlias = Iterator[tuple[Node, list[Edit]]]
"""Each place of a fault: the node that the description quotes, and the edits."""
Finder: TypeAlias = Callable[[ParsedSource], Places]
MUTATORS: dict[str, Mutator] = {}

_INTEGERS = re.compile(r"\b(int|long|size_t|unsigned|u?int\d+_t|short|bool|dim3)\b")
NUMBER = re.compile(r"(\d+\.\d*|\.\d+|\d+(?=[eE.]))([eE][+-]?\d+)?([fF]?)")


def mutator(find: Finder) -> Finder:
    """Register what finds the places of one kind of fault, under the function's name."""

    def mutate(text: str) -> list[Mutation]:
        source = parse(text)
        found = {}
        for node, edits in find(source):
            changed = apply_edits(source.text, edits)
            if changed != text:
                was, now = source.slice(node.start_byte, node.end_byte), _inside(node, edits)
                found[changed] = Mutation(
                    text=changed,
                    description=f"{' '.join(was.split())} -> {' '.join(now.split())}",
                    line=node.start_point.row + 1,
                )
        return list(found.values())

    MUTATORS[find.__name__] = mutate
    return find


def _inside(node: Node, edits: list[Edit]) -> str:
    """The node's text after the edits that lie in it."""
    assert node.text is not None
    start, end = node.start_byte, node.end_byte
    own = [
        Edit(one.start - start, one.end - start, one.text)
        for one in edits
        if start <= one.start and one.end <= end
    ]
    return apply_edits(node.text, own)


def functions(source: ParsedSource, *, device: bool) -> Iterator[Node]:
    """Bodies of functions that run on the device, or on the host."""
    for node in descend(source.root):
        body = node.child_by_field_name("body") if node.type == "function_definition" else None
        if body is not None:
            head = source.slice(node.start_byte, body.start_byte)
            if ("__global__" in head or "__device__" in head) == device:
                yield body


def nodes(source: ParsedSource, *kinds: str, device: bool = True) -> Iterator[Node]:
    for body in functions(source, device=device):
        for node in descend(body):
            if node.type in kinds:
                yield node


def field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    assert child is not None
    return child


def _above(node: Node) -> Iterator[Node]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def is_index(node: Node) -> bool:
    """Whether an expression counts or addresses something instead of being data."""
    below = node
    for one in _above(node):
        if one.type in ("subscript_argument_list", "condition_clause", "kernel_call_syntax"):
            return True
        if one.type == "pointer_expression":
            return True
        if one.type == "for_statement" and below != one.child_by_field_name("body"):
            return True
        if one.type == "declaration":
            return bool(_INTEGERS.search(text_of(field(one, "type")))) or "*" in text_of(one)[:24]
        if one.type == "assignment_expression" and below == field(one, "right"):
            target = text_of(field(one, "left"))
            return bool(_declared_as_integer(one, target))
        if one.type.endswith("_statement"):
            return False
        below = one
    return False


def _declared_as_integer(node: Node, name: str) -> bool:
    if not name.isidentifier():
        return False
    top = node
    for one in _above(node):
        if one.type == "function_definition":
            top = one
    pattern = rf"\b(int|long|size_t|unsigned|u?int\d+_t)\s+[^;{{}}()]*\b{name}\b"
    return re.search(pattern, text_of(top)) is not None


def binary(
    source: ParsedSource, operators: tuple[str, ...], *, device: bool = True
) -> Iterator[Node]:
    for node in nodes(source, "binary_expression", device=device):
        if text_of(field(node, "operator")) in operators:
            yield node


def replace(node: Node, text: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, text)


def arguments(call: Node) -> list[Node]:
    return [one for one in field(call, "arguments").named_children if one.type != "comment"]


def calls(source: ParsedSource, pattern: str, *, device: bool = True) -> Iterator[Node]:
    for node in nodes(source, "call_expression", device=device):
        if re.fullmatch(pattern, text_of(field(node, "function"))):
            yield node


def accumulators(source: ParsedSource) -> Iterator[tuple[Node, Node]]:
    """Floating-point locals that a loop or a step updates: the init_declarator and its declaration."""
    for body in functions(source, device=True):
        text = text_of(body)
        for node in descend(body):
            if node.type != "declaration":
                continue
            if text_of(field(node, "type")) not in ("float", "double", "scalar_t"):
                continue
            for one in node.children_by_field_name("declarator"):
                if one.type != "init_declarator":
                    continue
                name = re.escape(text_of(field(one, "declarator")))
                if re.search(rf"\b{name}\s*(\+=|\*=|=\s*\w*(max|min)\w*\()", text):
                    yield one, node


def is_epsilon(node: Node) -> bool:
    text = text_of(node)
    return "eps" in text.lower() or re.fullmatch(r"[\d.]+[eE]-\d+[fF]?", text) is not None
