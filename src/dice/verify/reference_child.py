"""Runs the problem's own code, confined: sizes, inputs, reference outputs, float64 oracle.

No candidate ever runs in this process. Results are files in its private directory.
"""

import copy
import time
import traceback
import types
import warnings
from typing import Any

import torch

from dice.sandbox.wire import Channel, Message
from dice.toolchain import cuda_device
from dice.verify import input_sets, trees
from dice.verify.correctness import compare
from dice.verify.measure import load_namespace, measure
from dice.verify.policy import Policy
from dice.verify.reduce import Reduced, cost, reduce_code
from dice.verify.trees import Tree

CONDITION = 1e-3
"""A variation is used when PyTorch's own float32 error stays below this share of the output's scale."""

HALF_RANGE = 256.0
"""The square of anything larger overflows float16: no input for a candidate that may compute in it."""


class ProblemFault(Exception):
    """The problem file is at fault; the message is for its author."""


def main(channel: Channel) -> int:
    """Entry of the process: one request, one answer."""
    request = channel.receive()
    if request is None:
        return 1
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    policy = Policy(**request["policy"])
    try:
        channel.send(_prepare(request["code"], policy, frozenset(request.get("keep", ()))))
    except ProblemFault as fault:
        channel.send({"fault": str(fault)})
    return 0


def _prepare(code: str, policy: Policy, keep: frozenset[int]) -> Message:
    if not torch.cuda.is_available():
        cuda_device.install(torch)
    budget = 1.0
    while True:
        reduced = reduce_code(code, measure, policy, budget=budget, keep=keep)
        if reduced.measured.error is None and cost(reduced.measured, policy, budget=budget) > 4:
            raise ProblemFault(
                f"too large for this machine: {reduced.measured.elements:,} elements and "
                f"{reduced.measured.flops:,} floating-point operations, and the sizes in the file "
                "do not shrink; use smaller sizes in get_inputs()"
            )
        run = run_reference(reduced, policy)
        if run.seconds <= policy.max_reference_s or budget < 0.02:
            return run.write()
        budget /= 4


def run_reference(reduced: Reduced, policy: Policy) -> "ReferenceRun":
    """Everything but writing it down. Raises ProblemFault."""
    return ReferenceRun(reduced, policy)


