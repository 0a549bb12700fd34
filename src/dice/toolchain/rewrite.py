"""Rewrite CUDA source into C++ over the SIMT headers, by byte ranges of syntax nodes.

Guarantees: every line keeps its number, and a launch stays one expression, so that temporaries in its
arguments live to its end. Three rewrites:

- `k<<<cfg>>>(args)` becomes `SIMT_LAUNCH((k), (cfg), args)`, in macro bodies too;
- a `__shared__` declaration becomes a reference into the thread block's shared memory;
- what names the CUDA device names the CPU: `is_cuda()` and `is_cpu()` trade places, `kCUDA` is `kCPU`.

A launch inside text that the grammar does not understand is found by its tokens instead.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from tree_sitter import Node

from dice.errors import BuildFailure
from dice.toolchain.parse import ParsedSource, Region, declared_name, descend, leaves, parse


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes [start, end) by `text`."""

    start: int
    end: int
    text: str


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
    launches = 0
    for region in source.regions:
        found = list(_launches(region))
        launches += len(found)
        for one in found:
            edits.extend(one)
        edits.extend(_shared_declarations(source, region))
        edits.extend(_device_names(region))
    edits.extend(_file_scope_shared_uses(source))
    edits.extend(Edit(start, end, _line_breaks(source.text[start:end])) for start, end in drop)
    return Rewritten(text=apply_edits(source.text, edits), launches=launches, parsed=source)


def apply_edits(text: bytes, edits: list[Edit]) -> str:
    """Apply edits. One that lies inside another is swallowed by it."""
    ordered = sorted(edits, key=lambda one: (one.start, -one.end))
    pieces: list[bytes] = []
    position = 0
    for edit in ordered:
        if edit.start < position:
            continue
        pieces += [text[position : edit.start], edit.text.encode()]
        position = edit.end
    pieces.append(text[position:])
    return b"".join(pieces).decode(errors="replace")


def _line_breaks(text: bytes) -> str:
    return "".join(
        "\\\n" if line.endswith(b"\\\n") else "\n"
        for line in text.splitlines(keepends=True)
        if line.endswith(b"\n")
    )


# ---- launches ----


class Span(Protocol):
    """A byte range: a syntax node or a token."""

    @property
    def start_byte(self) -> int: ...
    @property
    def end_byte(self) -> int: ...


def _launches(region: Region) -> Iterator[list[Edit]]:
    handled: set[int] = set()
    for node in descend(region.root):
        if node.type != "call_expression":
            continue
        config = next((one for one in node.children if one.type == "kernel_call_syntax"), None)
        kernel = node.child_by_field_name("function")
        arguments = node.child_by_field_name("arguments")
        if config is None or kernel is None or arguments is None:
            continue
        opening, closing = config.children[0], config.children[-1]
        if opening.type != "<<<" or closing.type != ">>>" or arguments.children[0].type != "(":
            continue
        handled.add(opening.start_byte)
        has_arguments = any(one.is_named and one.type != "comment" for one in arguments.children)
        yield _launch_edits(
            region.offset, kernel.start_byte, opening, closing, arguments.children[0], has_arguments
        )
    yield from _launches_by_tokens(region, handled)


def _launch_edits(
    offset: int,
    kernel_start: int,
    opening: Span,
    closing: Span,
    parenthesis: Span,
    has_arguments: bool,
) -> list[Edit]:
    def at(span: Span, text: str) -> Edit:
        return Edit(span.start_byte + offset, span.end_byte + offset, text)

    start = kernel_start + offset
    return [
        Edit(start, start, "SIMT_LAUNCH(("),
        at(opening, "), ("),
        at(closing, ")"),
        at(parenthesis, ", " if has_arguments else ""),
    ]


@dataclass(frozen=True, slots=True)
class _Token:
    """A leaf of the tree, with `<<`, `>>>` and the like cut into single characters."""

    text: str
    start_byte: int
    end_byte: int
    is_name: bool
    line: int


def _tokens(region: Region) -> list[_Token]:
    found = []
    for leaf in leaves(region.root):
        text = _text(leaf)
        parts = list(text) if text and set(text) <= {"<", ">"} else [text] * bool(text)
        start = leaf.start_byte
        for part in parts:
            end = start + len(part.encode())
            found.append(_Token(part, start, end, _is_name(leaf), leaf.start_point.row + 1))
            start = end
    return found


