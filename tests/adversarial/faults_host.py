"""Faults in the host code around kernels."""

import itertools
import re

from dice.toolchain.edits import Edit
from dice.toolchain.parse import ParsedSource, text_of
from tests.adversarial.faults import (
    Places,
    arguments,
    binary,
    calls,
    field,
    mutator,
    nodes,
    replace,
)


@mutator
def grid_without_ceiling(source: ParsedSource) -> Places:
    for node in binary(source, ("/",), device=False):
        match = re.fullmatch(
            r"\((.+?) \+ [^()]+ - 1\)|\((.+?) \+ \d+\)", text_of(field(node, "left"))
        )
        if match is not None:
            yield node, [replace(field(node, "left"), f"({match[1] or match[2]})")]


@mutator
def wrong_axis(source: ParsedSource) -> Places:
    for node in calls(source, r"[\w.]+\.size", device=False):
        for one in arguments(node)[:1]:
            if text_of(one).isdigit():
                other = "1" if text_of(one) == "0" else str(int(text_of(one)) - 1)
                yield node, [replace(one, other)]


@mutator
def wrong_count(source: ParsedSource) -> Places:
    for node in calls(source, r"[\w.]+\.numel", device=False):
        yield node, [Edit(node.end_byte, node.end_byte, " - 1")]


@mutator
def wrong_output_shape(source: ParsedSource) -> Places:
    for node in calls(source, r"(torch|at)::(empty|zeros|ones|full)", device=False):
        for sizes in arguments(node)[:1]:
            parts = sizes.named_children if sizes.type == "initializer_list" else []
            if parts:
                yield node, [Edit(parts[-1].end_byte, parts[-1].end_byte, " + 1")]
            if len(parts) > 1:
                first, second = parts[0], parts[1]
                yield node, [replace(first, text_of(second)), replace(second, text_of(first))]


@mutator
def contiguous_missing(source: ParsedSource) -> Places:
    for node in calls(source, r"[\w.]+\.contiguous", device=False):
        yield node, [replace(node, text_of(field(field(node, "function"), "argument")))]


@mutator
def zeros_forgotten(source: ParsedSource) -> Places:
    for node in calls(source, r"(torch|at)::(zeros|zeros_like)", device=False):
        name = field(node, "function")
        yield node, [replace(name, text_of(name).replace("zeros", "empty"))]


@mutator
def arguments_swapped(source: ParsedSource) -> Places:
    """Two neighbours of one kind in a launch: pointers, or numbers."""
    for node in nodes(source, "call_expression", device=False):
        if any(one.type == "kernel_call_syntax" for one in node.children):
            found = arguments(node)
            for one, other in itertools.pairwise(found):
                if ("data_ptr" in text_of(one)) == ("data_ptr" in text_of(other)):
                    swapped = [replace(one, text_of(other)), replace(other, text_of(one))]
                    yield node, swapped
