"""compute-sanitizer over one call of a candidate on a GPU: memory errors, uninitialised reads, races.

An option, because it slows kernels down by ten to a hundred times. The candidate runs as in `gpu_worker`
from extensions that are built already, in a process of its own started under the tool; what the tool
prints is read here. Raises SandboxError when the tool cannot run on this machine (it needs the driver's
debugger interface).
"""

import json
import os
import re
import shutil
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dice import sandbox
from dice.errors import SandboxError
from dice.sandbox.confine import python_roots
from dice.sandbox.wire import Message
from dice.types import Evidence

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
_PLACES = ("/usr/local/cuda/bin", "/opt/cuda/bin")
_FOUND = re.compile(
    r"^=+ (?:Error: )?(?P<text>(?:Invalid|Misaligned|Uninitialized|Race|Barrier|Program hit|"
    r"Potential|Divergent).*)$"
)
_KERNEL = re.compile(r"^=+\s+at (?P<kernel>.+?)(?:\+0x[0-9a-f]+)?(?: in .*)?$")
_THREAD = re.compile(r"by thread \((\d+),(\d+),(\d+)\) in block \((\d+),(\d+),(\d+)\)")
_BROKEN = re.compile(
    r"Device not supported|Unable to (?:find|initialize)|error 999|not supported on"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rerun:
    """What one call of a candidate needs: its job, the answers to its builds, its files."""

    job: Message
    builds: tuple[Message, ...]
    """In the order in which the candidate asked."""
    files: tuple[Path, ...]
    """init.bin, state.bin, input_0.bin."""


def find_sanitizer() -> Path | None:
    """compute-sanitizer on the PATH or beside the CUDA toolkit."""
    found = shutil.which(
        "compute-sanitizer", path=os.pathsep.join([os.environ.get("PATH", ""), *_PLACES])
    )
    return None if found is None else Path(found)


def sanitize(rerun: Rerun, tools: Sequence[str], *, limits: sandbox.Limits) -> list[Evidence]:
    """Run one call under each of `tools`; what they find, the worst first."""
    program = find_sanitizer()
    if program is None:
        raise SandboxError(
            "compute-sanitizer is not installed: it comes with the CUDA toolkit; put it on the PATH"
        )
    found: list[Evidence] = []
    for tool in tools:
        directory = Path(tempfile.mkdtemp(prefix="dice-sanitize-"))
        try:
            for file in rerun.files:
                shutil.copyfile(file, directory / file.name)
            script = {"job": rerun.job, "builds": list(rerun.builds)}
            (directory / "script.json").write_text(json.dumps(script))
            found += _run(program, tool, directory, rerun, limits)
        finally:
            shutil.rmtree(directory, ignore_errors=True)
    return found


def _run(
    program: Path, tool: str, directory: Path, rerun: Rerun, limits: sandbox.Limits
) -> list[Evidence]:
    home = str(program.resolve().parent.parent)
    libraries = {str(Path(str(build["path"])).parent) for build in rerun.builds if "path" in build}
    package = Path(__file__).resolve().parents[2]
    result = sandbox.run(
        [
            *(str(program), "--tool", tool, "--print-limit", "20"),
            *(sys.executable, "-P", "-m", "dice.verify.sanitizer_child", str(directory)),
        ],
        limits=limits,
        cwd=str(directory),
        readable=[home, *python_roots(), *libraries],
        executable=[home, sys.prefix, sys.base_prefix],
        environment={"PYTHONPATH": os.pathsep.join([str(package), *sys.path])},
        gpu=True,
    )
    text = result.stdout + result.stderr
    if _BROKEN.search(text):
        raise SandboxError(f"compute-sanitizer cannot run here: {text.strip().splitlines()[-1]}")
    return parse(text, tool)


def parse(text: str, tool: str) -> list[Evidence]:
    """The tool's findings as evidence, one for each kind and kernel."""
    found: dict[tuple[str, str], Evidence] = {}
    lines = text.splitlines()
    for number, line in enumerate(lines):
        match = _FOUND.match(line)
        if match is None:
            continue
        kernel, thread = "", ""
        for after in lines[number + 1 : number + 6]:
            at = _KERNEL.match(after)
            if at is not None and not kernel:
                kernel = at["kernel"].strip()
            where = _THREAD.search(after)
            if where is not None and not thread:
                x = ",".join(where.groups()[:3])
                block = ",".join(where.groups()[3:])
                thread = f", thread ({x}) of block ({block})"
        kind = _kind(match["text"])
        message = f"compute-sanitizer {tool}: {match['text'].strip()}{thread}"
        if kernel:
            message += f" in {kernel}"
        found.setdefault((kind, kernel), Evidence(kind=kind, message=message[:500]))
    return list(found.values())


def _kind(text: str) -> str:
    if text.startswith("Uninitialized"):
        return "uninitialised"
    if text.startswith(("Race", "Potential")):
        return "race"
    if text.startswith(("Barrier", "Divergent")):
        return "divergent_barrier"
    if text.startswith("Program hit"):
        return "launch_error"
    return "out_of_bounds"