def _launches_by_tokens(region: Region, handled: set[int]) -> Iterator[list[Edit]]:
    """Launches that are no launch in the tree (there is an error nearby): walk back over the kernel's
    name and template arguments, forward to `>>>` and the parenthesis after it."""
    tokens = _tokens(region)
    for index, token in enumerate(tokens):
        if token.start_byte in handled or not _is_triple(tokens, index, "<"):
            continue
        first = _kernel_start(tokens, index)
        close = _closing(tokens, index + 3)
        if first is None or close is None:
            raise BuildFailure(f"cuda_source:{token.line}: the launch at `<<<` cannot be parsed")
        parenthesis, after = tokens[close + 3], tokens[close + 4]
        opening = _Span(token.start_byte, tokens[index + 2].end_byte)
        closing = _Span(tokens[close].start_byte, tokens[close + 2].end_byte)
        yield _launch_edits(
            region.offset,
            tokens[first].start_byte,
            opening,
            closing,
            parenthesis,
            after.text != ")",
        )


@dataclass(frozen=True, slots=True)
class _Span:
    start_byte: int
    end_byte: int


def _is_triple(tokens: list[_Token], index: int, character: str) -> bool:
    """Whether exactly three of `character` stand side by side from here."""
    run = tokens[index : index + 3]
    if len(run) < 3 or any(one.text != character for one in run):
        return False
    before = tokens[index - 1] if index else None
    if character == "<" and before and before.text == "<" and before.end_byte == run[0].start_byte:
        return False
    return run[0].end_byte == run[1].start_byte and run[1].end_byte == run[2].start_byte


def _kernel_start(tokens: list[_Token], index: int) -> int | None:
    """Index of the first token of the kernel expression before the `<<<` at `index`."""
    first = index - 1
    if first >= 0 and tokens[first].text in (">", ")"):
        first = _match_back(tokens, first)
        if tokens[index - 1].text == ")":
            return first if first >= 0 else None
        first -= 1
    if first < 0 or not tokens[first].is_name:
        return None
    while first >= 2 and tokens[first - 1].text == "::" and tokens[first - 2].is_name:
        first -= 2
    return first


def _closing(tokens: list[_Token], index: int) -> int | None:
    """Index of the `>>>` that ends a launch configuration, at bracket depth 0 and before `(`."""
    depth = 0
    while index + 4 < len(tokens):
        text = tokens[index].text
        if depth == 0 and _is_triple(tokens, index, ">") and tokens[index + 3].text == "(":
            return index
        depth += text in ("(", "[", "{")
        depth -= text in (")", "]", "}")
        if depth < 0 or text == ";":
            return None
        index += 1
    return None


def _is_name(token: Node) -> bool:
    return token.type.endswith("identifier")


def _match_back(tokens: list[_Token], last: int) -> int:
    closing = tokens[last].text
    opening = {">": "<", ")": "("}[closing]
    depth = 0
    for index in range(last, -1, -1):
        depth += tokens[index].text == closing
        depth -= tokens[index].text == opening
        if depth == 0:
            return index
    return -1


# ---- shared memory ----

_DROPPED = {"__shared__", "static", "extern", "__device__", ";", ","}


def _shared_declarations(source: ParsedSource, region: Region) -> Iterator[Edit]:
    for node in descend(region.root):
        if node.type != "declaration" or not _is_shared(node):
            continue
        start, end = node.start_byte + region.offset, node.end_byte + region.offset
        text = _shared_text(source, region, node)
        yield Edit(start, end, text + _line_breaks(source.text[start:end]))


def _is_shared(node: Node) -> bool:
    return any(child.text == b"__shared__" for child in node.children)


def _at_file_scope(node: Node) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type in ("compound_statement", "function_definition"):
            return False
        parent = parent.parent
    return True


