"""Parse CUDA and C++ text with tree-sitter and answer what the rewriter and the bindings ask.

The grammar knows launches (`k<<<...>>>(...)`). Two things it does not know are handled here: the
`__align__(n)` specifier is parsed as `alignas(n)` of the same length, and macro bodies, which the
grammar leaves as text, are parsed on their own. So a source is a list of `Region`s, each a syntax
tree with an offset into the source. Byte offsets refer to the UTF-8 text throughout.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache

import tree_sitter_cuda
from tree_sitter import Language, Node, Parser

_BODY_PREFIX = b"void dice_macro() { "
_BODY_SUFFIX = b"\n; }"


@dataclass(frozen=True, slots=True, kw_only=True)
class Region:
    """One syntax tree: `node.start_byte + offset` is a position in the source."""

    root: Node
    offset: int
    in_macro: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameter:
    """One parameter of a function. `type` is its C++ text without the name, e.g. `const T&`."""

    type: str
    name: str
    default: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Function:
    """A function declaration or definition outside any class. Byte range of the whole node."""

    name: str
    """Qualified by the namespaces around it."""
    parameters: tuple[Parameter, ...]
    is_definition: bool
    is_template: bool
    is_kernel: bool
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """An `#include`; `path` keeps its quotes or angle brackets."""

    path: str
    line: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class ParsedSource:
    """A parsed source text."""

    text: bytes
    regions: tuple[Region, ...]

    @property
    def root(self) -> Node:
        return self.regions[0].root

    @property
    def has_error(self) -> bool:
        """Whether the grammar did not understand some part of the text (macro bodies excluded)."""
        return self.root.has_error

    def slice(self, start: int, end: int) -> str:
        return self.text[start:end].decode(errors="replace")


@cache
def _parser() -> Parser:
    return Parser(Language(tree_sitter_cuda.language()))


def descend(node: Node) -> Iterator[Node]:
    """The node and everything below it, in source order."""
    stack = [node]
    while stack:
        current = stack.pop()
        yield current
        stack.extend(reversed(current.children))


def leaves(node: Node) -> Iterator[Node]:
    """The tokens below a node, comments and the inside of strings left out."""
    for one in descend(node):
        if one.child_count == 0 and one.type not in ("comment", "string_content"):
            yield one


def is_name(node: Node) -> bool:
    """Whether a token is an identifier of any kind."""
    return node.type.endswith("identifier")


def text_of(node: Node | None) -> str:
    """The text of a node that must be there."""
    assert node is not None
    return "" if node.text is None else node.text.decode(errors="replace")


def parse(text: str) -> ParsedSource:
    """Parse a source. Never raises: what the grammar does not understand is an ERROR node."""
    data = text.encode()
    tree = _parser().parse(data)
    readable = _with_alignas(data, tree.root_node)
    if readable is not data:
        tree = _parser().parse(readable)
    regions = [Region(root=tree.root_node, offset=0, in_macro=False)]
    for node in descend(tree.root_node):
        if node.type in ("preproc_def", "preproc_function_def"):
            value = node.child_by_field_name("value")
            if value is not None:
                regions.append(_macro_region(readable, value))
    return ParsedSource(data, tuple(regions))


def _with_alignas(data: bytes, root: Node) -> bytes:
    """`__align__` spelled `alignas  `, which the grammar knows; same length, so offsets stay."""
    if b"__align__" not in data:
        return data
    patched = bytearray(data)
    for node in descend(root):
        is_text = node.type == "preproc_arg"
        if node.child_count == 0 and node.text == b"__align__":
            patched[node.start_byte : node.end_byte] = b"alignas  "
        elif is_text and node.text is not None and b"__align__" in node.text:
            patched[node.start_byte : node.end_byte] = node.text.replace(b"__align__", b"alignas  ")
    return bytes(patched)


def _macro_region(data: bytes, value: Node) -> Region:
    """A macro's replacement text, parsed as statements or, if that fails, as declarations."""
    body = (
        data[value.start_byte : value.end_byte]
        .replace(b"\\\n", b" \n")
        .replace(b"\\\r\n", b" \r\n")
    )
    inside = _parser().parse(_BODY_PREFIX + body + _BODY_SUFFIX).root_node
    if inside.has_error:
        outside = _parser().parse(body).root_node
        if not outside.has_error:
            return Region(root=outside, offset=value.start_byte, in_macro=True)
    return Region(root=inside, offset=value.start_byte - len(_BODY_PREFIX), in_macro=True)


