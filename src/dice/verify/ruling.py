"""The ruling on one candidate: a trial, a second one without kernels, and what both add up to."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from dice.types import Candidate, Evidence, Verdict, VerdictKind
from dice.verify import attribution, rules
from dice.verify.trial import Backend, Measured, Prepared, Trial


def judge_candidate(backend: Backend, prepared: Prepared, candidate: Candidate) -> Verdict:
    """Rule on one candidate. Never raises for what a candidate does; SandboxError for a broken machine."""
    if prepared.findings:
        return Verdict(
            kind=VerdictKind.UNTESTABLE,
            evidence=prepared.findings,
            notes=prepared.notes,
            backend=backend.name,
        )
    trial = Trial(backend, prepared, candidate)
    trial.run()
    verdict = _rule(trial)
    if verdict.kind is VerdictKind.CORRECT:
        verdict = _with_more(verdict, backend.examine(trial))
    if verdict.kind is VerdictKind.CORRECT:
        verdict = _attribute(verdict, trial)
    rejected = verdict.kind is VerdictKind.NO_CUSTOM_KERNEL and verdict.attribution is not None
    if verdict.kind is VerdictKind.CORRECT or (rejected and backend.policy.timing.rejected):
        verdict = _timed(verdict, backend.time(trial))
    # what was examined after the ruling has its notes too
    return replace(verdict, notes=tuple(dict.fromkeys((*verdict.notes, *trial.notes))))


def _rule(trial: Trial) -> Verdict:
    """From everything that one process showed."""
    assert trial.result is not None
    backend = trial.backend
    evidence = [*trial.evidence, *rules.from_ending(trial.result, early=trial.early)]
    evidence += rules.from_incidents(trial.result.incidents)
    evidence += rules.from_text(trial.result.stdout, trial.result.stderr)
    evidence += rules.from_code(trial.candidate.code)
    evidence += [
        Evidence(kind="tampering", message=f"its extension refers to {', '.join(names)}")
        for names in (attribution.controls(Path(one.path), one.route) for one in trial.built)
        if names
    ]
    notes, nvcc = list(trial.notes), "not_available"
    if not any(one.kind in ("build_failure", "syntax_error") for one in evidence):
        inspection = backend.inspect([one.sources for one in trial.built])
        nvcc = inspection.nvcc
        notes += inspection.notes
        if inspection.evidence is not None:
            evidence.append(inspection.evidence)
    missing = backend.protections.missing
    notes += [f"not protected: {name} ({effect})" for name, effect in missing.items()]
    complete = trial.calls >= trial.prepared.calls
    kind = rules.kind_of(evidence, complete=complete)
    if kind is VerdictKind.CORRECT:
        evidence.append(_matched(trial))
    return Verdict(
        kind=kind,
        evidence=tuple(rules.in_order(evidence, kind)),
        notes=tuple(dict.fromkeys(notes)),
        backend=backend.name,
        nvcc=nvcc,
        build_s=trial.build_s if trial.sources else None,
        run_s=trial.run_s if trial.calls else None,
        outputs_match=_outputs_match(evidence, complete),
    )


def _outputs_match(evidence: Iterable[Evidence], complete: bool) -> bool | None:
    if any(one.kind in ("wrong_output", "no_output") for one in evidence):
        return False
    return True if complete else None


def _matched(trial: Trial) -> Evidence:
    """What stands behind a verdict without a fault."""
    policy = trial.backend.policy
    compared = f"{trial.calls} calls on fresh inputs match the float64 oracle"
    tolerance = f"to {policy.tolerance:g} relative, inputs unchanged"
    checked = f", {trial.backend.checked}" if trial.backend.checked else ""
    return Evidence(
        kind="matched",
        message=f"{compared} {tolerance}; {trial.launches} kernel launches{checked}",
        details={"calls": trial.calls, "launches": trial.launches},
    )


def _attribute(verdict: Verdict, trial: Trial) -> Verdict:
    """Who made the right output, and whether the policy gives credit for that."""
    policy = trial.backend.policy
    found = attribution.attribute(trial)
    verdict = replace(verdict, attribution=found.label)
    if found.evidence is None:
        return verdict
    if policy.earns(found.label) is VerdictKind.CORRECT:
        return replace(verdict, notes=(*verdict.notes, found.evidence.message))
    return _with_more(verdict, [found.evidence])


def _timed(verdict: Verdict, measured: Measured) -> Verdict:
    """A candidate may still turn out wrong while it is timed."""
    notes = (*verdict.notes, *measured.notes)
    verdict = replace(verdict, timing=measured.timing, notes=notes)
    return _with_more(verdict, measured.evidence)


def _with_more(verdict: Verdict, more: Iterable[Evidence]) -> Verdict:
    """The verdict on a candidate without a fault, after further evidence."""
    evidence = [*verdict.evidence, *more]
    kind = rules.kind_of(evidence, complete=True)
    if kind is not VerdictKind.CORRECT:
        evidence = [one for one in evidence if one.kind != "matched"]
    return replace(verdict, kind=kind, evidence=tuple(rules.in_order(evidence, kind)))
