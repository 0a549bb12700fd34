"""Who made a right output: the candidate's kernels, PyTorch, or a library?

Three sources; what they miss is in `docs/threat-model.md`:

- a second run with every launch a no-op. If the output is still right, or PyTorch had made the right
  output by itself anywhere on the way, the kernels do not matter;
- the symbols that the built extension needs from outside, read from the file on the judge's side;
- the operators that PyTorch ran, recorded in the candidate's process, which may hide some.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch

from dice.types import Evidence
from dice.verify import rules
from dice.verify.optrace import FREE
from dice.verify.trial import Trial

CUSTOM, MIXED, LIBRARY, PYTORCH = "custom", "mixed", "library", "pytorch"
UNKNOWN = "unknown"

_ATEN = re.compile(rb"_ZN2at4_ops\d+(\w+?)(?:4call|10redispatch)E")
_INNER = re.compile(rb"_ZN2at(?:6native|3cpu|4cuda|22compositeexplicitautograd)\d+(\w+?)E[RbildN]")
_BLAS = re.compile(
    rb"\0(cblas_\w+|[sdcz](?:gemm|gemv|dot|axpy|scal|syrk|trsm)_|(?:cublas|cudnn|cusparse|cufft|mkl|dnnl)"
    rb"[A-Za-z]\w+)(?=\0)"
)
_CONTROLS = re.compile(
    rb"\0(simt_(?:set|get|diag|warning|alloc|launch)_?\w*|dice_cuda_(?:set_skip|launch_count|launched)"
    rb"|_ZN4simt\d+(?:options|launch_count|skip_launches)E?)(?=\0)"
)
_INTERPRETER = re.compile(
    rb"\0(Py(?:Eval_Get|Frame_|GC_|ThreadState_|Interpreter)\w*|_?Py(?:Frame|Interpreter)\w*)(?=\0)"
)
_PYBIND = ("full", "stock")
"""Routes whose bindings are pybind11's, which refers to the interpreter's frames itself."""
_HIDES = b"ExcludeDispatchKeyGuard"
_SERVICE = ("Create", "Destroy", "SetStream", "GetErrorString", "GetStatusString", "SetMathMode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Attribution:
    """A label, and what speaks against giving credit (None for kernels alone)."""

    label: str
    evidence: Evidence | None


def attribute(trial: Trial) -> Attribution:
    """Who made the output of a trial that was otherwise judged correct; may run the candidate again."""
    if any(one.route == "stock" for one in trial.built):
        trial.notes.append(
            "not attributed: launches of torch's own build can be neither seen nor skipped"
        )
        return Attribution(label=UNKNOWN, evidence=None)
    called = sorted({name for one in trial.built for name in library_calls(Path(one.path))})
    operators = sorted(rules.operators(trial.reports))
    if not trial.launches:
        return _without_kernels(trial, called, operators)
    blind = trial.blind
    if blind is None:
        blind = Trial(trial.backend, trial.prepared, trial.candidate, skip_launches=True)
        blind.run(trial.prepared.calls)
    decoy = _decoy(blind, operators)
    if decoy is not None:
        return Attribution(label=_maker(called), evidence=decoy)
    shared = sorted({*operators, *called})
    if not shared:
        return Attribution(label=CUSTOM, evidence=None)
    message = f"besides its kernels, PyTorch or a library computed: {_list(shared)}"
    evidence = Evidence(kind="mixed_with_pytorch", message=message, details={"operators": shared})
    return Attribution(label=MIXED, evidence=evidence)


def _without_kernels(trial: Trial, called: list[str], operators: list[str]) -> Attribution:
    message = "ModelNew.forward launched no kernel of an extension"
    kind = "no_kernel_launched"
    if trial.failed_builds:
        kind = "fallback"
        message += ": its extension did not compile, and PyTorch did the work"
    elif called:
        kind = "library_call"
        message += f"; its C++ calls {_list(called)}"
    details: dict[str, object] = {"operators": operators, "called": called}
    evidence = Evidence(kind=kind, message=message, details=details)
    return Attribution(label=_maker(called), evidence=evidence)


def _maker(called: list[str]) -> str:
    return LIBRARY if called else PYTORCH


def _decoy(blind: Trial, operators: list[str]) -> Evidence | None:
    """What the run without kernels says; None when the kernels matter."""
    calls = blind.prepared.calls
    if len(blind.matched) < calls:
        return None
    own = sorted(rules.operators(blind.reports) - set(operators))
    if all(blind.matched):
        if own:
            message = f"with its kernels switched off PyTorch takes over ({_list(own)})"
            return Evidence(kind="fallback", message=message, details={"operators": own})
        message = "the output is right with every kernel switched off: the kernels do not make it"
        return Evidence(kind="decoy_kernel", message=message)
    if all(map(max, zip(blind.matched, blind.made, strict=True))):
        message = (
            "PyTorch makes the right output with every kernel switched off; kernels only copy it"
        )
        return Evidence(kind="decoy_copy", message=message, details={"operators": operators})
    return None


def library_calls(path: Path) -> set[str]:
    """Computing functions of PyTorch and of BLAS-like libraries that a shared object refers to.

    More than it calls, perhaps, never less: any occurrence of such a symbol's name counts.
    """
    try:
        data = path.read_bytes()
    except OSError:
        return set()
    found: set[str] = set()
    for name in _ATEN.findall(data) + _INNER.findall(data):
        operator = _operator(name.decode())
        if operator not in FREE and not _is_view(operator):
            found.add(f"at::{operator}")
    if _HIDES in data:
        found.add("operators that hide from the dispatcher")
    for name in _BLAS.findall(data):
        text = name.decode()
        if not any(word in text for word in _SERVICE):
            found.add(text)
    return found


def controls(path: Path, route: str) -> list[str]:
    """What a shared object, built by `route`, refers to that only an attack on its own process needs."""
    try:
        data = path.read_bytes()
    except OSError:
        return []
    found = set(_CONTROLS.findall(data))
    if route not in _PYBIND:
        found |= set(_INTERPRETER.findall(data))
    return sorted(name.decode() for name in found)


def _operator(symbol: str) -> str:
    """The operator in a symbol that may end with its overload: `empty` of `empty_memory_format`."""
    for at, character in enumerate(symbol):
        base, overload = symbol[:at], symbol[at + 1 :]
        if character == "_" and overload in _overloads(base):
            return base
    return symbol


def _overloads(operator: str) -> list[str]:
    packet = getattr(torch.ops.aten, operator, None) if operator else None
    return [] if packet is None else list(packet.overloads())


def _is_view(operator: str) -> bool:
    names = _overloads(operator)
    packet = getattr(torch.ops.aten, operator, None)
    return any(getattr(packet, name).is_view for name in names)


def _list(names: Iterable[str]) -> str:
    shown = list(names)
    more = f" and {len(shown) - 5} more" if len(shown) > 5 else ""
    return ", ".join(shown[:5]) + more
