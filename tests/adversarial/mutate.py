"""Faults planted into correct candidates, the way people and models make them.

A mutator takes CUDA source and returns every text that differs from it by one fault of its kind. It works on
the syntax tree, so a mutant nearly always compiles. `mutants` plants them into a candidate file: in the
string literals that hold its CUDA source, everything else as it was. Nothing here knows how the judge works.
"""

import ast
import difflib
import itertools
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from dice.toolchain.edits import Edit, apply_edits
from dice.toolchain.parse import ParsedSource, descend, parse, text_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    """One changed text. `line` counts from 1 in that text."""

    text: str
    description: str
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One candidate file with one fault."""

    mutator: str
    description: str
    line: int
    code: str
    place: int
    """Counts the mutants of one mutator in one file, from 0."""


Mutator = Callable[[str], list[Mutation]]
_Finder = Callable[[ParsedSource], Iterator[tuple[Node, list[Edit]]]]
MUTATORS: dict[str, Mutator] = {}

_INTEGERS = re.compile(r"\b(int|long|size_t|unsigned|u?int\d+_t|short|bool|dim3)\b")
_NUMBER = re.compile(r"(\d+\.\d*|\.\d+|\d+(?=[eE.]))([eE][+-]?\d+)?([fF]?)")


def _mutator(name: str) -> Callable[[_Finder], _Finder]:
    """Register what finds the places of one kind of fault."""

    def register(find: _Finder) -> _Finder:
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

        MUTATORS[name] = mutate
        return find

    return register


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


def mutants(code: str) -> list[Mutant]:
    """Every mutant of a candidate file: in each string that holds CUDA or C++ source."""
    found: dict[str, Mutant] = {}
    places: Counter[str] = Counter()
    for start, end in _cuda_literals(code):
        literal = code[start:end]
        before = code[:start].count("\n")
        for name, mutate in MUTATORS.items():
            for one in mutate(literal):
                changed = code[:start] + one.text + code[end:]
                if changed not in found:
                    found[changed] = Mutant(
                        mutator=name,
                        description=one.description,
                        line=before + one.line,
                        code=changed,
                        place=places[name],
                    )
                    places[name] += 1
    return list(found.values())


def difference(original: str, changed: str) -> str:
    """The changed lines of a file, as a diff without context."""
    lines = difflib.unified_diff(original.splitlines(), changed.splitlines(), n=0, lineterm="")
    return "\n".join(list(lines)[2:])


def sample(files: dict[str, str], count: int, seed: int) -> list[tuple[str, Mutant]]:
    """`count` mutants with their file's name, spread over mutators first and files second.

    Mutators take turns; each takes a file that has given the fewest so far, then one of its places there.
    """
    draw = random.Random(seed)
    left: dict[str, dict[str, list[Mutant]]] = {name: {} for name in MUTATORS}
    for file, code in sorted(files.items()):
        for mutant in mutants(code):
            left[mutant.mutator].setdefault(file, []).append(mutant)
    taken: Counter[str] = Counter()
    chosen: list[tuple[str, Mutant]] = []
    while len(chosen) < count and any(left.values()):
        for choices in left.values():
            if not choices or len(chosen) == count:
                continue
            fewest = min(taken[file] for file in choices)
            file = draw.choice([one for one in choices if taken[one] == fewest])
            mutant = choices[file].pop(draw.randrange(len(choices[file])))
            if not choices[file]:
                del choices[file]
            taken[file] += 1
            chosen.append((file, mutant))
    return chosen


def _cuda_literals(code: str) -> Iterator[tuple[int, int]]:
    """Ranges, in characters, of the string literals with kernels or wrappers in them."""
    starts = [0]
    for line in code.splitlines(keepends=True):
        starts.append(starts[-1] + len(line.encode()))
    data = code.encode()
    for node in ast.walk(ast.parse(code)):
        if not (isinstance(node, ast.Constant) and isinstance(node.value, str)):
            continue
        if "{" not in node.value or not re.search(r"__global__|torch::|at::", node.value):
            continue
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        first = starts[node.lineno - 1] + node.col_offset
        last = starts[node.end_lineno - 1] + node.end_col_offset
        text = data[first:last].decode()
        opening = re.match(r"[rR]?(\"\"\"|'''|\"|')", text)
        if (
            opening is not None and len(opening[1]) == 3
        ):  # an f-string or a one-liner has other rules
            begin = len(data[:first].decode()) + opening.end()
            yield begin, begin + len(text) - opening.end() - 3


# What the finders ask of the tree.


def _functions(source: ParsedSource, *, device: bool) -> Iterator[Node]:
    """Bodies of functions that run on the device, or on the host."""
    for node in descend(source.root):
        body = node.child_by_field_name("body") if node.type == "function_definition" else None
        if body is not None:
            head = source.slice(node.start_byte, body.start_byte)
            if ("__global__" in head or "__device__" in head) == device:
                yield body


def _nodes(source: ParsedSource, *kinds: str, device: bool = True) -> Iterator[Node]:
    for body in _functions(source, device=device):
        for node in descend(body):
            if node.type in kinds:
                yield node


def _field(node: Node, name: str) -> Node:
    child = node.child_by_field_name(name)
    assert child is not None
    return child


def _above(node: Node) -> Iterator[Node]:
    parent = node.parent
    while parent is not None:
        yield parent
        parent = parent.parent


def _is_index(node: Node) -> bool:
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
            return bool(_INTEGERS.search(text_of(_field(one, "type")))) or "*" in text_of(one)[:24]
        if one.type == "assignment_expression" and below == _field(one, "right"):
            target = text_of(_field(one, "left"))
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


def _binary(
    source: ParsedSource, operators: tuple[str, ...], *, device: bool = True
) -> Iterator[Node]:
    for node in _nodes(source, "binary_expression", device=device):
        if text_of(_field(node, "operator")) in operators:
            yield node


def _replace(node: Node, text: str) -> Edit:
    return Edit(node.start_byte, node.end_byte, text)


def _arguments(call: Node) -> list[Node]:
    return [one for one in _field(call, "arguments").named_children if one.type != "comment"]


def _calls(source: ParsedSource, pattern: str, *, device: bool = True) -> Iterator[Node]:
    for node in _nodes(source, "call_expression", device=device):
        if re.fullmatch(pattern, text_of(_field(node, "function"))):
            yield node


def _accumulators(source: ParsedSource) -> Iterator[tuple[Node, Node]]:
    """Floating-point locals that a loop or a step updates: the init_declarator and its declaration."""
    for body in _functions(source, device=True):
        text = text_of(body)
        for node in descend(body):
            if node.type != "declaration":
                continue
            if text_of(_field(node, "type")) not in ("float", "double", "scalar_t"):
                continue
            for one in node.children_by_field_name("declarator"):
                if one.type != "init_declarator":
                    continue
                name = re.escape(text_of(_field(one, "declarator")))
                if re.search(rf"\b{name}\s*(\+=|\*=|=\s*\w*(max|min)\w*\()", text):
                    yield one, node


# Bounds.


@_mutator("bound_inclusive")
def _bound_inclusive(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("<", ">=")):
        if _is_index(node):
            operator = _field(node, "operator")
            yield node, [_replace(operator, {"<": "<=", ">=": ">"}[text_of(operator)])]


@_mutator("bound_short")
def _bound_short(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("<", ">=")):
        if _is_index(node):
            end = _field(node, "right").end_byte
            yield node, [Edit(end, end, " - 1")]


@_mutator("guard_dropped")
def _guard_dropped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _nodes(source, "if_statement"):
        condition = _field(_field(node, "condition"), "value")
        leaves = _field(node, "consequence")
        if condition.type == "binary_expression":
            returns = "return" in text_of(leaves)[:12]
            yield _field(node, "condition"), [_replace(condition, "false" if returns else "true")]


@_mutator("comparison_flipped")
def _comparison_flipped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    flipped = {"<": ">", ">": "<", "==": "!=", "<=": ">=", ">=": "<="}
    for node in _binary(source, tuple(flipped)):
        if not any(one.type == "for_statement" for one in [node.parent]):
            operator = _field(node, "operator")
            yield node, [_replace(operator, flipped[text_of(operator)])]


@_mutator("loop_starts_late")
def _loop_starts_late(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _nodes(source, "for_statement"):
        start = node.child_by_field_name("initializer")
        for one in [] if start is None else descend(start):
            if one.type == "init_declarator" and text_of(_field(one, "value")).isdigit():
                value = _field(one, "value")
                yield start or one, [_replace(value, str(int(text_of(value)) + 1))]


@_mutator("loop_stride")
def _loop_stride(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _nodes(source, "for_statement"):
        update = node.child_by_field_name("update")
        if update is not None and update.type == "assignment_expression":
            right = _field(update, "right")
            operator = text_of(_field(update, "operator"))
            if operator == "+=":
                yield update, [Edit(right.end_byte, right.end_byte, " + 1")]
            elif operator in (">>=", "/="):
                yield (
                    update,
                    [_replace(right, str(int(text_of(right)) * 2))]
                    if text_of(right).isdigit()
                    else [],
                )
        elif update is not None and update.type == "update_expression":
            yield update, [_replace(update, f"{text_of(_field(update, 'argument'))} += 2")]


# Threads.


@_mutator("barrier_removed")
def _barrier_removed(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, "__syncthreads|__syncwarp"):
        yield node, [_replace(node, "")]


@_mutator("shuffle_changed")
def _shuffle_changed(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, r"__shfl_\w+_sync"):
        arguments = _arguments(node)
        yield node, [_replace(arguments[2], f"({text_of(arguments[2])}) / 2")]
        if text_of(arguments[0]).lower().startswith("0xffffffff"):
            yield node, [_replace(arguments[0], "0x0000ffff")]


@_mutator("atomic_plain")
def _atomic_plain(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, "atomicAdd"):
        where, what = (text_of(one) for one in _arguments(node)[:2])
        yield node, [_replace(node, f"*({where}) += {what}")]


@_mutator("dimension_swapped")
def _dimension_swapped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _nodes(source, "field_expression"):
        owner, field = text_of(_field(node, "argument")), _field(node, "field")
        if owner in ("threadIdx", "blockIdx") and text_of(field) in "xyz":
            yield node, [_replace(field, {"x": "y", "y": "x", "z": "y"}[text_of(field)])]


# Addresses.


@_mutator("index_off_by_one")
def _index_off_by_one(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _nodes(source, "subscript_expression"):
        end = _field(node, "indices").end_byte - 1
        yield node, [Edit(end, end, " + 1")]


@_mutator("strides_swapped")
def _strides_swapped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("+",)):
        left, right = _field(node, "left"), _field(node, "right")
        scaled = left.type == "binary_expression" and text_of(_field(left, "operator")) == "*"
        if scaled and _is_index(node) and right.type in ("identifier", "field_expression"):
            inner = _field(left, "left")
            yield node, [_replace(inner, text_of(right)), _replace(right, text_of(inner))]


@_mutator("index_term_dropped")
def _index_term_dropped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("+",)):
        if _is_index(node) and not text_of(_field(node, "right")).isdigit():
            yield node, [_replace(node, text_of(_field(node, "left")))]


# Arithmetic.


@_mutator("operator_changed")
def _operator_changed(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    changed = {"+": "-", "-": "+", "*": "+", "/": "*"}
    for node in _binary(source, tuple(changed)):
        if not _is_index(node):
            operator = _field(node, "operator")
            yield node, [_replace(operator, changed[text_of(operator)])]


@_mutator("term_omitted")
def _term_omitted(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("+", "-")):
        if not _is_index(node) and not _is_epsilon(_field(node, "right")):
            yield node, [_replace(node, text_of(_field(node, "left")))]


def _is_epsilon(node: Node) -> bool:
    text = text_of(node)
    return "eps" in text.lower() or re.fullmatch(r"[\d.]+[eE]-\d+[fF]?", text) is not None


@_mutator("epsilon_dropped")
def _epsilon_dropped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("+",)):
        if _is_epsilon(_field(node, "right")):
            yield node, [_replace(node, text_of(_field(node, "left")))]


@_mutator("divisor_off_by_one")
def _divisor_off_by_one(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("/",)):
        right = _field(node, "right")
        if not _is_index(node) and not _NUMBER.fullmatch(text_of(right)):
            yield node, [_replace(right, f"({text_of(right)} - 1)")]


@_mutator("constant_changed")
def _constant_changed(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _nodes(source, "number_literal"):
        match = _NUMBER.fullmatch(text_of(node))
        if match is not None and not _is_epsilon(node):
            value = float(text_of(node).rstrip("fF"))
            yield (
                node,
                [_replace(node, f"{value * 1.02:.6g}{match[3]}" if value else f"0.01{match[3]}")],
            )


@_mutator("function_swapped")
def _function_swapped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    others = {"fmaxf": "fminf", "fminf": "fmaxf", "max": "min", "min": "max", "expf": "exp2f"}
    others |= {"logf": "log2f", "sqrtf": "fabsf", "rsqrtf": "1.0f / ", "tanhf": "atanf"}
    others |= {"fabsf": "", "erff": "tanhf", "log1pf": "logf", "expm1f": "expf", "powf": "fmaxf"}
    for node in _calls(source, r"\w+"):
        name = _field(node, "function")
        if text_of(name) in others:
            yield node, [_replace(name, others[text_of(name)])]


@_mutator("clamp_removed")
def _clamp_removed(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, r"fmaxf|fminf|max|min"):
        arguments = _arguments(node)
        for kept, limit in (arguments, arguments[::-1]):
            if limit.type == "number_literal":
                yield node, [_replace(node, text_of(kept))]


# Accumulators.


@_mutator("initial_value")
def _initial_value(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node, _ in _accumulators(source):
        value = _field(node, "value")
        text = text_of(value)
        if re.fullmatch(r"0(\.0*)?f?", text):
            yield node, [_replace(value, "1.0f")]
        elif re.search(r"INFINITY|FLT_MAX|[eE]\d\d|1\.0?f?$", text):
            yield node, [_replace(value, "0.0f")]


@_mutator("uninitialised")
def _uninitialised(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node, _ in _accumulators(source):
        yield node, [Edit(_field(node, "declarator").end_byte, node.end_byte, "")]


@_mutator("integer_accumulator")
def _integer_accumulator(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node, declaration in _accumulators(source):
        if "INF" not in text_of(node) and "MAX" not in text_of(node):
            yield declaration, [_replace(_field(declaration, "type"), "int")]


@_mutator("half_accumulator")
def _half_accumulator(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    names = {text_of(_field(node, "declarator")) for node, _ in _accumulators(source)}
    for node in _nodes(source, "assignment_expression"):
        target = text_of(_field(node, "left"))
        if text_of(_field(node, "operator")) == "+=" and target in names:
            sum_ = f"{target} + ({text_of(_field(node, 'right'))})"
            changed = f"{target} = __half2float(__float2half({sum_}))"
            yield node, [Edit(0, 0, "\n#include <cuda_fp16.h>"), _replace(node, changed)]


# Stores.


@_mutator("store_skipped")
def _store_skipped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _nodes(source, "expression_statement"):
        inner = node.named_children[0] if node.named_children else node
        if inner.type == "assignment_expression":
            left = _field(inner, "left")
            if left.type == "subscript_expression" and text_of(_field(inner, "operator")) == "=":
                index = text_of(_field(left, "indices"))[1:-1]
                yield node, [Edit(node.start_byte, node.start_byte, f"if (({index}) != 1) ")]


# The host's side.


@_mutator("grid_without_ceiling")
def _grid_without_ceiling(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _binary(source, ("/",), device=False):
        match = re.fullmatch(
            r"\((.+?) \+ [^()]+ - 1\)|\((.+?) \+ \d+\)", text_of(_field(node, "left"))
        )
        if match is not None:
            yield node, [_replace(_field(node, "left"), f"({match[1] or match[2]})")]


@_mutator("wrong_axis")
def _wrong_axis(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, r"[\w.]+\.size", device=False):
        for one in _arguments(node)[:1]:
            if text_of(one).isdigit():
                yield (
                    node,
                    [_replace(one, str(int(text_of(one)) - 1 if text_of(one) != "0" else 1))],
                )


@_mutator("wrong_count")
def _wrong_count(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, r"[\w.]+\.numel", device=False):
        yield node, [Edit(node.end_byte, node.end_byte, " - 1")]


@_mutator("wrong_output_shape")
def _wrong_output_shape(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, r"(torch|at)::(empty|zeros|ones|full)", device=False):
        for sizes in _arguments(node)[:1]:
            parts = sizes.named_children if sizes.type == "initializer_list" else []
            if parts:
                yield node, [Edit(parts[-1].end_byte, parts[-1].end_byte, " + 1")]
            if len(parts) > 1:
                first, second = parts[0], parts[1]
                yield node, [_replace(first, text_of(second)), _replace(second, text_of(first))]


@_mutator("contiguous_missing")
def _contiguous_missing(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, r"[\w.]+\.contiguous", device=False):
        yield node, [_replace(node, text_of(_field(_field(node, "function"), "argument")))]


@_mutator("zeros_forgotten")
def _zeros_forgotten(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    for node in _calls(source, r"(torch|at)::(zeros|zeros_like)", device=False):
        name = _field(node, "function")
        yield node, [_replace(name, text_of(name).replace("zeros", "empty"))]


@_mutator("arguments_swapped")
def _arguments_swapped(source: ParsedSource) -> Iterator[tuple[Node, list[Edit]]]:
    """Two neighbours of one kind in a launch: pointers, or numbers."""
    for node in _nodes(source, "call_expression", device=False):
        if any(one.type == "kernel_call_syntax" for one in node.children):
            found = _arguments(node)
            for one, other in itertools.pairwise(found):
                if ("data_ptr" in text_of(one)) == ("data_ptr" in text_of(other)):
                    swapped = [_replace(one, text_of(other)), _replace(other, text_of(one))]
                    yield node, swapped
