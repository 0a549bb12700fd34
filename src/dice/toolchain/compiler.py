"""Run a compiler on hostile text: bounded in time, memory and output, its messages filtered.

A source may include any file of the machine, so only messages at lines of the candidate's own text are
passed on. A message in a header is passed on when that header belongs to the toolchain, at the line of
the candidate that led there.
"""

import os
import re
import shlex
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from dice import sandbox
from dice.errors import BuildFailure, ToolchainError
from dice.toolchain.source import BINDINGS_FILE, CompilerMessage

MAX_OUTPUT_KIB = 256
MAX_FILE_MIB = 256

INSTALL_HINT = (
    "no C++ compiler: the CPU backend needs g++ 11 or newer. "
    "Install it with `apt install g++` (Debian, Ubuntu) or `dnf install gcc-c++` (Fedora, RHEL)."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """How a compiler process ended."""

    returncode: int
    output: str
    timed_out: bool


@cache
def find_compiler() -> Path:
    """`$CXX`, else g++. Raises ToolchainError saying how to install one."""
    found = shutil.which(os.environ.get("CXX") or "g++")
    if found is None:
        raise ToolchainError(INSTALL_HINT)
    return Path(found)


@cache
def compiler_identity(compiler: Path) -> str:
    """Version text and resolved path: part of every cache key."""
    try:
        shown = subprocess.run(
            [compiler, "--version"], capture_output=True, text=True, timeout=30, check=True
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise ToolchainError(f"{compiler} does not run: {error}. {INSTALL_HINT}") from error
    return f"{compiler.resolve()}\n{shown.stdout.splitlines()[0]}"


@cache
def accepts(compiler: Path, flag: str) -> bool:
    """Whether the compiler knows a flag, which one of another version may not."""
    command: list[str | Path] = [compiler, "-Werror", flag, "-xc++", "-E", os.devnull]
    try:
        return subprocess.run(command, capture_output=True, timeout=30, check=False).returncode == 0
    except (OSError, subprocess.SubprocessError):
        return False


@cache
def compiler_roots(compiler: Path) -> tuple[str, ...]:
    """Where a compiler outside the system's directories keeps its programs, libraries and headers."""
    real = compiler.resolve()
    prefix = real.parent.parent
    parts = [prefix / name for name in ("lib", "lib64", "libexec", "include", "share")]
    parts += [path for path in prefix.glob("*-linux-*") if path.is_dir()]
    return tuple(str(p) for p in (compiler.parent, real.parent, *parts) if p.is_dir())


def run_own(command: Sequence[str | Path], *, cwd: Path, timeout_s: float) -> Ran:
    """Run a compiler on our own sources: a timeout and nothing else."""
    try:
        ran = subprocess.run(
            list(map(str, command)),
            cwd=cwd,
            env={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C", "TMPDIR": str(cwd)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            text=True,
            errors="replace",
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Ran(returncode=-1, output="", timed_out=True)
    return Ran(returncode=ran.returncode, output=ran.stdout, timed_out=False)


def run_hostile(
    commands: Sequence[Sequence[str | Path]],
    *,
    cwd: Path,
    readable: Sequence[str],
    executable: Sequence[str] = (),
    timeout_s: float,
    memory_mib: int,
) -> Ran:
    """Run compilers on a candidate's text, one after another until one fails, in the sandbox.

    They read the system's directories, `cwd` and `readable`, and write in `cwd`.
    """
    script = " && ".join(shlex.join(map(str, one)) for one in commands)
    result = sandbox.run(
        ["/bin/sh", "-c", script],
        limits=sandbox.Limits(
            wall_s=timeout_s,
            cpu_s=int(timeout_s) + 5,
            memory_mib=memory_mib,
            file_size_mib=MAX_FILE_MIB,
            output_kib=MAX_OUTPUT_KIB,
        ),
        cwd=str(cwd),
        readable=list(readable),
        executable=(*compiler_roots(find_compiler()), *executable),
        environment={"PATH": os.environ.get("PATH", os.defpath), "LC_ALL": "C"},
    )
    return Ran(
        returncode=-1 if result.exit_code is None else result.exit_code,
        output=result.stderr + result.stdout,
        timed_out=result.timed_out,
    )


_MESSAGE = re.compile(r"^(?P<file>[^:\n]+):(?P<line>\d+):(?:(?P<column>\d+):)? (?P<rest>.*)$")
_INCLUDED = re.compile(r"^(?:In file included|\s+) *from (?P<file>[^:\n]+):(?P<line>\d+)")
_ERROR = re.compile(r"^(?P<kind>fatal error|error): (?P<text>.*)$")


def candidate_messages(
    output: str, own_files: dict[str, str], trusted: Sequence[str]
) -> list[CompilerMessage]:
    """The errors of a compiler's output, each at a line of the candidate.

    `own_files` maps the file names of the candidate's text to that text, `trusted` are folders whose
    headers may be quoted.
    """
    messages: list[CompilerMessage] = []
    last_own: tuple[str, int, int] | None = None
    pending: str | None = None
    for line in output.splitlines():
        included = _INCLUDED.match(line)
        if included is not None:
            if included["file"] in own_files:
                last_own = (included["file"], int(included["line"]), 1)
            continue
        match = _MESSAGE.match(line)
        if match is None:
            continue
        file, number = match["file"], int(match["line"])
        column = int(match["column"] or 1)
        error = _ERROR.match(match["rest"])
        if file in own_files:
            here = (file, number, column)
            if error is not None:
                messages.append(_message(own_files, here, error["kind"], error["text"]))
                pending = last_own = None
            elif pending is not None and "in expansion of macro" in match["rest"]:
                messages.append(_message(own_files, here, "error", pending))
                pending = None
            elif "required from" in match["rest"] or "required by" in match["rest"]:
                last_own = here
        elif error is not None and file.startswith(tuple(trusted)):
            pending = error["text"]
            if last_own is not None:
                messages.append(_message(own_files, last_own, error["kind"], error["text"]))
                pending = last_own = None
    own = [one for one in messages if one.file.split("/")[-1] != BINDINGS_FILE]
    return list(dict.fromkeys(own or messages))


def _message(
    own_files: dict[str, str], where: tuple[str, int, int], kind: str, text: str
) -> CompilerMessage:
    file, number, column = where
    lines = own_files[file].splitlines()
    source_line = lines[number - 1].strip() if 0 < number <= len(lines) else ""
    return CompilerMessage(
        file=file, line=number, column=column, kind=kind, text=text, source_line=source_line[:200]
    )


def failure(ran: Ran, messages: Sequence[CompilerMessage], timeout_s: float) -> BuildFailure:
    """The exception for a compiler run that did not succeed."""
    if ran.timed_out:
        return BuildFailure(f"the compiler was stopped after {timeout_s:.0f} s on this source")
    if messages:
        return BuildFailure("\n".join(str(one) for one in messages[:10]))
    if "out of memory" in ran.output or "Killed signal" in ran.output or ran.returncode < 0:
        return BuildFailure("the compiler ran out of memory or was killed on this source")
    return BuildFailure("the source does not compile (no error lies at one of its own lines)")
