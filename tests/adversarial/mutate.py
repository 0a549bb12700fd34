"""Faults planted into correct candidates, the way people and models make them.

`mutants` plants the faults of every mutator (see `faults`) into a candidate file: in the string literals that
hold its CUDA source, everything else as it was. The faults are made on the syntax tree, so a mutant nearly
always compiles. Nothing here knows how the judge works.
"""

import ast
import difflib
import random
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tests.adversarial import faults_device, faults_host
from tests.adversarial.faults import MUTATORS, Mutation

__all__ = ["MUTATORS", "Mutant", "Mutation", "difference", "mutants", "sample"]

assert faults_device
assert faults_host


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One candidate file with one fault."""

    mutator: str
    description: str
    line: int
    code: str
    place: int
    """Counts the mutants of one mutator in one file, from 0."""


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
