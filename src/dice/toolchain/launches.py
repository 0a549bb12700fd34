"""Kernel launches as one C++ expression: `k<<<cfg>>>(args)` becomes `SIMT_LAUNCH((k), (cfg), args)`."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol

from dice.errors import BuildFailure
from dice.toolchain.edits import Edit
from dice.toolchain.parse import Region, descend, is_name, leaves, text_of


class Span(Protocol):
    """A byte range: a syntax node or a token."""

    @property
    def start_byte(self) -> int: ...
    @property
    def end_byte(self) -> int: ...


def launches(region: Region) -> Iterator[list[Edit]]:
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
        text = text_of(leaf)
        parts = list(text) if text and set(text) <= {"<", ">"} else [text] * bool(text)
        start = leaf.start_byte
        for part in parts:
            end = start + len(part.encode())
            found.append(_Token(part, start, end, is_name(leaf), leaf.start_point.row + 1))
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
