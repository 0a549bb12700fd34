"""Faults in kernels and device functions."""

import re

from dice.toolchain.edits import Edit
from dice.toolchain.parse import ParsedSource, descend, text_of
from tests.adversarial.faults import (
    NUMBER,
    Places,
    accumulators,
    arguments,
    binary,
    calls,
    field,
    is_epsilon,
    is_index,
    mutator,
    nodes,
    replace,
)

# Bounds.


@mutator
def bound_inclusive(source: ParsedSource) -> Places:
    for node in binary(source, ("<", ">=")):
        if is_index(node):
            operator = field(node, "operator")
            yield node, [replace(operator, {"<": "<=", ">=": ">"}[text_of(operator)])]


@mutator
def bound_short(source: ParsedSource) -> Places:
    for node in binary(source, ("<", ">=")):
        if is_index(node):
            end = field(node, "right").end_byte
            yield node, [Edit(end, end, " - 1")]


@mutator
def guard_dropped(source: ParsedSource) -> Places:
    for node in nodes(source, "if_statement"):
        condition = field(field(node, "condition"), "value")
        leaves = field(node, "consequence")
        if condition.type == "binary_expression":
            returns = "return" in text_of(leaves)[:12]
            yield field(node, "condition"), [replace(condition, "false" if returns else "true")]


@mutator
def comparison_flipped(source: ParsedSource) -> Places:
    flipped = {"<": ">", ">": "<", "==": "!=", "<=": ">=", ">=": "<="}
    for node in binary(source, tuple(flipped)):
        if node.parent is None or node.parent.type != "for_statement":
            operator = field(node, "operator")
            yield node, [replace(operator, flipped[text_of(operator)])]


@mutator
def loop_starts_late(source: ParsedSource) -> Places:
    for node in nodes(source, "for_statement"):
        start = node.child_by_field_name("initializer")
        if start is None:
            continue
        for one in descend(start):
            if one.type == "init_declarator" and text_of(field(one, "value")).isdigit():
                value = field(one, "value")
                yield start, [replace(value, str(int(text_of(value)) + 1))]


@mutator
def loop_stride(source: ParsedSource) -> Places:
    for node in nodes(source, "for_statement"):
        update = node.child_by_field_name("update")
        if update is not None and update.type == "update_expression":
            yield update, [replace(update, f"{text_of(field(update, 'argument'))} += 2")]
        elif update is not None and update.type == "assignment_expression":
            right, operator = field(update, "right"), text_of(field(update, "operator"))
            if operator == "+=":
                yield update, [Edit(right.end_byte, right.end_byte, " + 1")]
            elif operator in (">>=", "/=") and text_of(right).isdigit():
                yield update, [replace(right, str(int(text_of(right)) * 2))]


# Threads.


@mutator
def barrier_removed(source: ParsedSource) -> Places:
    for node in calls(source, "__syncthreads|__syncwarp"):
        yield node, [replace(node, "")]


@mutator
def shuffle_changed(source: ParsedSource) -> Places:
    for node in calls(source, r"__shfl_\w+_sync"):
        mask, _, lane = arguments(node)[:3]
        yield node, [replace(lane, f"({text_of(lane)}) / 2")]
        if text_of(mask).lower().startswith("0xffffffff"):
            yield node, [replace(mask, "0x0000ffff")]


@mutator
def atomic_plain(source: ParsedSource) -> Places:
    for node in calls(source, "atomicAdd"):
        where, what = (text_of(one) for one in arguments(node)[:2])
        yield node, [replace(node, f"*({where}) += {what}")]


@mutator
def dimension_swapped(source: ParsedSource) -> Places:
    for node in nodes(source, "field_expression"):
        owner, axis = text_of(field(node, "argument")), field(node, "field")
        if owner in ("threadIdx", "blockIdx"):
            yield node, [replace(axis, {"x": "y", "y": "x", "z": "y"}[text_of(axis)])]


# Addresses.


@mutator
def index_off_by_one(source: ParsedSource) -> Places:
    for node in nodes(source, "subscript_expression"):
        end = field(node, "indices").end_byte - 1
        yield node, [Edit(end, end, " + 1")]


@mutator
def strides_swapped(source: ParsedSource) -> Places:
    for node in binary(source, ("+",)):
        left, right = field(node, "left"), field(node, "right")
        scaled = left.type == "binary_expression" and text_of(field(left, "operator")) == "*"
        if scaled and is_index(node) and right.type in ("identifier", "field_expression"):
            inner = field(left, "left")
            yield node, [replace(inner, text_of(right)), replace(right, text_of(inner))]


