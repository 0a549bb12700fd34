"""Prepare a problem once: inputs, reference outputs and oracle, in a directory only the judge uses."""

import os
import shutil
import tempfile
import weakref
from dataclasses import dataclass, field
from pathlib import Path

from dice.errors import ProblemError
from dice.sandbox import Incident, Zygote
from dice.sandbox.wire import Message
from dice.types import Evidence, Problem
from dice.verify import trees
from dice.verify.correctness import Comparison, compare
from dice.verify.lint import Outputs, lint
from dice.verify.policy import Policy
from dice.verify.trees import Tree

ENTRY = "dice.verify.reference_child:main"
OTHER = "other"
"""The call with the first inputs under other weights."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputCase:
    """One call: the file that the candidate gets, and what must come back."""

    path: Path
    variation: str
    reference: Tree
    oracle: Tree


@dataclass(frozen=True, kw_only=True)
class PreparedProblem:
    """A problem ready to judge candidates against. Its files go when it, or its judge, does."""

    problem: Problem
    code: str
    """The problem at the sizes used: the file's own code when nothing was shrunk."""
    changes: tuple[str, ...]
    """What was shrunk ("N 4096 -> 256")."""
    notes: tuple[str, ...]
    cases: tuple[InputCase, ...]
    other_case: InputCase | None
    """The first inputs again under other weights (`state_other.bin`), for problems with weights."""
    findings: tuple[Evidence, ...]
    """Why the problem is no test; empty for a good one."""
    policy: Policy
    """Compared by; its seed is the one that was used."""
    seconds: float
    """PyTorch's time for one call at the sizes used, on this CPU."""
    directory: Path
    """Holds init.bin, state.bin, state_other.bin and one input file a call."""
    incidents: tuple[Incident, ...] = field(default=())

    @property
    def reduced(self) -> bool:
        return bool(self.changes)

    @property
    def calls(self) -> int:
        return len(self.cases)

    @property
    def other_weights(self) -> bool:
        return self.other_case is not None

    def case(self, index: int | str) -> InputCase:
        """One call; "other" is the one under other weights."""
        if index == OTHER:
            assert self.other_case is not None
            return self.other_case
        return self.cases[int(index)]

    def variation(self, index: int | str) -> str:
        return self.case(index).variation

    def write_input(self, index: int | str, path: Path) -> None:
        """Write the inputs of one call to `path`, which must not exist. Raises OSError."""
        deliver(self.case(index).path, path)

    def compare(self, index: int | str, output: Path) -> Comparison:
        """Compare an output file with the reference of one call."""
        try:
            value = trees.load(str(output))
        except (OSError, ValueError) as error:
            message = f"wrote no readable output: {error}"
            return Comparison(ok=False, reason="no_output", message=message)
        case = self.case(index)
        return compare(value, case.reference, case.oracle, self.policy)


def deliver(source: Path, target: Path) -> None:
    """Copy a file into a candidate's directory. Raises FileExistsError for anything that is there.

    A link that the candidate has put in its place is not followed: it would lead the judge to write
    somewhere else.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    with open(source, "rb") as given, os.fdopen(os.open(target, flags, 0o600), "wb") as taken:
        shutil.copyfileobj(given, taken, 1 << 20)


def prepare(
    problem: Problem, zygote: Zygote, policy: Policy, *, keep: frozenset[int] = frozenset()
) -> PreparedProblem:
    """Run the problem's own code in its own confined process. Sizes in `keep` are not reduced.

    Raises ProblemError, with a message for the problem's author, for whatever does not work;
    SandboxError for a broken machine. Without a seed in the policy a secret one is drawn.
    """
    policy = policy.seeded()
    where = problem.path or problem.name
    with zygote.spawn(ENTRY, limits=policy.reference_limits) as child:
        child.send({"code": problem.code, "policy": policy.settings(), "keep": sorted(keep)})
        try:
            report = child.receive(policy.reference_limits.wall_s)
        except ValueError:
            report = None
        if report is None:
            result = child.finish()
            raise ProblemError(f"{where}: {_explain_end(result.limit, result.exit_code, policy)}")
        if "fault" in report:
            raise ProblemError(f"{where}: {report['fault']}")
        directory = Path(tempfile.mkdtemp(dir=zygote.root, prefix="problem-"))
        for file in Path(child.directory).glob("*.bin"):
            shutil.copyfile(file, directory / file.name, follow_symlinks=False)
        incidents = child.incidents
    prepared = _assemble(problem, policy, report, directory, incidents)
    weakref.finalize(prepared, shutil.rmtree, directory, True)
    return prepared


def _explain_end(limit: str | None, exit_code: int | None, policy: Policy) -> str:
    limits = policy.reference_limits
    if limit in ("wall", "cpu"):
        return f"the problem did not finish in {limits.wall_s:.0f} s; use smaller sizes"
    if limit == "memory":
        return f"the problem needs more than {limits.memory_mib} MiB; use smaller sizes"
    return f"the problem's own code ended its process (exit code {exit_code})"


def notes_of(report: Message) -> list[str]:
    """What a verdict says about its problem, from the report of the process that ran it."""
    notes = [str(note) for note in report["notes"]]
    if report["other_weights"] and not report["uses_weights"]:
        notes.append("the problem has weights that its forward never uses")
    if report["stateful"]:
        notes.append(
            "the reference changes its state from call to call; calls are compared in order"
        )
    return [*notes, "inputs tried: " + ", ".join(str(name) for name in report["variations"])]


def _assemble(
    problem: Problem,
    policy: Policy,
    report: Message,
    directory: Path,
    incidents: tuple[Incident, ...],
) -> PreparedProblem:
    variations = [str(name) for name in report["variations"]]
    cases = tuple(
        InputCase(
            path=directory / f"input_{index}.bin",
            variation=variation,
            reference=trees.load(str(directory / f"reference_{index}.bin")),
            oracle=trees.load(str(directory / f"oracle_{index}.bin")),
        )
        for index, variation in enumerate(variations)
    )
    other = None
    if report["other_weights"]:
        other = InputCase(
            path=cases[0].path,
            variation="other weights",
            reference=trees.load(str(directory / "reference_other.bin")),
            oracle=trees.load(str(directory / "oracle_other.bin")),
        )
    findings = lint(
        Outputs(
            references=tuple(case.reference for case in cases),
            oracles=tuple(case.oracle for case in cases),
            other_weights=other.reference if other is not None and report["uses_weights"] else None,
            random=bool(report["random"]),
        ),
        policy,
    )
    changes = tuple(str(change) for change in report["changes"])
    notes = notes_of(report)
    if changes:
        notes.insert(0, "reduced to CPU size: " + ", ".join(changes))
    return PreparedProblem(
        problem=problem,
        code=str(report["code"]),
        changes=changes,
        notes=tuple(notes),
        cases=cases,
        other_case=None if report["stateful"] else other,
        findings=findings,
        policy=policy,
        seconds=float(report["seconds"]),
        directory=directory,
        incidents=incidents,
    )
