"""Prepare a problem on a GPU: starts its referee, which answers for as long as the problem is in use."""

import os
import weakref
from dataclasses import dataclass, field
from pathlib import Path

from dice.errors import ProblemError, SandboxError
from dice.sandbox import Child, Zygote
from dice.sandbox.wire import Message
from dice.types import Evidence, Problem
from dice.verify.correctness import Comparison
from dice.verify.policy import Policy

ENTRY = "dice.verify.gpu_referee:main"
OTHER = "other"


@dataclass(frozen=True, kw_only=True)
class GpuPreparedProblem:
    """A problem ready to judge candidates against, its referee running until this object goes."""

    problem: Problem
    code: str
    variations: tuple[str, ...]
    """One for each call."""
    other_weights: bool
    stateful: bool
    notes: tuple[str, ...]
    findings: tuple[Evidence, ...]
    seconds: float
    case_bytes: int
    """Inputs, output and oracle of one call together."""
    gpu: str
    directory: Path
    referee: Child = field(repr=False)
    patience_s: float = 120.0

    changes: tuple[str, ...] = ()

    @property
    def reduced(self) -> bool:
        return False

    @property
    def calls(self) -> int:
        return len(self.variations)

    def variation(self, index: int | str) -> str:
        return "other weights" if index == OTHER else self.variations[int(index)]

    def write_input(self, index: int | str, path: Path) -> None:
        """Have the inputs of one call written to `path`, on the referee's file system."""
        made = self.directory / "asked.bin"
        self._ask({"do": "input", "index": index, "path": made.name})
        os.replace(made, path)

    def compare(self, index: int | str, output: Path) -> Comparison:
        """Compare an output file, which is taken away from where it is, with the reference."""
        taken = self.directory / "judged.bin"
        try:
            os.replace(output, taken)
        except OSError as error:
            message = f"wrote no readable output: {error.strerror}"
            return Comparison(ok=False, reason="no_output", message=message)
        answer = self._ask({"do": "compare", "index": index, "path": taken.name})
        taken.unlink(missing_ok=True)
        return Comparison(**answer)

    def _ask(self, question: Message) -> Message:
        self.referee.send(question)
        answer = self.referee.receive(self.patience_s)
        if answer is None or "fault" in answer:
            raise SandboxError(f"the referee of {self.problem.name} has died: {answer}")
        return answer


def prepare_on_gpu(
    problem: Problem, zygote: Zygote, policy: Policy, *, gpu: int = 0
) -> GpuPreparedProblem:
    """Start the problem's referee.

    Raises ProblemError, with a message for the problem's author, for whatever does not work;
    SandboxError for a broken machine.
    """
    where = problem.path or problem.name
    child = zygote.spawn(ENTRY, limits=policy.reference_limits, gpu=gpu)
    try:
        child.send({"code": problem.code, "policy": policy.seeded().settings()})
        try:
            report = child.receive(policy.reference_limits.wall_s)
        except ValueError:
            report = None
        if report is None:
            ending = child.finish()
            raise ProblemError(
                f"{where}: the problem's own code ended its process or did not finish in "
                f"{policy.reference_limits.wall_s:.0f} s ({ending.limit or ending.exit_code})"
            )
        if "fault" in report:
            raise ProblemError(f"{where}: {report['fault']}")
    except BaseException:
        child.close()
        raise
    prepared = _assemble(problem, report, child)
    weakref.finalize(prepared, child.close)
    return prepared


def _assemble(problem: Problem, report: Message, child: Child) -> GpuPreparedProblem:
    variations = tuple(str(name) for name in report["variations"])
    notes = [str(note) for note in report["notes"]]
    if report["other_weights"] and not report["uses_weights"]:
        notes.append("the problem has weights that its forward never uses")
    if report["stateful"]:
        notes.append(
            "the reference changes its state from call to call; calls are compared in order"
        )
    notes.append("inputs tried: " + ", ".join(variations))
    return GpuPreparedProblem(
        problem=problem,
        code=problem.code,
        variations=variations,
        other_weights=bool(report["other_weights"]) and not report["stateful"],
        stateful=bool(report["stateful"]),
        notes=tuple(notes),
        findings=tuple(Evidence(**one) for one in report["findings"]),
        seconds=float(report["seconds"]),
        case_bytes=int(report["case_bytes"]),
        gpu=str(report["gpu"]),
        directory=Path(child.directory),
        referee=child,
    )
