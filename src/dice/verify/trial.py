"""One candidate in its process, from the judge's side: the conversation and what it showed.

Knows neither the emulator nor a GPU: a `Backend` starts the process and builds, a `Prepared` problem
makes inputs and compares outputs. Nothing that the process says counts in its favour.
"""

import os
import secrets
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Protocol

from dice.errors import BuildFailure
from dice.sandbox import Child, ChildResult, Features
from dice.toolchain.source import BuiltExtension, ExtensionSources
from dice.types import Candidate, Evidence, Problem, Timing
from dice.verify import rules
from dice.verify.correctness import Comparison
from dice.verify.input_sets import derive_seed
from dice.verify.policy import Policy
from dice.verify.reference import OTHER, deliver

Message = dict[str, Any]
MAX_GUESSES = 12
"""Results of PyTorch that are compared for one call without kernels."""


class Prepared(Protocol):
    """A problem ready to judge candidates against."""

    @property
    def problem(self) -> Problem:
        """What is being solved."""

    @property
    def directory(self) -> Path:
        """Holds init.bin, state.bin and, where there are weights, state_other.bin."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was changed about the problem or could not be tried."""

    @property
    def findings(self) -> tuple[Evidence, ...]:
        """Why it is no test; empty for a good one."""

    @property
    def calls(self) -> int:
        """How many inputs a candidate has to come through."""

    @property
    def other_weights(self) -> bool:
        """Whether there is a call `OTHER`."""

    @property
    def changes(self) -> tuple[str, ...]:
        """What was shrunk ("N 4096 -> 256")."""

    def variation(self, index: int | str) -> str:
        """What is special about the inputs of one call; "plain" for the problem's own."""

    def write_input(self, index: int | str, path: Path) -> None:
        """Write the inputs of one call to `path`."""

    def compare(self, index: int | str, output: Path) -> Comparison:
        """Compare an output file, which may be taken away, with what must come back."""


