"""`__shared__` declarations as references into the thread block's shared memory."""

from collections.abc import Iterator

from tree_sitter import Node

from dice.errors import BuildFailure
from dice.toolchain.edits import Edit, line_breaks
from dice.toolchain.parse import ParsedSource, Region, declared_name, descend, leaves, text_of

_DROPPED = {"__shared__", "static", "extern", "__device__", ";", ","}


def shared_declarations(source: ParsedSource, region: Region) -> Iterator[Edit]:
    """Edits for every `__shared__` declaration of a region.

    Inside a function the variable becomes a reference (dynamic memory: a pointer) of the same name.
    Outside, only its type and key are declared: see `file_scope_uses`.
    """
    for node in descend(region.root):
        if node.type == "declaration" and _is_shared(node):
            start, end = node.start_byte + region.offset, node.end_byte + region.offset
            text = _declaration_text(
                node, at_file_scope=_at_file_scope(node) and not region.in_macro
            )
            yield Edit(start, end, text + line_breaks(source.text[start:end]))


def _is_shared(node: Node) -> bool:
    return any(child.text == b"__shared__" for child in node.children)


def _at_file_scope(node: Node) -> bool:
    parent = node.parent
    while parent is not None:
        if parent.type in ("compound_statement", "function_definition"):
            return False
        parent = parent.parent
    return True


def _declaration_text(node: Node, *, at_file_scope: bool) -> str:
    """C++ for one declaration, all its declarators, on one line."""
    declarators = node.children_by_field_name("declarator")
    names = [declared_name(one) for one in declarators]
    ids = {one.id for one in declarators}
    specifiers = [one for one in node.children if one.id not in ids and one.type != "comment"]
    kept = [one for one in specifiers if text_of(one) not in _DROPPED and not _is_alignment(one)]
    if not names or not kept:
        line = node.start_point.row + 1
        raise BuildFailure(f"cuda_source:{line}: this __shared__ declaration cannot be parsed")
    alignments = [_alignment(one) for one in specifiers if _is_alignment(one)]
    base = f"simt_base_{text_of(names[0])}"
    parts = [f"using {base} = {' '.join(map(_one_line, kept))};"]
    for declarator, identifier in zip(declarators, names, strict=True):
        name, kind = text_of(identifier), f"simt_type_{text_of(identifier)}"
        if declarator.type == "init_declarator":  # CUDA has no initialisers here
            declarator = declarator.child_by_field_name("declarator") or declarator
        if _is_dynamic(node):
            shape = _one_line(declarator, without=identifier).replace("[ ]", "", 1)
            parts.append(f"using {kind} = {base} {shape};")
            if not at_file_scope:
                parts.append(f"{kind}* {name} = ({kind}*)::simt::dyn_shared();")
            continue
        parts.append(f"using {kind} = {base} {_one_line(declarator, without=identifier)};")
        parts.append(f"static char simt_key_{name};")
        if not at_file_scope:
            align = alignments[-1] if alignments else f"alignof({kind})"
            parts.append(f"{kind}& {name} = {_shared_value(name, align)};")
    return " ".join(parts)


def _one_line(node: Node, without: Node | None = None) -> str:
    """The tokens of a node, one of them left out, without comments and line breaks."""
    tokens = (one for one in leaves(node) if without is None or one.id != without.id)
    return " ".join(text_of(one) for one in tokens)


def _is_dynamic(node: Node) -> bool:
    return any(child.text == b"extern" for child in node.children)


def _is_alignment(specifier: Node) -> bool:
    return text_of(specifier).startswith("alignas")


def _alignment(specifier: Node) -> str:
    return (
        _one_line(specifier)
        .removeprefix("alignas")
        .strip()
        .removeprefix("(")
        .removesuffix(")")
        .strip()
    )


def _shared_value(name: str, align: str) -> str:
    kind = f"simt_type_{name}"
    return f'*(::std::add_pointer_t<{kind}>)::simt::shared_var(&simt_key_{name}, sizeof({kind}), {align}, "{name}")'


def file_scope_uses(source: ParsedSource) -> Iterator[Edit]:
    """Edits for the uses of `__shared__` variables that were declared outside any function."""
    values: dict[str, str] = {}
    for node in descend(source.root):
        if node.type == "declaration" and _is_shared(node) and _at_file_scope(node):
            for declarator in node.children_by_field_name("declarator"):
                name = text_of(declared_name(declarator))
                kind = f"simt_type_{name}"
                values[name] = (
                    f"(({kind}*)::simt::dyn_shared())"
                    if _is_dynamic(node)
                    else f"({_shared_value(name, f'alignof({kind})')})"
                )
    if not values:
        return
    for function in descend(source.root):
        body = function.child_by_field_name("body")
        if function.type != "function_definition" or body is None:
            continue
        own = {
            text_of(one) for one in descend(function) if one.type == "identifier" and _declares(one)
        }
        for node in descend(body):
            if node.type == "identifier" and text_of(node) in values.keys() - own:
                yield Edit(node.start_byte, node.end_byte, values[text_of(node)])


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