def includes(source: ParsedSource) -> list[Include]:
    """Every `#include` with a literal path."""
    found = []
    for node in descend(source.root):
        if node.type == "preproc_include":
            path = node.child_by_field_name("path")
            if path is not None and path.type in ("system_lib_string", "string_literal"):
                found.append(
                    Include(
                        path=source.slice(path.start_byte, path.end_byte),
                        line=node.start_point.row + 1,
                        start=node.start_byte,
                        end=path.end_byte,
                    )
                )
    return found


def macro_names(source: ParsedSource) -> list[str]:
    """Names that the source `#define`s."""
    found = []
    for node in descend(source.root):
        if node.type in ("preproc_def", "preproc_function_def"):
            name = node.child_by_field_name("name")
            if name is not None:
                found.append(source.slice(name.start_byte, name.end_byte))
    return found


_SCOPES = {
    "translation_unit",
    "declaration_list",
    "linkage_specification",
    "preproc_ifdef",
    "preproc_if",
    "preproc_else",
    "preproc_elif",
    "template_declaration",
    "ERROR",
}


def functions(source: ParsedSource) -> list[Function]:
    """Functions declared or defined at namespace scope, in order."""
    found: list[Function] = []

    def visit(node: Node, namespace: str, template: bool) -> None:
        for child in node.children:
            if child.type == "namespace_definition":
                name = child.child_by_field_name("name")
                body = child.child_by_field_name("body")
                inner = "" if name is None else source.slice(name.start_byte, name.end_byte) + "::"
                if body is not None:
                    visit(body, namespace + inner, False)
            elif child.type in _SCOPES:
                visit(child, namespace, template or child.type == "template_declaration")
            elif child.type in ("function_definition", "declaration"):
                found.extend(_functions_of(source, child, namespace, template))

    visit(source.root, "", False)
    return found


def _functions_of(
    source: ParsedSource, node: Node, namespace: str, template: bool
) -> Iterator[Function]:
    if any(child.type == "ERROR" for child in node.children):
        return
    for declarator in node.children_by_field_name("declarator"):
        inner: Node | None = declarator
        while inner is not None and inner.type in ("pointer_declarator", "reference_declarator"):
            named = inner.named_children
            inner = named[-1] if named else None
        if inner is None or inner.type != "function_declarator":
            continue
        name = inner.child_by_field_name("declarator")
        parameters = inner.child_by_field_name("parameters")
        if (
            name is None
            or parameters is None
            or name.type not in ("identifier", "qualified_identifier")
        ):
            continue
        spelled = source.slice(name.start_byte, name.end_byte)
        yield Function(
            name=namespace + spelled,
            parameters=tuple(_parameters(source, parameters)),
            is_definition=node.child_by_field_name("body") is not None,
            is_template=template,
            is_kernel=any(
                child.type == "__global__" or child.text == b"__global__" for child in node.children
            ),
            start=node.start_byte,
            end=node.end_byte,
        )


def _parameters(source: ParsedSource, node: Node) -> Iterator[Parameter]:
    for child in node.named_children:
        if child.type not in ("parameter_declaration", "optional_parameter_declaration"):
            continue
        declarator = child.child_by_field_name("declarator")
        default = child.child_by_field_name("default_value")
        end = child.end_byte
        if default is not None:
            equals = [one for one in child.children if one.type == "="]
            end = equals[0].start_byte if equals else default.start_byte
        name = declared_name(declarator) if declarator is not None else None
        if name is None:
            kind, spelled = source.slice(child.start_byte, end), ""
        else:
            kind = source.slice(child.start_byte, name.start_byte) + source.slice(
                name.end_byte, end
            )
            spelled = source.slice(name.start_byte, name.end_byte)
        text = None if default is None else source.slice(default.start_byte, default.end_byte)
        if kind.strip() == "void" and not spelled:
            continue
        yield Parameter(
            type=" ".join(kind.split()),
            name=spelled,
            default=None if text is None else text.strip(),
        )


def declared_name(declarator: Node) -> Node | None:
    """The identifier inside a declarator such as `*a[3]`; None for an abstract declarator."""
    for node in descend(declarator):
        if node.type in ("identifier", "field_identifier"):
            return node
        if node.type == "parameter_list":
            return None
    return None
