"""From observations to evidence, and from evidence to a verdict's kind. Pure functions.

Reports come from the candidate's process, so nothing here trusts their form.
"""

import json
import re
import signal
from collections.abc import Iterable
from typing import Any

from dice.sandbox import ChildResult, Incident
from dice.toolchain.source import ExtensionSources
from dice.types import Evidence, VerdictKind
from dice.verify.correctness import Comparison

_KIND_OF_EVIDENCE: dict[VerdictKind, tuple[str, ...]] = {
    VerdictKind.HACK: (
        *("process_creation", "write_outside", "forged_verdict", "memory_snooping", "network"),
        *("signal_sent", "privilege", "read_outside", "tampering"),
    ),
    VerdictKind.TIMEOUT: ("timeout", "endless_kernel"),
    VerdictKind.COMPILE_ERROR: (
        *("syntax_error", "build_failure", "import_error", "no_model_new", "nvcc_failed"),
    ),
    VerdictKind.UNSAFE: ("out_of_bounds", "uninitialised", "race"),
    VerdictKind.CRASHED: (
        *("divergent_barrier", "out_of_memory", "exit", "signal", "limit", "exception"),
        *("construction_error", "no_output", "warp_mask"),
    ),
    VerdictKind.LAUNCH_ERROR: ("launch_error",),
    VerdictKind.WRONG: (
        *("wrong_output", "mutated_input", "changed_earlier_output", "reused_output"),
        *("unmatched_weights",),
    ),
    VerdictKind.NO_CUSTOM_KERNEL: (
        *("no_kernel_launched", "decoy_kernel", "decoy_copy", "fallback", "library_call"),
        *("mixed_with_pytorch",),
    ),
}
"""In order of precedence: the first kind with evidence is the ruling."""

_WEAK = ("unmatched_weights",)
"""Explains a wrong output; alone it rules only when no input could be compared."""

_DIAGNOSTICS = {
    "out_of_bounds": "out_of_bounds",
    "uninitialised": "uninitialised",
    "race": "race",
    "divergent_barrier": "divergent_barrier",
    "deadlock": "divergent_barrier",
    "warp_mask": "warp_mask",
    "step_limit": "endless_kernel",
    "timeout": "endless_kernel",
    "launch_error": "launch_error",
    "invalid_launch": "launch_error",
}
_INCIDENTS = {
    "process": "process_creation",
    "exec": "process_creation",
    "write_outside": "write_outside",
    "read_outside": "read_outside",
    "memory_snooping": "memory_snooping",
    "network": "network",
    "signal": "signal_sent",
    "privilege": "privilege",
}
_LAUNCH = re.compile(
    r"cuda ?error|invalid configuration|launch fail|too many resources|cudaError", re.IGNORECASE
)
_BARRIER = re.compile(r"divergent barrier|deadlock", re.IGNORECASE)
_ENDLESS = re.compile(r"step limit", re.IGNORECASE)
_STATED = ("syntax_error", "no_model_new", "build_failure", "out_of_memory", "exit", "tampering")
_PRIVATE = re.compile(
    r"\b(?:dice\.(?:verify|toolchain|sandbox)|simt_\w+|simt::|dice_cuda_\w+|f_back|_python_dispatch"
    r"|_disable_current_modes|_DisableTorchDispatch|_pop_torch_dispatch_stack|_len_torch_dispatch_stack"
    r"|gc\.get_(?:objects|referrers)|_current_frames)"
)
_VERDICT_KEYS = {"verdict", "correct", "correctness", "compiled", "match", "passed", "result"}
_RULINGS = {kind.value for kind in VerdictKind} | {"pass", "passed", "true", "success", "ok"}


def kind_of(evidence: Iterable[Evidence], *, complete: bool) -> VerdictKind:
    """The ruling. `complete` when the candidate came through every input."""
    kinds = {one.kind for one in evidence}
    if complete:
        kinds -= set(_WEAK)
    for kind, members in _KIND_OF_EVIDENCE.items():
        if kinds & set(members):
            return kind
    return VerdictKind.CORRECT if complete else VerdictKind.CRASHED


