"""Split a CUDA source: host text with launch stubs, device text without torch.

The host text is C++ for g++. A kernel keeps its signature, and its body becomes a stub that launches it,
as nvcc's own host code does: template arguments are deduced and arguments converted by the compiler, and
the stubs that an object file defines are exactly the kernel instantiations that it needs. The device
text is the same source without host functions and torch's headers. Every line keeps its number in both.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from dice.toolchain.edits import Edit, apply_edits, line_breaks
from dice.toolchain.launches import launches
from dice.toolchain.parse import ParsedSource, declared_name, descend, includes, text_of

_LOCAL = "inline namespace dice_local "
"""Stands for an anonymous namespace, whose names would differ between the two compilers."""
_TORCH = re.compile(
    r"\b(?:torch|at|c10|std|py|pybind11|cudaStream_t|cudaError_t|cublas\w+|cudnn\w+)\b"
)
_DEVICE_HEADERS = re.compile(
    r"^[<\"](?:cuda\w*\.h|cuda_fp\d+\.hpp?|cooperative_groups(?:/[\w/]+)?\.h|cub/.*|cuda/.*|mma\.h|"
    r"math_constants\.h|device_functions\.h|device_launch_parameters\.h|vector_types\.h|curand_kernel\.h|"
    r"c?math(?:\.h)?|c?float(?:\.h)?|limits|climits|limits\.h|cstdint|stdint\.h|algorithm|type_traits|"
    r"cstdio|stdio\.h|cassert|assert\.h|cstddef|stddef\.h|utility|functional|thrust/.*)[>\"]$"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """One source in two halves."""

    host: str
    device: str
    kernels: frozenset[str]
    """Unqualified names of the `__global__` functions defined."""
    templates: bool
    """Whether a kernel is a template: its instantiations are known only once the host is compiled."""
    variables: tuple[str, ...]
    """`__constant__` and `__device__` variables at namespace scope."""


def split_source(source: ParsedSource, drop: tuple[tuple[int, int], ...] = ()) -> Split:
    """Split a parsed source. `drop` are byte ranges to blank in both halves (the module definition)."""
    blanks = [_blank(source, start, end) for start, end in drop]
    items = list(_items(source.root, False))
    host, device = list(blanks), list(blanks)
    for region in source.regions:
        for one in launches(region):
            host.extend(one)
    names: list[str] = []
    templates = False
    for item in items:
        marks = _marks(item.node)
        if item.node.type == "namespace_definition":
            for edits in (host, device):
                edits.append(_named(item.node))
            continue
        if "__global__" in marks and item.function is not None:
            if item.body is not None:
                names.append(_base_name(item.function))
                templates = templates or item.template is not None
                host.append(_stub(source, item))
            for edits in (host, device):
                edits.extend(_without_static(item.node))
            continue
        if "__device__" in marks or "__constant__" in marks:
            if item.body is not None and "__host__" not in marks:
                host.append(_declaration(source, item.body))
            if item.function is None:
                for edits in (host, device):
                    edits.extend(_without_static(item.node))
            continue
        host.extend(_device_methods(source, item.node))
        if not _belongs_on_device(source, item):
            device.append(_blank(source, item.outer.start_byte, item.outer.end_byte))
    device.extend(
        _blank(source, include.start, include.end)
        for include in includes(source)
        if not _DEVICE_HEADERS.match(include.path)
    )
    return Split(
        host=apply_edits(source.text, host),
        device=apply_edits(source.text, device),
        kernels=frozenset(names),
        templates=templates,
        variables=tuple(_variables(items)),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A declaration at namespace scope: its node, the template around it, its function if it is one."""

    node: Node
    outer: Node
    template: Node | None
    function: Node | None
    body: Node | None


def _items(node: Node, inside: bool) -> Iterator[_Item]:
    for child in node.children:
        if child.type == "namespace_definition":
            body = child.child_by_field_name("body")
            if child.child_by_field_name("name") is None:
                yield _item(child, child, None)
            if body is not None:
                yield from _items(body, inside)
        elif child.type in ("linkage_specification", "declaration_list", "ERROR") or (
            child.type.startswith("preproc_if") or child.type.startswith("preproc_el")
        ):
            yield from _items(child, inside)
        elif child.type == "template_declaration":
            inner = [one for one in child.named_children if one.type != "comment"][-1]
            yield _item(inner, child, child)
        elif child.is_named and child.type not in ("comment",) and "preproc" not in child.type:
            yield _item(child, child, None)


def _item(node: Node, outer: Node, template: Node | None) -> _Item:
    function = None
    if node.type in ("function_definition", "declaration"):
        function = next((one for one in descend_to_function(node)), None)
    body = node.child_by_field_name("body") if node.type == "function_definition" else None
    return _Item(node=node, outer=outer, template=template, function=function, body=body)