def _shared_text(source: ParsedSource, region: Region, node: Node) -> str:
    """C++ for one `__shared__` declaration: all its declarators, on one line."""

    def spelled(one: Node) -> str:
        text = source.slice(one.start_byte + region.offset, one.end_byte + region.offset)
        return " ".join(text.replace("\\\n", " ").split()) if "//" not in text else text

    declarators = node.children_by_field_name("declarator")
    ids = {one.id for one in declarators}
    kept, alignment = [], None
    for child in node.children:
        if child.id in ids or child.type == "comment" or child.text is None:
            continue
        text = child.text.decode(errors="replace")
        if text.startswith("alignas"):
            alignment = text[len("alignas") :].strip().removeprefix("(").removesuffix(")")
        elif text not in _DROPPED:
            kept.append(spelled(child))
    dynamic = any(child.text == b"extern" for child in node.children)
    at_file_scope = _at_file_scope(node) and not region.in_macro
    names = [declared_name(one) for one in declarators]
    if not names or None in names or not kept:
        line = node.start_point.row + 1
        raise BuildFailure(f"cuda_source:{line}: this __shared__ declaration cannot be parsed")
    base = f"simt_base_{_text(names[0])}"
    parts = [f"using {base} = {' '.join(kept)};"]
    for declarator, identifier in zip(declarators, names, strict=True):
        assert identifier is not None
        if declarator.type == "init_declarator":
            declarator = declarator.child_by_field_name("declarator") or declarator
        name = _text(identifier)
        shape_start = declarator.start_byte + region.offset
        before = source.slice(shape_start, identifier.start_byte + region.offset)
        after = source.slice(
            identifier.end_byte + region.offset, declarator.end_byte + region.offset
        )
        if dynamic:
            element = re.sub(r"^\s*\[\s*\]", "", after)
            parts.append(f"using simt_type_{name} = {base} {before}{element};")
            if not at_file_scope:
                parts.append(f"simt_type_{name}* {name} = (simt_type_{name}*)::simt::dyn_shared();")
            continue
        align = alignment or f"alignof(simt_type_{name})"
        parts.append(f"using simt_type_{name} = {base} {before}{after};")
        parts.append(f"static char simt_key_{name};")
        if not at_file_scope:
            parts.append(f"simt_type_{name}& {name} = {_shared_value(name, align)};")
    return " ".join(parts)


def _shared_value(name: str, align: str) -> str:
    kind = f"simt_type_{name}"
    return f'*(::std::add_pointer_t<{kind}>)::simt::shared_var(&simt_key_{name}, sizeof({kind}), {align}, "{name}")'


def _text(node: Node | None) -> str:
    assert node is not None
    assert node.text is not None
    return node.text.decode(errors="replace")


def _file_scope_shared_uses(source: ParsedSource) -> Iterator[Edit]:
    """Uses of `__shared__` variables that were declared outside any function."""
    values: dict[str, str] = {}
    for node in descend(source.root):
        if node.type == "declaration" and _is_shared(node) and _at_file_scope(node):
            dynamic = any(child.text == b"extern" for child in node.children)
            for declarator in node.children_by_field_name("declarator"):
                name = _text(declared_name(declarator))
                kind = f"simt_type_{name}"
                values[name] = (
                    f"(({kind}*)::simt::dyn_shared())"
                    if dynamic
                    else f"({_shared_value(name, f'alignof({kind})')})"
                )
    if not values:
        return
    for node in descend(source.root):
        if node.type == "identifier" and _text(node) in values and not _declares(node):
            yield Edit(node.start_byte, node.end_byte, values[_text(node)])


def _declares(identifier: Node) -> bool:
    """Whether this identifier is the name that a declaration introduces."""
    node = identifier
    while node.parent is not None and node.parent.type.endswith("declarator"):
        if node.parent.child_by_field_name("value") == node:
            return False
        node = node.parent
    return node.parent is not None and node.parent.type in (
        "declaration",
        "parameter_declaration",
        "optional_parameter_declaration",
    )


# ---- the device ----

_CUDA_DEVICE = re.compile(r'^"cuda(:\d+)?"$')


def _device_names(region: Region) -> Iterator[Edit]:
    for node in descend(region.root):
        replacement = _device_replacement(node)
        if replacement is not None:
            yield Edit(node.start_byte + region.offset, node.end_byte + region.offset, replacement)


def _device_replacement(node: Node) -> str | None:
    if node.type == "string_literal":
        return '"cpu"' if _CUDA_DEVICE.match(_text(node)) else None
    if node.child_count or not _is_name(node):
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
    return None if scope is None or scope == node else _text(scope)


def _is_method_call(node: Node) -> bool:
    field = node.parent
    if field is None or field.type != "field_expression" or field.parent is None:
        return False
    return (
        field.parent.type == "call_expression"
        and field.parent.child_by_field_name("function") == field
    )