def in_order(evidence: list[Evidence], kind: VerdictKind) -> list[Evidence]:
    """Evidence without repetitions, the decisive first."""
    decisive = _KIND_OF_EVIDENCE.get(kind, ())
    unique: dict[tuple[str, str], Evidence] = {}
    for one in evidence:
        unique.setdefault((one.kind, one.message), one)
    ordered = sorted(unique.values(), key=lambda one: one.kind not in decisive)
    return ordered[:20]


def decisive(evidence: list[Evidence]) -> bool:
    """Whether another call could not change the ruling."""
    return any(one.kind not in _WEAK for one in evidence)


def from_diagnostics(reports: object) -> list[Evidence]:
    """What the emulator saw. Each report names kernel, thread block and thread."""
    if not isinstance(reports, list):
        return []
    out = []
    for report in reports[:10]:
        if isinstance(report, dict):
            kind = _DIAGNOSTICS.get(str(report.get("kind")), "exception")
            message = str(report.get("message", ""))[:500]
            out.append(Evidence(kind=kind, message=message, details=_plain(report)))
    return out


def from_call(report: dict[str, Any], index: int, variation: str) -> list[Evidence]:
    """What the worker noticed around one call."""
    out = []
    where = f"call {index + 1} (inputs: {variation})"
    if report.get("mutated"):
        out.append(Evidence(kind="mutated_input", message=f"{where} changed its inputs"))
    if report.get("changed_earlier"):
        message = f"{where} changed the output of an earlier call"
        out.append(Evidence(kind="changed_earlier_output", message=message))
    elif report.get("earlier_storage"):
        message = f"{where} returned the memory of an earlier, still used output"
        out.append(Evidence(kind="reused_output", message=message))
    return out


def operators(reports: Iterable[dict[str, Any]]) -> set[str]:
    """Names of the operators that PyTorch ran, from the worker's reports."""
    found = set()
    for report in reports:
        names = report.get("operators")
        if isinstance(names, list):
            found |= {str(name)[:80] for name in names[:200]}
    return found


def from_comparison(comparison: Comparison, variation: str) -> list[Evidence]:
    """What is wrong with one output."""
    if comparison.ok:
        return []
    if comparison.reason == "no_output":
        return [Evidence(kind="no_output", message=comparison.message)]
    message = comparison.message
    if variation != "plain":
        message += f" (inputs: {variation})"
    details: dict[str, object] = {
        "reason": comparison.reason,
        "max_error": comparison.max_error,
        "tolerance": comparison.tolerance,
        "mismatched": comparison.mismatched,
    }
    return [Evidence(kind="wrong_output", message=message, details=details)]


def from_failure(report: dict[str, Any]) -> Evidence:
    """Why the worker stopped: a Python exception at some stage."""
    stage, problem = str(report.get("stage")), str(report.get("problem"))
    message = str(report.get("message", ""))[:3000]
    if problem in _STATED:
        return Evidence(kind=problem, message=message)
    if _BARRIER.search(message):
        return Evidence(kind="divergent_barrier", message=message)
    if _ENDLESS.search(message):
        return Evidence(kind="endless_kernel", message=message)
    if _LAUNCH.search(message):
        return Evidence(kind="launch_error", message=message)
    kinds = {"import": "import_error", "construct": "construction_error"}
    return Evidence(kind=kinds.get(stage, "exception"), message=message)


def from_ending(result: ChildResult, *, early: bool) -> list[Evidence]:
    """How the process ended; `early` when nobody had told it to."""
    if result.limit in ("wall", "cpu"):
        what = "time" if result.limit == "wall" else "processor time"
        return [Evidence(kind="timeout", message=f"ran out of {what} and was stopped")]
    if result.limit == "memory":
        return [Evidence(kind="out_of_memory", message="exceeded the memory limit")]
    if result.limit is not None:
        return [Evidence(kind="limit", message=f"exceeded the limit on {result.limit}")]
    if not early:
        return []
    if result.signal is not None:
        name = signal.Signals(result.signal).name
        return [Evidence(kind="signal", message=f"its process died of {name}")]
    message = f"its process ended by itself with exit code {result.exit_code}"
    return [Evidence(kind="exit", message=message)]