def descend_to_function(node: Node) -> Iterator[Node]:
    """The function declarator of a declaration, if it declares a function."""
    inner = node.child_by_field_name("declarator")
    while inner is not None:
        if inner.type == "function_declarator":
            yield inner
            return
        if inner.type not in ("pointer_declarator", "reference_declarator"):
            return
        inner = inner.named_children[-1] if inner.named_children else None


def _marks(node: Node) -> set[str]:
    """`__global__` and the like among a declaration's specifiers (not inside its body)."""
    found: set[str] = set()
    for child in node.children:
        if child.type in ("compound_statement", "field_declaration_list", "declaration_list"):
            continue
        for one in descend(child):
            if one.child_count == 0 and one.text is not None and one.text.startswith(b"__"):
                found.add(one.text.decode())
    return found & {"__global__", "__device__", "__host__", "__constant__", "__forceinline__"}


def _base_name(function: Node) -> str:
    return text_of(function.child_by_field_name("declarator")).rsplit("::", 1)[-1]


def _blank(source: ParsedSource, start: int, end: int) -> Edit:
    return Edit(start, end, line_breaks(source.text[start:end]))


def _named(node: Node) -> Edit:
    keyword = node.children[0]
    if keyword.type == "inline":
        keyword = node.children[1]
    return Edit(keyword.start_byte, keyword.end_byte, _LOCAL)


def _without_static(node: Node) -> list[Edit]:
    """A static kernel or variable becomes a global one, whose name both compilers agree on."""
    return [
        Edit(child.start_byte, child.end_byte, " ")
        for child in node.children
        if child.text in (b"static", b"inline", b"__inline__", b"__forceinline__")
    ]


def _declaration(source: ParsedSource, body: Node) -> Edit:
    text = line_breaks(source.text[body.start_byte : body.end_byte])
    return Edit(body.start_byte, body.end_byte, ";" + text)


def _stub(source: ParsedSource, item: _Item) -> Edit:
    """The host side of a kernel: `{ launch(own address, addresses of the arguments) }`."""
    assert item.function is not None
    assert item.body is not None
    parameters = item.function.child_by_field_name("parameters")
    assert parameters is not None
    names = []
    for one in parameters.named_children:
        if one.type in ("parameter_declaration", "optional_parameter_declaration"):
            declarator = one.child_by_field_name("declarator")
            name = declared_name(declarator) if declarator is not None else None
            if name is not None:
                names.append(text_of(name))
            elif text_of(one).strip() != "void":
                names.append("")
    own = _base_name(item.function)
    if item.template is not None:
        own += f"<{', '.join(_template_arguments(item.template))}>"
    types = ", ".join(f"::dice::parameter_t<decltype({name})>" for name in names)
    pointers = "".join(f"(void*)&{name}, " for name in names)
    code = (
        f"{{ void* dice_arguments[] = {{{pointers}nullptr}}; ::dice::launch("
        f"(const void*)static_cast<void (*)({types})>(&{own}), dice_arguments); }}"
    )
    if "" in names:
        code = "{ #error a kernel with an unnamed parameter does not split }"
    text = line_breaks(source.text[item.body.start_byte : item.body.end_byte])
    return Edit(item.body.start_byte, item.body.end_byte, code + text)


def _template_arguments(template: Node) -> list[str]:
    parameters = template.child_by_field_name("parameters")
    found = []
    for one in parameters.named_children if parameters is not None else ():
        named = [n for n in descend(one) if n.type in ("type_identifier", "identifier")]
        if not named:
            continue
        default = one.child_by_field_name("default_value") or one.child_by_field_name(
            "default_type"
        )
        if default is not None:
            named = [n for n in named if n.start_byte < default.start_byte]
        name = text_of(named[-1])
        found.append(name + ("..." if "variadic" in one.type else ""))
    return found


def _device_methods(source: ParsedSource, node: Node) -> Iterator[Edit]:
    """Member functions for the device only lose their bodies on the host."""
    if node.type not in ("class_specifier", "struct_specifier", "declaration", "type_definition"):
        return
    for one in descend(node):
        if one.type == "function_definition":
            marks = _marks(one)
            body = one.child_by_field_name("body")
            if "__device__" in marks and "__host__" not in marks and body is not None:
                yield _declaration(source, body)


def _belongs_on_device(source: ParsedSource, item: _Item) -> bool:
    """Whether something without a CUDA mark is needed there: types, constants, constexpr functions."""
    text = source.slice(item.outer.start_byte, item.outer.end_byte)
    if "__device__" in text:
        return True
    if item.function is not None:
        return item.body is not None and "constexpr" in text and not _TORCH.search(text)
    if item.node.type in ("expression_statement", "call_expression"):
        return False
    return not _TORCH.search(text)


def _variables(items: list[_Item]) -> Iterator[str]:
    for item in items:
        if item.node.type != "declaration" or item.function is not None:
            continue
        if _marks(item.node) & {"__constant__", "__device__"}:
            for declarator in item.node.children_by_field_name("declarator"):
                name = declared_name(declarator)
                if name is not None:
                    yield text_of(name)
