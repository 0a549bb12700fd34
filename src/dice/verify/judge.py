"""The ruling. Maps what happened to a `VerdictKind` with evidence; trusts only what it saw itself."""

import logging
import os
import secrets
import shutil
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from dice.errors import BuildFailure
from dice.sandbox import Child, ChildResult, Zygote, features
from dice.toolchain import prelude
from dice.toolchain.build import build
from dice.toolchain.nvcc import compile_check, find_nvcc
from dice.toolchain.source import BuildOptions, ExtensionSources
from dice.types import Candidate, Evidence, Problem, Verdict, VerdictKind
from dice.verify import rules, trees
from dice.verify.correctness import compare
from dice.verify.input_sets import derive_seed
from dice.verify.policy import Policy
from dice.verify.reference import InputCase, PreparedProblem, prepare

logger = logging.getLogger(__name__)

ENTRY = "dice.verify.worker:main"
Message = dict[str, Any]


class Judge:
    """Prepares problems and rules on candidates. One warm parent process serves both.

    Use as a context manager, or call `close`. `on_progress` hears about long steps (the first build of
    the precompiled header). Raises SandboxError or ToolchainError for a broken machine only.
    """

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        build_options: BuildOptions | None = None,
        on_progress: Callable[[str], None] | None = None,
    ) -> None:
        self.policy = policy or Policy()
        self.options = build_options or BuildOptions(check=self.policy.check)
        self.protections = features()
        prelude.ensure_prelude(self.options, on_progress)
        self.library = prelude.library_path(self.options)
        self._nvcc = find_nvcc()
        self._zygote = Zygote(
            preload=("dice.verify.worker", "dice.verify.warm:warm_up"),
            python_path=tuple(path for path in sys.path if os.path.isdir(path)),
        )

    def prepare(self, problem: Problem) -> PreparedProblem:
        """Sizes, inputs, reference outputs and lint of a problem.

        Raises ProblemError, with a message that says what to do, for the author's mistakes.
        """
        return prepare(problem, self._zygote, self.policy)

    def judge(self, prepared: PreparedProblem, candidate: Candidate) -> Verdict:
        """Rule on one candidate. Never raises for what a candidate does."""
        if prepared.findings:
            return Verdict(
                kind=VerdictKind.UNTESTABLE, evidence=prepared.findings, notes=prepared.notes
            )
        private = (str(prepared.directory), str(Path(prepared.problem.path or "/nonexistent")))
        with self._zygote.spawn(
            ENTRY,
            limits=self.policy.limits,
            readable=(str(self.library.parent),),
            private=private,
        ) as child:
            trial = _Trial(self, prepared, candidate, child)
            trial.run()
            return trial.rule()

    def nvcc_check(self, sources: list[ExtensionSources]) -> tuple[str, Evidence | None, list[str]]:
        """("compiled" | "failed" | "unsupported" | "not_available", evidence of a failure, notes)."""
        if self._nvcc is None or not sources:
            return "not_available", None, []
        for one in sources:
            report = compile_check(one)
            if report.status == "failed":
                message = f"nvcc rejects the source: {report.log[:1500]}"
                return "failed", Evidence(kind="nvcc_failed", message=message), []
            if report.status != "ok":
                return "unsupported", None, [f"nvcc check not possible: {report.log[:200]}"]
        return "compiled", None, []

    def close(self) -> None:
        self._zygote.close()

    def __enter__(self) -> "Judge":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@dataclass(slots=True)
