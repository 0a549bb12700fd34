"""The process that knows the answers on a GPU: the problem's model, its inputs, its outputs, the oracle.

No candidate ever runs in it. It serves one problem after another, because CUDA needs a quarter of a
second to start in a process, and answers the judge: "write the inputs of call i", "does this file hold
the output of call i?". Outputs are compared here, on the
GPU and in parts, so that tensors of gigabytes are neither copied to the judge nor needed twice.

Inputs are drawn on the GPU. A case is kept while all kept cases fit into `KEPT_BYTES`, else drawn and
computed again; the outputs of a reference that changes its state are kept in host memory, in order.
"""

import copy
import gc
import os
import random
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from dice.sandbox.wire import Channel, Message
from dice.types import Evidence
from dice.verify import input_sets, trees
from dice.verify.correctness import Comparison, compare
from dice.verify.lint import Outputs, lint
from dice.verify.policy import Policy
from dice.verify.reduce import Measured, Reduced
from dice.verify.reference import OTHER
from dice.verify.reference_child import ProblemFault, ReferenceRun, guard, run_model
from dice.verify.timing.facts import facts_of, timing_seed
from dice.verify.timing.loop import fresh
from dice.verify.trees import Tree

DEVICE = "cuda"
KEPT_BYTES = 4 << 30
MAX_FILE_BYTES = 64 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One call, on the GPU (on the CPU where the reference is stateful)."""

    inputs: Tree
    reference: Tree
    oracle: Tree

    def bytes(self) -> int:
        trees_ = (self.inputs, self.reference, self.oracle)
        return sum(t.numel() * t.element_size() for tree in trees_ for t in trees.tensors(tree))


def main(channel: Channel) -> int:
    """Entry of the process: problems and questions about them until the judge hangs up."""
    warnings.simplefilter("ignore")
    home = Path.cwd()
    referees: dict[int, Referee] = {}
    while (request := channel.receive()) is not None:
        number = request["problem"]
        if request["do"] == "forget":
            referees.pop(number, None)
            torch.cuda.empty_cache()
            continue
        try:
            if request["do"] == "prepare":
                os.chdir(home)
                os.makedirs(f"problem-{number}")
                os.chdir(f"problem-{number}")
                _reset()
                referees[number] = Referee(request["code"], Policy(**request["policy"]))
                channel.send(referees[number].report())
            else:
                os.chdir(home / f"problem-{number}")
                channel.send(referees[number].answer(request))
        except ProblemFault as fault:
            channel.send({"fault": str(fault)})
        except torch.OutOfMemoryError:
            torch.cuda.empty_cache()
            text = "the problem does not fit into the GPU's memory; use smaller sizes"
            channel.send({"fault": text})
    return 0


def _reset() -> None:
    """What an earlier problem may have changed for the next one."""
    torch.set_default_dtype(torch.float32)
    torch.set_default_device(None)
    torch.set_grad_enabled(True)
    torch.use_deterministic_algorithms(False)
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = True
    gc.collect()
    torch.cuda.empty_cache()


class Referee(ReferenceRun):
    """`ReferenceRun` on a GPU at the problem's own sizes, its cases made on demand."""

    def __init__(self, code: str, policy: Policy) -> None:
        self._kept: dict[int | str, Case] = {}
        self._plans: list[tuple[int, str]] = []
        self._other: torch.nn.Module | None = None
        super().__init__(Reduced(code=code, changes=(), measured=Measured()), policy)

    def _construct(self) -> torch.nn.Module:
        return super()._construct().to(DEVICE)

    def _own_inputs(self, seed: int) -> list[Any]:
        random.seed(seed)
        with torch.device(DEVICE):
            inputs = super()._own_inputs(seed)
        return [trees.map_tensors(one, lambda tensor: tensor.to(DEVICE)) for one in inputs]

    def _add(self, plan: input_sets.InputSet) -> None:
        """Choose the variation; a stateful reference is run now, in order, any other on demand."""
        for variation in plan.variations:
            inputs = input_sets.vary(self._own_inputs(plan.seed), variation)
            if variation == "plain" or self._permits(inputs):
                break
        self._plans.append((plan.seed, variation))
        self.variations.append(variation)
        if self.stateful:
            case = self._run_case(inputs, self.model, self.twin)
            every = (case.inputs, case.reference, case.oracle)
            on_host = [trees.map_tensors(tree, lambda tensor: tensor.cpu()) for tree in every]
            index = len(self._plans) - 1
            self._kept[index] = Case(inputs=on_host[0], reference=on_host[1], oracle=on_host[2])

    def _run_case(self, inputs: Tree, model: torch.nn.Module, twin: torch.nn.Module | None) -> Case:
        try:
            oracle = self._oracle(twin, inputs)
        except torch.OutOfMemoryError:
            oracle = None
        reference = guard("Model.forward", lambda: run_model(model, inputs))
        torch.cuda.synchronize()
        if not trees.tensors(reference) and not isinstance(reference, float | int):
            raise ProblemFault(f"Model.forward returned {type(reference).__name__}, not a tensor")
        return Case(inputs=inputs, reference=reference, oracle=oracle)

    def case(self, index: int | str) -> Case:
        """The case of one call, kept or made."""
        kept = self._kept.get(index)
        if kept is not None:
            return kept
        seed, variation = self._plans[0 if index == OTHER else int(index)]
        inputs = input_sets.vary(self._own_inputs(seed), variation)
        if index == OTHER:
            assert self._other is not None
            made = self._run_case(inputs, self._other, self._double(self._other))
        else:
            made = self._run_case(inputs, self.model, self.twin)
        if not self.stateful:
            used = made.bytes() + sum(one.bytes() for one in self._kept.values())
            if used > KEPT_BYTES:
                self._kept.clear()
            self._kept[index] = made
        return made

    def report(self) -> Message:
        """What the judge needs to know; writes init.bin, state.bin and state_other.bin."""
        trees.save(self.init, "init.bin")
        trees.save(dict(self.fresh.state_dict()), "state.bin")
        self._other = self._with_other_weights()
        uses_weights = self._other is not None and self._uses_weights()
        if self._other is not None:
            trees.save(dict(self._other.state_dict()), "state_other.bin")
        findings = self._lint(uses_weights)
        return {
            "notes": self.notes,
            "variations": self.variations,
            "stateful": self.stateful,
            "other_weights": self._other is not None,
            "uses_weights": uses_weights,
            "findings": [asdict(one) for one in findings],
        }

    def _uses_weights(self) -> bool:
        self.inputs, self.references = [self.case(0).inputs], [self.case(0).reference]
        used = super()._uses_weights()
        self.inputs, self.references = [], []
        return used

    def _lint(self, uses_weights: bool) -> tuple[Evidence, ...]:
        """On all cases where they can be kept, else on the first two."""
        large = self.case(0).bytes() * (len(self._plans) + 1) > KEPT_BYTES
        cases = [self.case(index) for index in range(2 if large else len(self._plans))]
        other = self.case(OTHER).reference if uses_weights and not self.stateful else None
        outputs = Outputs(
            references=tuple(case.reference for case in cases),
            oracles=tuple(case.oracle for case in cases),
            other_weights=other,
            random=self.random,
        )
        return lint(outputs, self.policy)

    def answer(self, question: Message) -> Message:
        """`{"do": "input", "index", "path"}` or `{"do": "compare", "index", "path"}`; of a timing
        "timing_facts", "timing_input" (as "input") and "timing_compare", with the "seed" of the call."""
        if question["do"] == "timing_facts":
            inputs = self._timing_inputs(0)
            return asdict(facts_of(self.fresh, inputs, stateful=self.stateful))
        if question["do"] == "timing_input":
            trees.save(self._timing_inputs(question["index"]), question["path"])
            return {"done": True}
        if question["do"] == "timing_compare":
            timed = fresh(self._timing_inputs(question["index"]), question["seed"])
            case = self._run_case(
                timed, copy.deepcopy(self.fresh), self._double(copy.deepcopy(self.fresh))
            )
            return asdict(self.verify(question["path"], case))
        case = self.case(question["index"])
        if question["do"] == "input":
            trees.save(case.inputs, question["path"])
            return {"done": True}
        return asdict(self.verify(question["path"], case))

    def _timing_inputs(self, index: int) -> list[Any]:
        """Base inputs of a timing: of the problem's own kind, never used to check."""
        return self._own_inputs(timing_seed(self.reduced.code, self.policy.seed, index))

    def verify(self, path: str, case: Case) -> Comparison:
        """Compare a candidate's output file with a case."""
        expected = trees.tensors(case.reference)
        device = "cpu" if self.stateful else DEVICE
        try:
            value = trees.load(path, max_bytes=MAX_FILE_BYTES, device=device)
            places = trees.devices(path)
        except (OSError, ValueError) as error:
            message = f"wrote no readable output: {error}"
            return Comparison(ok=False, reason="no_output", message=message)
        if expected and any(place != DEVICE for place in places):
            message = f"output is on {sorted(set(places))}, expected {DEVICE}"
            return Comparison(ok=False, reason="type", message=message)
        return compare(value, case.reference, case.oracle, self.policy)
