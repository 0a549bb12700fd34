"""Make a problem small enough for a CPU, and say what changed.

The numbers that may shrink ("knobs") are module-level integers (also inside tuples and lists) and the
integer literals of `get_inputs` and `get_init_inputs`, equal literals being one knob. The largest knob is
halved until the problem fits; every step must leave a problem whose shapes still work, else the knobs of
equal value are halved together, else the knob stays as it is. Small numbers (kernel sizes, strides,
groups, dimensions) are never touched, odd numbers stay odd, and a number that a vector width divides
keeps being divisible by it. Numbers that halving made equal are parted again where other sizes work: a
kernel that takes one for the other must not pass.
"""

import ast
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from math import gcd

from dice.verify.policy import Policy

SMALLEST = 16
"""Numbers at or below stay, batch sizes apart; others go below only when nothing else is left."""
SMALLEST_BATCH = 2
WARP = 32
_KEPT_NAMES = ("kernel", "stride", "padding", "dilation", "group", "head", "axis")


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """Size of a problem. `error` tells why it does not even run."""

    elements: int = 0
    """Of inputs, weights and outputs."""
    work: int = 0
    """Elements that all operations write."""
    flops: int = 0
    error: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reduced:
    """The problem's code with smaller numbers, and the changes in words ("N 4096 -> 256")."""

    code: str
    changes: tuple[str, ...]
    measured: Measured


