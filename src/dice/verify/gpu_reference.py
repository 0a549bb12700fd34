"""Problems on a GPU: one referee process prepares them and answers for as long as they are in use."""

import itertools
import os
import shutil
import weakref
from dataclasses import dataclass, field
from pathlib import Path

from dice.errors import ProblemError, SandboxError
from dice.sandbox import Child, Zygote
from dice.sandbox.wire import Message
from dice.types import Evidence, Problem
from dice.verify.correctness import Comparison
from dice.verify.policy import Policy
from dice.verify.reference import OTHER, notes_of
from dice.verify.timing.facts import Facts

ENTRY = "dice.verify.gpu_referee:main"
MAX_PROBLEMS = 200
"""Prepared by one process before a new one takes over: a problem's code may leave things behind."""


class RefereeProcess:
    """The confined process that answers about problems; a new one is started when it ends."""

    def __init__(self, zygote: Zygote, policy: Policy, gpu: int) -> None:
        self._zygote, self.policy, self._gpu = zygote, policy, gpu
        self._child: Child | None = None
        self._numbers = itertools.count()
        self._prepared = 0
        self._known: set[int] = set()

    def prepare(self, code: str) -> tuple[int, Message]:
        """A number for a new problem, and the referee's report (or {"fault": why not})."""
        if self._child is not None and self._prepared >= MAX_PROBLEMS and not self._known:
            self.close()
        number = next(self._numbers)
        return number, self.prepare_as(number, code)

    def prepare_as(self, number: int, code: str) -> Message:
        """Prepare a problem under a number, in whatever process there is now."""
        if self._child is None:
            self._child = self._zygote.spawn(
                ENTRY, limits=self.policy.reference_limits, gpu=self._gpu
            )
            self._prepared = 0
            self._known.clear()
        self._prepared += 1
        settings = self.policy.settings()
        question = {"do": "prepare", "problem": number, "code": code, "policy": settings}
        report = self._ask(question)
        if "fault" not in report:
            self._known.add(number)
        return report

    def directory(self, number: int) -> Path:
        """The referee's own folder of one problem."""
        if self._child is None:
            raise SandboxError("the referee is not running")
        return Path(self._child.directory) / f"problem-{number}"

    def knows(self, number: int) -> bool:
        """Whether the running process has prepared this problem."""
        return self._child is not None and number in self._known

    def ask(self, number: int, question: Message) -> Message:
        """An answer about a prepared problem. Raises SandboxError when the process has ended."""
        answer = self._ask({**question, "problem": number})
        if "fault" in answer:
            raise SandboxError(f"the referee cannot answer: {answer['fault']}")
        return answer

    def forget(self, number: int) -> None:
        """Nobody will ask about this problem any more."""
        if self.knows(number):
            assert self._child is not None
            self._known.discard(number)
            shutil.rmtree(self.directory(number), ignore_errors=True)
            self._child.send({"do": "forget", "problem": number})

    def close(self) -> None:
        if self._child is not None:
            self._child.close()
            self._child = None
            self._known.clear()

    def _ask(self, question: Message) -> Message:
        assert self._child is not None
        self._child.send(question)
        limit_s = self.policy.reference_limits.wall_s
        try:
            answer = self._child.receive(limit_s)
        except ValueError:
            answer = None
        if answer is not None:
            return answer
        ending = self._child.finish()
        self.close()
        tail = ending.stderr.strip().splitlines()[-1:] or [""]
        reason = ending.limit or ending.signal or ending.exit_code
        return {
            "fault": f"its code ended the process or did not finish in {limit_s:.0f} s "
            f"({reason}) {tail[0][:200]}".strip()
        }


@dataclass(frozen=True, kw_only=True)
class GpuPreparedProblem:
    """A problem ready to judge candidates against, its referee running until this object goes."""

    problem: Problem
    code: str
    variations: tuple[str, ...]
    """One for each call."""
    other_weights: bool
    notes: tuple[str, ...]
    findings: tuple[Evidence, ...]
    number: int
    referee: RefereeProcess = field(repr=False)

    changes: tuple[str, ...] = ()

    @property
    def calls(self) -> int:
        return len(self.variations)

    def variation(self, index: int | str) -> str:
        return "other weights" if index == OTHER else self.variations[int(index)]

    @property
    def directory(self) -> Path:
        """Holds init.bin, state.bin and, where there are weights, state_other.bin."""
        self._ensure()
        return self.referee.directory(self.number)

    def write_input(self, index: int | str, path: Path) -> None:
        """Have the inputs of one call written to `path`, on the referee's file system."""
        made = self.directory / "asked.bin"
        self.referee.ask(self.number, {"do": "input", "index": index, "path": made.name})
        os.replace(made, path)

    def compare(self, index: int | str, output: Path) -> Comparison:
        """Compare an output file, which is taken away from where it is, with the reference."""
        return self._compare({"do": "compare", "index": index}, output)

    def timing_facts(self) -> Facts:
        """What every implementation must move and compute."""
        self._ensure()
        return Facts(**self.referee.ask(self.number, {"do": "timing_facts"}))

    def write_timing_input(self, index: int, path: Path) -> None:
        """Base inputs of a timing, which no check has used."""
        made = self.directory / "asked.bin"
        question = {"do": "timing_input", "index": index, "path": made.name}
        self.referee.ask(self.number, question)
        os.replace(made, path)

    def compare_timed(self, index: int, seed: int, output: Path) -> Comparison:
        """As `compare`, for a timed call on base inputs `index` with values from `seed`."""
        return self._compare({"do": "timing_compare", "index": index, "seed": seed}, output)

    def _compare(self, question: Message, output: Path) -> Comparison:
        taken = self.directory / "judged.bin"
        try:
            os.replace(output, taken)
        except OSError as error:
            message = f"wrote no readable output: {error.strerror}"
            return Comparison(ok=False, reason="no_output", message=message)
        answer = self.referee.ask(self.number, {**question, "path": taken.name})
        taken.unlink(missing_ok=True)
        return Comparison(**answer)

    def _ensure(self) -> None:
        """Prepare again, from the same seed, where the process had to be replaced."""
        if not self.referee.knows(self.number):
            report = self.referee.prepare_as(self.number, self.code)
            if "fault" in report:
                raise SandboxError(
                    f"{self.problem.name} cannot be prepared again: {report['fault']}"
                )


def prepare_on_gpu(problem: Problem, referee: RefereeProcess) -> GpuPreparedProblem:
    """Have the referee prepare a problem.

    Raises ProblemError, with a message for the problem's author, for whatever does not work;
    SandboxError for a broken machine.
    """
    where = problem.path or problem.name
    number, report = referee.prepare(problem.code)
    if "fault" in report:
        raise ProblemError(f"{where}: {report['fault']}")
    prepared = _assemble(problem, report, number, referee)
    weakref.finalize(prepared, referee.forget, number)
    return prepared


def _assemble(
    problem: Problem, report: Message, number: int, referee: RefereeProcess
) -> GpuPreparedProblem:
    return GpuPreparedProblem(
        problem=problem,
        code=problem.code,
        variations=tuple(str(name) for name in report["variations"]),
        other_weights=bool(report["other_weights"]) and not report["stateful"],
        notes=tuple(notes_of(report)),
        findings=tuple(Evidence(**one) for one in report["findings"]),
        number=number,
        referee=referee,
    )