class _Trial:
    """One candidate in its process: what was said, seen and built."""

    owner: Judge
    prepared: PreparedProblem
    candidate: Candidate
    child: Child
    evidence: list[Evidence] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    sources: list[ExtensionSources] = field(default_factory=list)
    built: list[ExtensionSources] = field(default_factory=list)
    """Those of `sources` that compiled."""
    build_s: float = 0.0
    run_s: float = 0.0
    launches: int = 0
    failed_builds: int = 0
    calls: int = 0
    early: bool = False
    """Whether the process ended before it was told to."""
    result: ChildResult | None = None
    nonce: str = field(default_factory=lambda: secrets.token_hex(16))

    def run(self) -> None:
        """Talk to the worker until it has been through every input, or something ends it."""
        prepared, policy, directory = self.prepared, self.owner.policy, Path(self.child.directory)
        self.notes += prepared.notes
        for name in ("init", "state"):
            shutil.copyfile(getattr(prepared, name), directory / f"{name}.bin")
        options = self.owner.options
        self.child.send(
            {
                "code": self.candidate.code,
                "nonce": self.nonce,
                "check": options.check,
                "runtime": str(self.owner.library),
                "threads": policy.threads,
                "step_limit": policy.step_limit,
                "construction_seed": policy.construction_seed,
            }
        )
        ready = self._next(policy.import_s)
        if ready is not None:
            matched = not ready.get("unmatched")
            self._note_weights(ready)
            cases = list(enumerate(prepared.cases))
            if all(self._call(index, case) for index, case in cases):
                self._other_weights(matched, directory)
        self.result = self.child.finish()

    def _other_weights(self, matched: bool, directory: Path) -> None:
        other = self.prepared.other_weights
        if other is None or not self.owner.policy.perturb_weights:
            return
        if not matched:
            self.notes.append("other weights not tried: the weights have other names")
            return
        shutil.copyfile(self.prepared.state_other, directory / "state_other.bin")
        self.child.send({"do": "state", "path": "state_other.bin"})
        if self._next(self.owner.policy.call_s) is not None:
            self._call(len(self.prepared.cases), other)

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

    def _call(self, index: int, case: InputCase) -> bool:
        """One input; False when there is nothing more to learn."""
        directory = Path(self.child.directory)
        name, output = f"input_{index}.bin", directory / f"output_{index}.bin"
        shutil.copyfile(case.path, directory / name)
        started = time.monotonic()
        seed = derive_seed(self.nonce, 0, index) % (1 << 31)
        self.child.send(
            {"do": "call", "index": index, "input": name, "output": output.name, "seed": seed}
        )
        report = self._next(self.owner.policy.call_s)
        self.run_s += time.monotonic() - started
        if report is None:
            return False
        self.calls += 1
        self.launches += _count(report.get("launches"))
        self.evidence += rules.from_diagnostics(report.get("diagnostics"))
        self.evidence += rules.from_call(report, index, case.variation)
        self.evidence += self._compare(output, case)
        return not rules.decisive(self.evidence)

    def _compare(self, output: Path, case: InputCase) -> list[Evidence]:
        try:
            value = trees.load(str(output))
        except (OSError, ValueError) as error:
            return [Evidence(kind="no_output", message=f"wrote no readable output: {error}")]
        comparison = compare(value, case.reference, case.oracle, self.owner.policy)
        if comparison.ok:
            return []
        message = comparison.message
        if case.variation != "plain":
            message += f" (inputs: {case.variation})"
        details: dict[str, object] = {
            "reason": comparison.reason,
            "max_error": comparison.max_error,
            "tolerance": comparison.tolerance,
            "mismatched": comparison.mismatched,
        }
        return [Evidence(kind="wrong_output", message=message, details=details)]

    def _next(self, limit_s: float) -> Message | None:
        """The worker's next report, its builds served; None when it stopped or broke the protocol."""
        while True:
            try:
                message = self.child.receive(limit_s * self.owner.policy.patience, cpu_s=limit_s)
            except ValueError as error:
                self._forged(f"sent bytes that are no message ({error})")
                return None
            if message is None:
                self.early = True
                return None
            if message.get("stage") == "build":
                if not self._serve_build(message):
                    return None
                continue
            if message.get("nonce") != self.nonce:
                self._forged("sent a message of its own over the worker's channel")
                return None
            if message.get("problem"):
                seen = rules.from_diagnostics(message.get("diagnostics"))
                failure = rules.from_failure(message)
                self.evidence += seen
                if not any(one.message and one.message in failure.message for one in seen):
                    self.evidence.append(failure)
                return None
            return message

    def _forged(self, what: str) -> None:
        self.evidence.append(Evidence(kind="forged_verdict", message=f"the candidate {what}"))

    def _serve_build(self, message: Message) -> bool:
        sources = rules.sources_from(message)
        if sources is None:
            self._forged("sent a malformed build request")
            return False
        if len(self.sources) >= self.owner.policy.max_builds:
            self.child.send({"failure": "too many extensions in one candidate"})
            return True
        self.sources.append(sources)
        started = time.monotonic()
        try:
            built = build(sources, options=self.owner.options)
        except BuildFailure as error:
            self.failed_builds += 1
            self.notes += rules.missing_libraries(sources)
            self.child.send({"failure": str(error)})
        else:
            self.built.append(sources)
            own = Path(self.child.directory) / f"extension_{len(self.sources)}.so"
            shutil.copyfile(built.path, own)
            self.notes += built.notes
            answer = {
                "path": str(own),
                "seconds": built.seconds,
                "route": built.route,
                "module_prefix": built.module_prefix,
            }
            self.child.send(answer)
        self.build_s += time.monotonic() - started
        return True

    def _matched(self) -> Evidence:
        """What stands behind a verdict without a fault."""
        policy = self.owner.policy
        compared = f"{self.calls} calls on fresh inputs match the float64 oracle"
        tolerance = f"to {policy.relative:g} relative, inputs unchanged"
        checked = ", no out-of-bounds access, uninitialised read or race" if policy.check else ""
        return Evidence(
            kind="matched",
            message=f"{compared} {tolerance}; {self.launches} kernel launches{checked}",
            details={"calls": self.calls, "launches": self.launches},
        )

    def rule(self) -> Verdict:
        """The verdict from everything seen."""
        assert self.result is not None
        evidence = [*self.evidence, *rules.from_ending(self.result, early=self.early)]
        evidence += rules.from_incidents(self.result.incidents)
        evidence += rules.from_text(self.result.stdout, self.result.stderr)
        notes = list(self.notes)
        nvcc = "not_available"
        if not any(one.kind in ("build_failure", "syntax_error") for one in evidence):
            nvcc, failure, more = self.owner.nvcc_check(self.built)
            notes += more
            if failure is not None:
                evidence.append(failure)
        if self.calls and not self.launches:
            message = "ModelNew.forward launched no kernel of an extension"
            if self.failed_builds:
                message += " (its extension did not compile)"
            evidence.append(Evidence(kind="no_kernel_launched", message=message))
        missing = self.owner.protections.missing
        notes += [f"not protected: {name} ({effect})" for name, effect in missing.items()]
        complete = self.calls >= len(self.prepared.cases)
        kind = rules.kind_of(evidence, complete=complete)
        if kind is VerdictKind.CORRECT:
            evidence.append(self._matched())
        return Verdict(
            kind=kind,
            evidence=tuple(rules.in_order(evidence, kind)),
            notes=tuple(dict.fromkeys(notes)),
            backend="simt",
            nvcc=nvcc,
            build_s=self.build_s if self.sources else None,
            run_s=self.run_s if self.calls else None,
        )


def _strings(value: object) -> list[str]:
    return [str(item)[:200] for item in value][:100] if isinstance(value, list) else []


def _count(value: object) -> int:
    return value if isinstance(value, int) and value > 0 else 0
