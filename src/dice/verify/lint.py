"""Is the problem a test at all? (DESIGN section 4.1)

A problem whose output is constant, ignores its inputs or its weights, or is zero within the tolerance
would pass a kernel that computes nothing. It earns no credit: its candidates are `untestable`.
"""

from dataclasses import dataclass

import torch

from dice.types import Evidence
from dice.verify import trees
from dice.verify.correctness import compare
from dice.verify.policy import Policy
from dice.verify.trees import Tree


@dataclass(frozen=True, slots=True, kw_only=True)
class Outputs:
    """What the reference gave: one entry per input set, and the first set again under other weights."""

    references: tuple[Tree, ...]
    oracles: tuple[Tree, ...]
    other_weights: Tree = None
    random: bool = False


def lint(outputs: Outputs, policy: Policy) -> tuple[Evidence, ...]:
    """Findings that make the problem untestable; empty for a good one."""
    findings = []
    pairs = list(zip(outputs.references, outputs.oracles, strict=True))
    if outputs.random:
        findings.append(
            _finding(
                "random_reference", "the reference gives different outputs for the same inputs"
            )
        )
    if any(_has_nan(reference) for reference, _ in pairs):
        findings.append(_finding("nan_reference", "the reference's output has NaN"))
        return tuple(findings)
    if all(_all_accept(_zeros_like(reference), [(reference, o)], policy) for reference, o in pairs):
        findings.append(
            _finding("zero_output", "the reference's output is zero within the tolerance")
        )
    elif all(_all_accept(_filled_like(p), [(p, o)], policy) for p, o in pairs) and any(
        tensor.numel() > 1 for p, _ in pairs for tensor in trees.tensors(p)
    ):
        findings.append(
            _finding("constant_output", "every element of the reference's output is the same")
        )
    if len(pairs) > 1 and _all_accept(pairs[0][0], pairs[1:], policy):
        findings.append(
            _finding("ignores_inputs", "the reference gives the same output for all inputs")
        )
    if outputs.other_weights is not None and _all_accept(outputs.other_weights, pairs[:1], policy):
        findings.append(
            _finding("ignores_weights", "the reference's output does not depend on its weights")
        )
    return tuple(findings)


def _finding(kind: str, message: str) -> Evidence:
    return Evidence(kind=kind, message=f"{message}, so a kernel that computes nothing could pass")


def _all_accept(guess: Tree, pairs: list[tuple[Tree, Tree]], policy: Policy) -> bool:
    return all(compare(guess, reference, oracle, policy).ok for reference, oracle in pairs)


def _zeros_like(tree: Tree) -> Tree:
    if isinstance(tree, float):
        return 0.0
    return trees.map_tensors(tree, torch.zeros_like)


def _filled_like(tree: Tree) -> Tree:
    def fill(tensor: torch.Tensor) -> torch.Tensor:
        if tensor.numel() < 2:
            return tensor
        return torch.full_like(tensor, tensor.reshape(-1)[0].item())

    return trees.map_tensors(tree, fill)


def _has_nan(tree: Tree) -> bool:
    return any(t.is_floating_point() and bool(t.isnan().any()) for t in trees.tensors(tree))