@dataclass(slots=True, kw_only=True)
class _Knob:
    name: str
    value: int
    original: int
    sites: list[ast.Constant]
    frozen: bool = False

    def set(self, value: int) -> None:
        self.value = value
        for site in self.sites:
            site.value = value

    @property
    def is_batch(self) -> bool:
        return "batch" in self.name.lower() or self.name.lower() in ("b", "bs")

    def may_halve(self, floor: int) -> bool:
        if self.is_batch:
            return self.halved >= SMALLEST_BATCH
        return self.original > SMALLEST and self.halved >= floor

    @property
    def halved(self) -> int:
        if self.value <= 3:
            return self.value - 1
        if self.value % 2 == 0:
            return self.value // 2
        return (self.value // 2) | 1


def cost(measured: Measured, policy: Policy, *, budget: float = 1.0) -> float:
    """Above 1: too large."""
    return (
        max(
            measured.elements / policy.max_elements,
            measured.work / policy.max_work,
            measured.flops / policy.max_flops,
        )
        / budget
    )


def reduce_code(
    code: str,
    measure: Callable[[str], Measured],
    policy: Policy,
    *,
    budget: float = 1.0,
    keep: frozenset[int] = frozenset(),
) -> Reduced:
    """Shrink `code` until `measure` finds that it fits `budget` times the policy's sizes.

    Sizes in `keep` stay as they are.
    The result may still be too large (see its `measured`); nothing is raised for that.
    """
    measured = measure(code)
    if measured.error is None and cost(measured, policy, budget=budget) <= 1:
        return Reduced(code=code, changes=(), measured=measured)
    tree = _Folded().visit(ast.parse(code))
    knobs = [knob for knob in _find_knobs(tree) if knob.original not in keep]
    deadline = time.monotonic() + policy.reduce_s
    runs, floors = measured.error is None, [SMALLEST, 8, 4]
    while knobs and floors and time.monotonic() < deadline:
        free = [knob for knob in knobs if not knob.frozen and knob.may_halve(floors[0])]
        if not free:
            floors.pop(0)
            continue
        knob = max(free, key=lambda k: (k.value, k.is_batch))
        smaller = _try_halving(tree, knob, knobs, measure)
        if smaller is None:
            knob.frozen = True
            continue
        measured, runs = smaller, True
        if cost(measured, policy, budget=budget) <= 1:
            break

    def fitting(text: str) -> Measured | None:
        size = measure(text)
        small = size.error is None and cost(size, policy, budget=budget) <= 1
        return size if small else None

    if runs and cost(measured, policy, budget=budget) <= 1:
        measured = _part_equals(tree, knobs, measured, fitting, deadline)
    changes = tuple(
        f"{knob.name} {knob.original} -> {knob.value}"
        for knob in knobs
        if knob.value != knob.original
    )
    if not changes or not runs:
        return Reduced(code=code, changes=(), measured=measured)
    return Reduced(code=ast.unparse(tree), changes=changes, measured=measured)


def _part_equals(
    tree: ast.Module,
    knobs: list[_Knob],
    measured: Measured,
    fitting: Callable[[str], Measured | None],
    deadline: float,
) -> Measured:
    """Give numbers that differ in the file different sizes, where such sizes work and fit."""
    ordered = sorted(knobs, key=lambda knob: -knob.original)
    for larger, smaller in combinations(ordered, 2):
        if larger.value != smaller.value or larger.original == smaller.original:
            continue
        for knob, value in _other_sizes(larger, smaller):
            twins = [k for k in knobs if (k.value, k.original) == (knob.value, knob.original)]
            taken = {other.value for other in knobs if other.original != knob.original}
            if value in taken or time.monotonic() > deadline:
                continue
            found = _resize(tree, [knob], value, fitting)
            if found is None and len(twins) > 1:
                found = _resize(tree, twins, value, fitting)
            if found is not None:
                measured = found
                break
    return measured


def _other_sizes(larger: _Knob, smaller: _Knob) -> Iterator[tuple[_Knob, int]]:
    """Sizes that tell two equal ones apart: first those that shrink less, then a batch size, then others.

    What shrinks less stays a multiple of the warp, or of the power of two below it that it was.
    """
    value = larger.value
    for wanted in (2 * value, value + value // 2):
        size = wanted | (value & 1)
        if size <= larger.original and size % gcd(value, WARP) == 0:
            yield larger, size
    for knob in sorted((larger, smaller), key=lambda knob: not knob.is_batch):
        if knob.may_halve(SMALLEST):
            yield knob, knob.halved


def _resize(
    tree: ast.Module, group: list[_Knob], value: int, fitting: Callable[[str], Measured | None]
) -> Measured | None:
    """Set all of a group to one value; None (and nothing changed) when that does not work or fit."""
    before = [knob.value for knob in group]
    for knob in group:
        knob.set(value)
    measured = fitting(ast.unparse(tree))
    if measured is None:
        for knob, old in zip(group, before, strict=True):
            knob.set(old)
    return measured


def _try_halving(
    tree: ast.Module, knob: _Knob, knobs: list[_Knob], measure: Callable[[str], Measured]
) -> Measured | None:
    """Halve this knob, or it and its equals; None (and nothing changed) when neither works."""
    before = [(other, other.value) for other in knobs]
    equals = [other for other in knobs if other.value == knob.value and other is not knob]
    multiples = [
        other for other in knobs if other.value > knob.value and other.value % knob.value == 0
    ]
    for group in ([knob], [knob, *equals], [knob, *equals, *multiples]):
        for other in group:
            other.set(other.halved)
        measured = measure(ast.unparse(tree))
        if measured.error is None:
            return measured
        for other, value in before:
            other.set(value)
        if not equals and not multiples:
            break
    return None


class _Folded(ast.NodeTransformer):
    """`1024 * 4` becomes 4096, so that a knob is one number."""

    def visit_BinOp(self, node: ast.BinOp) -> ast.AST:
        self.generic_visit(node)
        left, right = node.left, node.right
        if _is_int(left) and _is_int(right):
            a, b = left.value, right.value  # type: ignore[attr-defined]
            value: int | None = None
            if isinstance(node.op, ast.Mult):
                value = a * b
            elif isinstance(node.op, ast.Pow) and 0 <= b <= 62 and abs(a) <= 16:
                value = a**b
            elif isinstance(node.op, ast.FloorDiv) and b:
                value = a // b
            if value is not None:
                return ast.copy_location(ast.Constant(value), node)
        return node


def _is_int(node: ast.AST) -> bool:
    return isinstance(node, ast.Constant) and type(node.value) is int


def _find_knobs(tree: ast.Module) -> list[_Knob]:
    knobs: list[_Knob] = []
    for node in tree.body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            knobs.extend(_assigned_knobs(target, node.value))
    by_value: dict[int, _Knob] = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef) and node.name in ("get_inputs", "get_init_inputs"):
            for site in ast.walk(node):
                if isinstance(site, ast.Constant) and type(site.value) is int:
                    value = site.value
                    knob = by_value.setdefault(
                        value, _Knob(name=f"literal {value}", value=value, original=value, sites=[])
                    )
                    knob.sites.append(site)
    knobs.extend(by_value.values())
    return [
        knob
        for knob in knobs
        if knob.value > SMALLEST_BATCH
        and (knob.value > 64 or not any(word in knob.name.lower() for word in _KEPT_NAMES))
    ]


def _assigned_knobs(target: ast.expr, value: ast.expr) -> list[_Knob]:
    if isinstance(value, ast.Tuple | ast.List):
        names: list[str | None]
        if isinstance(target, ast.Tuple | ast.List) and len(target.elts) == len(value.elts):
            names = [e.id if isinstance(e, ast.Name) else None for e in target.elts]
        elif isinstance(target, ast.Name):
            names = [f"{target.id}[{index}]" for index in range(len(value.elts))]
        else:
            return []
        pairs = list(zip(names, value.elts, strict=True))
    else:
        pairs = [(target.id if isinstance(target, ast.Name) else None, value)]
    return [
        _Knob(name=name, value=site.value, original=site.value, sites=[site])
        for name, site in pairs
        if name is not None and isinstance(site, ast.Constant) and type(site.value) is int
    ]
