"""Sizes of a reduced problem that a candidate has written into its code.

A reduced problem is another problem: a kernel for exactly 4096 columns fails on 256 of them and may be
right all the same. So a failure of such a candidate says nothing until it was judged at its own sizes.
"""

import ast
import re
from collections.abc import Iterable
from dataclasses import replace

from dice.types import Evidence, Verdict, VerdictKind

_CHANGE = re.compile(r"(\d+) -> \d+$")
_NUMBER = re.compile(r"(?<![\w.])(\d+)(?:[uUlL]*)(?![\w])")
_REMARK = re.compile(r"/\*.*?\*/|//[^\n]*", re.DOTALL)
_SHIFT = re.compile(r"(?<![\w.])1[uUlL]*\s*<<\s*(\d+)")

DOUBTFUL = frozenset(
    {VerdictKind.WRONG, VerdictKind.UNSAFE, VerdictKind.CRASHED, VerdictKind.LAUNCH_ERROR}
)
"""Kinds that a size written into the code may explain."""


def unreduced(code: str, changes: Iterable[str]) -> frozenset[int]:
    """Numbers in `code` that were sizes of the problem before `changes` ("N 4096 -> 256") shrank it."""
    originals = {int(match[1]) for change in changes if (match := _CHANGE.search(change))}
    code = _without_remarks(code)
    written = {int(text) for text in _NUMBER.findall(code) if len(text) < 12}
    written |= {1 << int(text) for text in _SHIFT.findall(code) if len(text) < 3}
    return frozenset(originals & written)


def _without_remarks(code: str) -> str:
    """Python and CUDA source without comments and docstrings, which may tell sizes and decide nothing."""
    try:
        tree = ast.parse(code)
    except (SyntaxError, ValueError, RecursionError):
        return code
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(
            node
        ):
            node.body[0] = ast.Pass()
    return _REMARK.sub(" ", ast.unparse(tree).replace("\\n", "\n"))


def untestable(verdict: Verdict, sizes: Iterable[int]) -> Verdict:
    """The verdict on a candidate that can only be judged at sizes which do not fit this machine."""
    listed = ", ".join(str(size) for size in sorted(sizes))
    evidence = Evidence(
        kind="hard_coded_sizes",
        message=f"it failed on the reduced problem and has the unreduced {listed} in its code: "
        "only a GPU can judge it",
        details={"sizes": sorted(sizes)},
    )
    return replace(
        verdict,
        kind=VerdictKind.UNTESTABLE,
        evidence=(evidence, *verdict.evidence),
        attribution=None,
    )