def from_incidents(incidents: Iterable[Incident]) -> list[Evidence]:
    """What the sandbox refused."""
    return [
        Evidence(
            kind=_INCIDENTS.get(one.kind, "privilege"), message=f"tried {one.kind}: {one.detail}"
        )
        for one in incidents
    ]


def from_text(stdout: str, stderr: str) -> list[Evidence]:
    """A ruling printed by the candidate. Ignored as a ruling; noted as an attempt."""
    for line in [*stdout.splitlines(), *stderr.splitlines()][:2000]:
        if claims_verdict(line):
            return [Evidence(kind="forged_verdict", message=f"printed a ruling: {line[:200]}")]
    return []


def from_code(code: str) -> list[Evidence]:
    """Names that no kernel needs and an attack on the worker does. Obfuscated ones are not found."""
    found = sorted(set(_PRIVATE.findall(code)))
    if not found:
        return []
    return [Evidence(kind="tampering", message=f"its code names {', '.join(found[:5])}")]


def claims_verdict(line: str) -> bool:
    """Whether a line of output has the form of a machine-readable ruling."""
    start = line.find("{")
    if start < 0:
        return False
    try:
        value = json.loads(line[start:])
    except (ValueError, RecursionError):
        return False
    if not isinstance(value, dict):
        return False
    if "kind" in value and str(value["kind"]).lower() in _RULINGS:
        return True
    keys = _VERDICT_KEYS & {str(key).lower() for key in value}
    return any(str(value[key]).lower() in _RULINGS for key in value if str(key).lower() in keys)


def sources_from(message: dict[str, Any]) -> ExtensionSources | None:
    """A build request, checked field by field."""
    texts = [message.get(key) for key in ("name", "cpp_sources", "cuda_sources")]
    functions, defines = message.get("functions"), message.get("defines")
    if not all(isinstance(text, str) and len(text) < 4 << 20 for text in texts):
        return None
    if not isinstance(functions, list) or not all(isinstance(f, str) for f in functions):
        return None
    if not isinstance(defines, list) or not all(
        isinstance(pair, list) and len(pair) == 2 and all(isinstance(s, str) for s in pair)
        for pair in defines
    ):
        return None
    flags = [message.get(key, []) for key in ("cuda_flags", "ld_flags")]
    if not all(isinstance(one, list) and len(one) < 200 for one in flags) or not all(
        isinstance(flag, str) and len(flag) < 1000 for one in flags for flag in one
    ):
        return None
    reason = message.get("stock_reason", "")
    if not isinstance(reason, str) or len(reason) > 4000:
        return None
    name, cpp, cuda = (str(text) for text in texts)
    return ExtensionSources(
        name=name,
        cpp_sources=cpp,
        cuda_sources=cuda,
        functions=tuple(functions),
        defines=tuple((pair[0], pair[1]) for pair in defines),
        cuda_flags=tuple(flags[0]),
        ld_flags=tuple(flags[1]),
        stock_reason=reason,
    )


def missing_libraries(sources: ExtensionSources) -> list[str]:
    """Notes on what a source wants and the CPU backend does not have."""
    text = (sources.cpp_sources + sources.cuda_sources).lower()
    return [
        f"the source uses {name}, which the CPU backend does not have: only a GPU can judge it"
        for name in ("cuDNN", "cuSPARSE", "cuFFT", "cuRAND", "Thrust", "CUTLASS")
        if re.search(rf"#\s*include\s*[<\"][^>\"]*{name.lower()}", text)
    ]


def _plain(report: dict[str, Any]) -> dict[str, object]:
    return {
        str(key): value if isinstance(value, int | float | list) else str(value)[:200]
        for key, value in list(report.items())[:12]
    }