class ReferenceRun:
    """One problem at one size, run on every input set."""

    def __init__(self, reduced: Reduced, policy: Policy) -> None:
        self.reduced, self.policy = reduced, policy
        self.notes: list[str] = []
        self.inputs: list[Tree] = []
        self.references: list[Tree] = []
        self.oracles: list[Tree] = []
        self.variations: list[str] = []
        self.namespace = guard("the file", lambda: load_namespace(reduced.code))
        self.init = self._init_inputs()
        self.model = self._construct()
        self.fresh = copy.deepcopy(self.model)
        plans = input_sets.plan(reduced.code, policy.seed, policy.input_sets)
        first = self._own_inputs(plans[0].seed)
        started = time.monotonic()
        guard("Model.forward", lambda: run_model(copy.deepcopy(self.fresh), first))
        self.seconds = time.monotonic() - started
        if self.seconds > policy.max_reference_s:
            return
        self.random, self.stateful = self._behaviour(first)
        self.twin = self._double(self.fresh)
        for plan in plans:
            self._add(plan)

    def _init_inputs(self) -> list[Any]:
        torch.manual_seed(self.policy.construction_seed)
        function = _needed(self.namespace, "get_init_inputs")
        init = guard("get_init_inputs()", function)
        if not isinstance(init, list | tuple):
            raise ProblemFault(
                f"get_init_inputs() returned {type(init).__name__}, not the list of Model's arguments"
            )
        return list(init)

    def _construct(self) -> torch.nn.Module:
        model_class = _needed(self.namespace, "Model")
        torch.manual_seed(self.policy.construction_seed)
        model = guard("Model(*get_init_inputs())", lambda: model_class(*self.init))
        if not isinstance(model, torch.nn.Module):
            raise ProblemFault("Model is not a torch.nn.Module")
        return model

    def _own_inputs(self, seed: int) -> list[Any]:
        torch.manual_seed(seed)
        function = _needed(self.namespace, "get_inputs")
        inputs = guard("get_inputs()", function)
        if not isinstance(inputs, list | tuple):
            raise ProblemFault(
                f"get_inputs() returned {type(inputs).__name__}, not the list of forward's arguments"
            )
        if not trees.tensors(list(inputs)):
            raise ProblemFault(
                "get_inputs() returned no tensor; it must return the list of forward's arguments, "
                "with at least one torch.Tensor"
            )
        return list(inputs)

    def _behaviour(self, inputs: list[Any]) -> tuple[bool, bool]:
        """Whether the same inputs give different outputs: at random, or because a call changes state."""
        torch.manual_seed(1)
        model = copy.deepcopy(self.fresh)
        one = run_model(model, inputs)
        torch.manual_seed(2)
        other = run_model(copy.deepcopy(self.fresh), inputs)
        torch.manual_seed(1)
        again = run_model(model, inputs)
        random = not compare(other, one, None, self.policy).ok and not _has_nan(one)
        stateful = not compare(again, one, None, self.policy).ok and not _has_nan(one)
        return random, stateful

    def _double(self, model: torch.nn.Module) -> torch.nn.Module | None:
        try:
            return copy.deepcopy(model).double()
        except Exception:
            return None

    def _oracle(self, twin: torch.nn.Module | None, inputs: list[Any]) -> Tree:
        if twin is None:
            return None
        wide = trees.map_tensors(inputs, lambda t: t.double() if t.is_floating_point() else t)
        torch.set_default_dtype(torch.float64)
        try:
            return run_model(twin, wide)
        except Exception as error:
            note = f"no float64 oracle: {type(error).__name__}: {str(error)[:120]}"
            if note not in self.notes:
                self.notes.append(note)
            return None
        finally:
            torch.set_default_dtype(torch.float32)

    def _add(self, plan: input_sets.InputSet) -> None:
        for variation in plan.variations:
            inputs = input_sets.vary(self._own_inputs(plan.seed), variation)
            if variation == "plain" or self._permits(inputs):
                break
        # what the reference does to its inputs must not reach the saved ones
        kept = trees.map_tensors(inputs, torch.clone)
        self.inputs.append(inputs)
        self.variations.append(variation)
        self.oracles.append(self._oracle(self.twin, inputs))
        output = guard("Model.forward", lambda: run_model(self.model, kept))
        if not trees.tensors(output) and not isinstance(output, float | int):
            raise ProblemFault(f"Model.forward returned {type(output).__name__}, not a tensor")
        self.references.append(output)

    def _permits(self, inputs: list[Any]) -> bool:
        if self.policy.precision == "float16" and _largest(inputs) > HALF_RANGE:
            return False
        try:
            output = run_model(copy.deepcopy(self.fresh), inputs)
        except Exception:
            return False
        oracle = self._oracle(self._double(self.fresh), inputs)
        wide: list[torch.Tensor | None] = [*trees.tensors(oracle)]
        wide = wide or [None] * len(trees.tensors(output))
        for p, o in zip(trees.tensors(output), wide, strict=True):
            if not p.is_floating_point():
                continue
            if not torch.isfinite(p).all():
                return False
            if o is not None and p.numel():
                scale = o.square().mean().sqrt()
                if (p.double() - o).abs().max() > CONDITION * scale:
                    return False
        return True

    def _with_other_weights(self) -> torch.nn.Module | None:
        """The model under other weights; None when it has none."""
        if not list(self.fresh.parameters()):
            return None
        torch.manual_seed(input_sets.derive_seed(self.reduced.code, self.policy.seed, -1))
        model = copy.deepcopy(self.fresh)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point() and parameter.numel():
                    scale = parameter.double().square().mean().sqrt().item()
                    noise = torch.randn_like(parameter)
                    parameter.add_(noise, alpha=0.5 * scale if scale > 0 else 0.1)
        return model

    def _other_weights(self) -> bool:
        """Write other weights and the outputs they give on the first inputs; False without weights."""
        model = self._with_other_weights()
        if model is None:
            return False
        twin = self._double(model)
        trees.save(dict(model.state_dict()), "state_other.bin")
        inputs = trees.map_tensors(self.inputs[0], torch.clone)
        trees.save(self._oracle(twin, inputs), "oracle_other.bin")
        trees.save(run_model(model, inputs), "reference_other.bin")
        return True

    def _uses_weights(self) -> bool:
        """Whether the weights reach the output at all: it changes when all of them are NaN."""
        model = copy.deepcopy(self.fresh)
        with torch.no_grad():
            for parameter in model.parameters():
                if parameter.is_floating_point():
                    parameter.fill_(float("nan"))
        try:
            output = run_model(model, self.inputs[0])
        except Exception:
            return True
        return not compare(output, self.references[0], None, self.policy).ok

    def write(self) -> Message:
        if self.seconds > self.policy.max_reference_s:
            raise ProblemFault(
                f"the reference takes {self.seconds:.1f} s a call on this machine and its sizes do "
                "not shrink further; use smaller sizes in get_inputs()"
            )
        trees.save(self.init, "init.bin")
        trees.save(dict(self.fresh.state_dict()), "state.bin")
        for index, data in enumerate(zip(self.inputs, self.references, self.oracles, strict=True)):
            for name, tree in zip(("input", "reference", "oracle"), data, strict=True):
                trees.save(tree, f"{name}_{index}.bin")
        return {
            "code": self.reduced.code,
            "changes": self.reduced.changes,
            "notes": self.notes,
            "variations": self.variations,
            "seconds": self.seconds,
            "random": self.random,
            "stateful": self.stateful,
            "other_weights": self._other_weights(),
            "uses_weights": self._uses_weights(),
            "training": self.fresh.training,
            "parameters": [name for name, _ in self.fresh.named_parameters()],
            "elements": self.reduced.measured.elements,
        }


def run_model(model: torch.nn.Module, inputs: Tree) -> Tree:
    fresh = trees.map_tensors(inputs, torch.clone)
    with torch.no_grad():
        return model(*fresh)


def _largest(tree: Tree) -> float:
    found = [t for t in trees.tensors(tree) if t.is_floating_point() and t.numel()]
    return max((t.abs().max().item() for t in found), default=0.0)


def _has_nan(tree: Tree) -> bool:
    return any(t.is_floating_point() and bool(t.isnan().any()) for t in trees.tensors(tree))


def _needed(namespace: dict[str, Any], name: str) -> Any:
    if name not in namespace:
        raise ProblemFault(f"the file defines no {name}")
    return namespace[name]


def guard(what: str, function: Any) -> Any:
    """Call the problem's code; its exception becomes a message with the line at fault."""
    try:
        return function()
    except ProblemFault:
        raise
    except MemoryError as error:
        raise ProblemFault(f"{what} needs more memory than is allowed") from error
    except Exception as error:
        line = _line_of(error.__traceback__)
        first = str(error).strip().splitlines()[0] if str(error).strip() else ""
        where = f" (line {line})" if line else ""
        raise ProblemFault(f"{what} raised {type(error).__name__}: {first}{where}") from error


def _line_of(trace: types.TracebackType | None) -> int | None:
    frames = traceback.extract_tb(trace)
    lines = [frame.lineno for frame in frames if frame.filename == "problem.py"]
    return lines[-1] if lines else None