class Backend(Protocol):
    """Where candidates run."""

    name: str
    """"simt" or "cuda"."""
    policy: Policy
    protections: Features
    blind_in_process: bool
    """Whether the run without kernels follows in the same process: where starting one is dear."""
    checked: str
    """What a run without a fault has shown beside its results, for people; empty when nothing."""

    def spawn(self, prepared: Prepared) -> Child:
        """A confined process with the worker in it."""

    def running(self) -> AbstractContextManager[None]:
        """Around calls: where few may launch work at once."""

    def job(self) -> Message:
        """The backend's own fields of the worker's first message."""

    def build(self, sources: ExtensionSources) -> BuiltExtension:
        """A shared object. Raises BuildFailure with the compiler's messages."""

    def inspect(self, built: list[ExtensionSources]) -> "Inspection":
        """A look at sources that have compiled, beside running them."""

    def examine(self, trial: "Trial") -> list[Evidence]:
        """Further checks on a candidate without a fault; costly ones belong here."""

    def time(self, trial: "Trial") -> "Measured":
        """The speed of a correct candidate; nothing where it was not asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inspection:
    """What another compiler says about the sources."""

    nvcc: str = "not_available"
    evidence: Evidence | None = None
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A timing, or evidence against the candidate that came up while it was timed."""

    timing: Timing | None = None
    evidence: tuple[Evidence, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(slots=True)
class Trial:
    """One process of one candidate: what was said, seen and built."""

    backend: Backend
    prepared: Prepared
    candidate: Candidate
    skip_launches: bool = False
    """Kernels do nothing: shows what the candidate computes without them."""
    timing: bool = False
    """The worker leaves out what slows calls down."""
    evidence: list[Evidence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sources: list[ExtensionSources] = field(default_factory=list)
    built: list[BuiltExtension] = field(default_factory=list)
    answers: list[Message] = field(default_factory=list)
    """To the worker's build requests, in order."""
    job: Message = field(default_factory=dict)
    build_s: float = 0.0
    run_s: float = 0.0
    launches: int = 0
    failed_builds: int = 0
    calls: int = 0
    reports: list[Message] = field(default_factory=list)
    """The worker's, one a call."""
    matched: list[bool] = field(default_factory=list)
    """Whether the output was right, one a call."""
    made: list[bool] = field(default_factory=list)
    """Without kernels: whether PyTorch had the right output at hand anywhere, one a call."""
    early: bool = False
    """Whether the process ended before it was told to."""
    result: ChildResult | None = None
    blind: "Trial | None" = None
    """What the candidate did without its kernels, where that ran in this process."""
    _first: int = 0
    """Number of the first call in its process."""
    _nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def run(self, calls: int | None = None) -> None:
        """Talk to the worker until it has been through every input, or something ends it.

        `calls` limits the inputs; other weights are tried only without a limit.
        """
        with self.backend.spawn(self.prepared) as child:
            ready = self.open(child)
            if ready is not None:
                with self.backend.running():
                    self._converse(child, calls, matched=not ready.get("unmatched"))
                    if self.backend.blind_in_process and self.launches and not self._faulty():
                        self.blind = self._without_kernels(child)
            self.result = child.finish()
            if self.blind is not None and self.blind.early:
                # all calls had been answered: how it ended without its kernels tells nothing
                self.result = replace(
                    self.result, limit=None, signal=None, exit_code=0, timed_out=False
                )

    def _faulty(self) -> bool:
        """Whether the ruling is clear already."""
        return self.early or rules.decisive(self.evidence)

    def _without_kernels(self, child: Child) -> "Trial":
        """The same calls again in the same process, with every launch a no-op."""
        blind = Trial(self.backend, self.prepared, self.candidate, skip_launches=True)
        blind._nonce, blind._first = self._nonce, self._first + self.calls
        target = Path(child.directory) / "state_again.bin"
        if not blind.delivered(
            target, lambda: deliver(self.prepared.directory / "state.bin", target)
        ):
            return blind
        child.send({"do": "blind", "path": target.name})
        if blind.next_report(child, self.backend.policy.call_s) is not None:
            for index in range(self.prepared.calls):
                if not blind._call(child, index):
                    break
        return blind

    def open(self, child: Child) -> Message | None:
        """Have the candidate imported and constructed, its builds served; None when that failed."""
        prepared, policy, directory = self.prepared, self.backend.policy, Path(child.directory)
        self.notes += prepared.notes
        for name in ("init.bin", "state.bin"):
            deliver(prepared.directory / name, directory / name)
        self.job = {
            "code": self.candidate.code,
            "nonce": self._nonce,
            "construction_seed": policy.construction_seed,
            "skip_launches": self.skip_launches,
            "timing": self.timing,
            **self.backend.job(),
        }
        child.send(self.job)
        ready = self.next_report(child, policy.import_s)
        if ready is not None:
            self._note_weights(ready)
        return ready

    def _converse(self, child: Child, calls: int | None, *, matched: bool) -> None:
        """Call after call, until there is nothing more to learn."""
        for index in range(self.prepared.calls if calls is None else calls):
            if not self._call(child, index):
                return
        if calls is None:
            self._other_weights(child, matched=matched)

    def _other_weights(self, child: Child, *, matched: bool) -> None:
        if not self.prepared.other_weights or not self.backend.policy.perturb_weights:
            return
        if not matched:
            self.notes.append("other weights not tried: the weights have other names")
            return
        name = "state_other.bin"
        source, target = self.prepared.directory / name, Path(child.directory) / name
        if not self.delivered(target, lambda: deliver(source, target)):
            return
        child.send({"do": "state", "path": name})
        if self.next_report(child, self.backend.policy.call_s) is not None:
            self._call(child, OTHER)

    def _note_weights(self, ready: Message) -> None:
        differing = _strings(ready.get("differing"))
        if differing:
            self.evidence.append(
                Evidence(
                    kind="unmatched_weights",
                    message="no tensor of ModelNew has the name and shape, or the value, of "
                    + ", ".join(differing[:5]),
                    details={"names": differing},
                )
            )

    def _call(self, child: Child, index: int | str) -> bool:
        """One input; False when there is nothing more to learn."""
        directory, number = Path(child.directory), self._first + self.calls
        given, output = f"input_{number}.bin", f"output_{number}.bin"
        target = directory / given
        if not self.delivered(target, lambda: self.prepared.write_input(index, target)):
            return False
        started = time.monotonic()
        seed = derive_seed(self._nonce, 0, number) % (1 << 31)
        request = {"do": "call", "index": number, "input": given, "output": output, "seed": seed}
        child.send(request)
        report = self.next_report(child, self.backend.policy.call_s)
        self.run_s += time.monotonic() - started
        if report is None:
            return False
        if report.get("index") != number:
            self._forged("reported a call that it was not asked for")
            return False
        self.calls += 1
        self.reports.append(report)
        self.launches += _count(report.get("launches"))
        variation = self.prepared.variation(index)
        self.evidence += rules.from_diagnostics(report.get("diagnostics"))
        self.evidence += rules.from_call(report, number, variation)
        comparison = self.prepared.compare(index, directory / output)
        self.matched.append(comparison.ok)
        if self.skip_launches:
            guesses = [directory / f"made_{number}_{k}.bin" for k in range(MAX_GUESSES)]
            right = any(self._guess(index, path) for path in guesses if not comparison.ok)
            self.made.append(right)
            return comparison.ok or right
        self.evidence += rules.from_comparison(comparison, variation)
        return not rules.decisive(self.evidence)

    def _guess(self, index: int | str, path: Path) -> bool:
        return path.is_file() and self.prepared.compare(index, path).ok

    def next_report(self, child: Child, limit_s: float) -> Message | None:
        """The worker's next report, its builds served; None when it stopped or broke the protocol."""
        while True:
            try:
                message = child.receive(limit_s * self.backend.policy.patience, cpu_s=limit_s)
            except ValueError as error:
                self._forged(f"sent bytes that are no message ({error})")
                return None
            if message is None:
                self.early = True
                return None
            if message.get("stage") == "build":
                if not self._serve_build(child, message):
                    return None
                continue
            if message.get("nonce") != self._nonce:
                self._forged("sent a message of its own over the worker's channel")
                return None
            if message.get("stage") == "incident":
                text = f"the candidate {str(message.get('message'))[:300]}"
                self.evidence.append(Evidence(kind="tampering", message=text))
                continue
            if message.get("problem"):
                seen = rules.from_diagnostics(message.get("diagnostics"))
                failure = rules.from_failure(message)
                self.evidence += seen
                if not any(one.message and one.message in failure.message for one in seen):
                    self.evidence.append(failure)
                return None
            return message

    def delivered(self, target: Path, write: Callable[[], None]) -> bool:
        """Put a file into the candidate's directory; False when the candidate has taken its name."""
        try:
            if not os.path.lexists(target):
                write()
                return True
        except OSError:
            if not os.path.lexists(target):
                raise
        message = f"the candidate planted {target.name}, a name that the judge writes to"
        self.evidence.append(Evidence(kind="tampering", message=message))
        return False

    def _forged(self, what: str) -> None:
        self.evidence.append(Evidence(kind="forged_verdict", message=f"the candidate {what}"))

    def _serve_build(self, child: Child, message: Message) -> bool:
        sources = rules.sources_from(message)
        if sources is None:
            self._forged("sent a malformed build request")
            return False
        if len(self.sources) >= self.backend.policy.max_builds:
            child.send({"failure": "too many extensions in one candidate"})
            return True
        self.sources.append(sources)
        started = time.monotonic()
        try:
            built = self.backend.build(sources)
        except BuildFailure as error:
            self.failed_builds += 1
            if self.backend.name == "simt":
                self.notes += rules.missing_libraries(sources)
            answer: Message = {"failure": str(error)}
        else:
            self.built.append(built)
            own = Path(child.directory) / f"extension_{len(self.sources)}.so"
            if not self.delivered(own, lambda: deliver(Path(built.path), own)):
                return False
            self.notes += built.notes
            answer = {
                "path": str(own),
                "seconds": built.seconds,
                "route": built.route,
                "module_prefix": built.module_prefix,
            }
        self.answers.append(answer)
        child.send(answer)
        self.build_s += time.monotonic() - started
        return True


def _strings(value: object) -> list[str]:
    return [str(item)[:200] for item in value][:100] if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
