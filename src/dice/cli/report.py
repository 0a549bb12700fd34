"""Verdicts on a terminal and as JSON."""

from dataclasses import asdict
from typing import Any

from rich.console import Console
from rich.text import Text

from dice.types import Timing, Verdict, VerdictKind

_STYLES: dict[str, str] = {
    VerdictKind.CORRECT: "bold green",
    VerdictKind.UNTESTABLE: "bold yellow",
    VerdictKind.NO_CUSTOM_KERNEL: "bold yellow",
    VerdictKind.HACK: "bold magenta",
}
_NVCC = {
    "compiled": "nvcc compiled it",
    "failed": "nvcc rejected it",
    "unsupported": "nvcc check not possible for this source",
    "not_available": "not compiled by nvcc",
}


_ATTRIBUTION = {
    "custom": "made by its own kernels",
    "mixed": "made by its kernels and PyTorch",
    "library": "made by a library",
    "pytorch": "made by PyTorch",
}


def style_of(kind: str) -> str:
    """How a kind of verdict is printed; what is no kind is an error."""
    return _STYLES.get(kind, "bold red")


def print_verdict(console: Console, title: str, verdict: Verdict) -> None:
    """One line with the ruling, then its evidence, indented."""
    seconds = [
        f"{label} {value:.1f} s"
        for label, value in (("built in", verdict.build_s), ("ran in", verdict.run_s))
        if value is not None
    ]
    origin = [_ATTRIBUTION[verdict.attribution]] if verdict.attribution in _ATTRIBUTION else []
    compiled = (
        [_NVCC.get(verdict.nvcc, verdict.nvcc)] if verdict.backend == "simt" else ["on a GPU"]
    )
    tail = ", ".join([*seconds, *origin, *compiled])
    console.print(
        Text.assemble(
            (f"{title}: ", "bold"),
            (str(verdict.kind), style_of(verdict.kind)),
            (f"  ({tail})", "dim"),
        )
    )
    if verdict.timing is not None:
        for line in timing_lines(verdict.timing):
            _print_hanging(console, "  - ", line)
    for evidence in verdict.evidence:
        for i, line in enumerate(evidence.message.rstrip().splitlines()[:12]):
            _print_hanging(console, "  - " if i == 0 else "    ", line)


def timing_lines(timing: Timing) -> list[str]:
    """The measured speed in sentences: the time, the speedups, the share of the roofline, any refusal."""
    own = timing.runtime
    lines = [
        f"{_us(own.median_us)} a call (80% of {own.calls} calls within {_us(own.p10_us)} to "
        f"{_us(own.p90_us)}), by the judge's clock {_us(own.clock_us)}; {timing.gpu}"
    ]
    for one in timing.speedups:
        base = timing.baselines[one.over]
        lines.append(
            f"{one.value:.2f}x PyTorch {_MODES.get(one.over, one.over)} ({_us(base.median_us)}); "
            f"{100 * one.confidence:.0f}% interval {one.low:.2f} to {one.high:.2f}"
        )
    reached = f"{timing.gbps:.0f} of {timing.peak_gbps:.0f} GB/s"
    if timing.tflops:
        reached += f", {timing.tflops:.1f} of {timing.peak_tflops:.1f} TFLOP/s"
    lines.append(f"reaches {reached}")
    if timing.refused is not None:
        lines.append(f"this time does not count: {timing.refused}")
    return [*lines, *timing.notes]


_MODES = {"eager": "eager", "compile": "with torch.compile"}


def _us(value: float) -> str:
    """Three digits, in the unit that suits them."""
    return f"{value:.3g} us" if value < 999.5 else f"{value / 1e3:.3g} ms"


def print_notes(console: Console, notes: tuple[str, ...]) -> None:
    """What was shrunk, skipped or not protected: once per run, not per candidate."""
    for note in notes:
        _print_hanging(console, "  note: ", note, style="dim")


def _print_hanging(console: Console, lead: str, text: str, style: str = "") -> None:
    """`text` after `lead`; lines that do not fit go on below its beginning."""
    width = max(20, console.width - len(lead))
    for i, part in enumerate(Text(text, style=style).wrap(console, width)):
        console.print(Text(lead if i == 0 else " " * len(lead), style=style) + part)


def verdict_json(verdict: Verdict) -> dict[str, Any]:
    """Plain data for `json.dumps`."""
    return asdict(verdict)