@mutator
def index_term_dropped(source: ParsedSource) -> Places:
    for node in binary(source, ("+",)):
        if is_index(node) and not text_of(field(node, "right")).isdigit():
            yield node, [replace(node, text_of(field(node, "left")))]


# Arithmetic.


@mutator
def operator_changed(source: ParsedSource) -> Places:
    changed = {"+": "-", "-": "+", "*": "+", "/": "*"}
    for node in binary(source, tuple(changed)):
        if not is_index(node):
            operator = field(node, "operator")
            yield node, [replace(operator, changed[text_of(operator)])]


@mutator
def term_omitted(source: ParsedSource) -> Places:
    for node in binary(source, ("+", "-")):
        if not is_index(node) and not is_epsilon(field(node, "right")):
            yield node, [replace(node, text_of(field(node, "left")))]


@mutator
def epsilon_dropped(source: ParsedSource) -> Places:
    for node in binary(source, ("+",)):
        if is_epsilon(field(node, "right")):
            yield node, [replace(node, text_of(field(node, "left")))]


@mutator
def divisor_off_by_one(source: ParsedSource) -> Places:
    for node in binary(source, ("/",)):
        right = field(node, "right")
        if not is_index(node) and not NUMBER.fullmatch(text_of(right)):
            yield node, [replace(right, f"({text_of(right)} - 1)")]


@mutator
def constant_changed(source: ParsedSource) -> Places:
    for node in nodes(source, "number_literal"):
        match = NUMBER.fullmatch(text_of(node))
        if match is not None and not is_epsilon(node):
            value = float(text_of(node).rstrip("fF"))
            yield (
                node,
                [replace(node, f"{value * 1.02:.6g}{match[3]}" if value else f"0.01{match[3]}")],
            )


@mutator
def function_swapped(source: ParsedSource) -> Places:
    others = {"fmaxf": "fminf", "fminf": "fmaxf", "max": "min", "min": "max", "expf": "exp2f"}
    others |= {"logf": "log2f", "sqrtf": "fabsf", "rsqrtf": "1.0f / ", "tanhf": "atanf"}
    others |= {"fabsf": "", "erff": "tanhf", "log1pf": "logf", "expm1f": "expf", "powf": "fmaxf"}
    for node in calls(source, r"\w+"):
        name = field(node, "function")
        if text_of(name) in others:
            yield node, [replace(name, others[text_of(name)])]


@mutator
def clamp_removed(source: ParsedSource) -> Places:
    for node in calls(source, r"fmaxf|fminf|max|min"):
        one, other = arguments(node)[:2]
        for kept, limit in ((one, other), (other, one)):
            if limit.type == "number_literal":
                yield node, [replace(node, text_of(kept))]


# Accumulators.


@mutator
def initial_value(source: ParsedSource) -> Places:
    for node, _ in accumulators(source):
        value = field(node, "value")
        text = text_of(value)
        if re.fullmatch(r"0(\.0*)?f?", text):
            yield node, [replace(value, "1.0f")]
        elif re.search(r"INFINITY|FLT_MAX|[eE]\d\d|1\.0?f?$", text):
            yield node, [replace(value, "0.0f")]


@mutator
def uninitialised(source: ParsedSource) -> Places:
    for node, _ in accumulators(source):
        yield node, [Edit(field(node, "declarator").end_byte, node.end_byte, "")]


@mutator
def integer_accumulator(source: ParsedSource) -> Places:
    for node, declaration in accumulators(source):
        if "INF" not in text_of(node) and "MAX" not in text_of(node):
            yield declaration, [replace(field(declaration, "type"), "int")]


@mutator
def half_accumulator(source: ParsedSource) -> Places:
    names = {text_of(field(node, "declarator")) for node, _ in accumulators(source)}
    for node in nodes(source, "assignment_expression"):
        target = text_of(field(node, "left"))
        if text_of(field(node, "operator")) == "+=" and target in names:
            sum_ = f"{target} + ({text_of(field(node, 'right'))})"
            changed = f"{target} = __half2float(__float2half({sum_}))"
            yield node, [Edit(0, 0, "\n#include <cuda_fp16.h>"), replace(node, changed)]


# Stores.


@mutator
def store_skipped(source: ParsedSource) -> Places:
    for node in nodes(source, "expression_statement"):
        inner = node.named_children[0] if node.named_children else node
        if inner.type == "assignment_expression":
            left = field(inner, "left")
            if left.type == "subscript_expression" and text_of(field(inner, "operator")) == "=":
                index = text_of(field(left, "indices"))[1:-1]
                yield node, [Edit(node.start_byte, node.start_byte, f"if (({index}) != 1) ")]
