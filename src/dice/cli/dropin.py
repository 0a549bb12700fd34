"""The file `dice generate` leaves behind: the verified candidate under a header that says how it was
checked. Written under a temporary name and renamed; a file that is not ours is never overwritten."""

import os
import tempfile
import textwrap
from pathlib import Path
from typing import TYPE_CHECKING

from dice.cli.report import timing_lines
from dice.errors import UserError
from dice.types import Problem

if TYPE_CHECKING:
    from dice.rollout import Attempt

MARK = "# Written by dice-cuda "
_NVCC = {
    "compiled": "nvcc compiled its CUDA source on this machine",
    "failed": "nvcc REJECTED its CUDA source",
    "unsupported": "not judged: it uses headers that the nvcc check does not know",
    "not_available": "NOT compiled by nvcc: there was none on this machine",
}


def check_destination(path: Path, *, force: bool) -> None:
    """Refuse early what `write_dropin` would refuse after minutes of work.

    Raises:
        UserError: the folder is missing, or the file exists and was not written by us.
    """
    if not path.parent.is_dir():
        raise UserError(f"{path.parent} is not a folder; make it or choose another --out")
    if path.is_dir():
        raise UserError(f"{path} is a folder; --out names the file to write")
    if path.exists() and not force:
        with path.open(encoding="utf-8", errors="replace") as f:
            if not f.read(len(MARK)) == MARK:
                raise UserError(
                    f"{path} exists and was not written by dice; move it, or use --out or --force"
                )


def write_dropin(
    path: Path, problem: Problem, attempt: "Attempt", *, version: str, origin: str
) -> None:
    """Write the candidate and its header to `path`, whole or not at all."""
    text = header(problem, attempt, version=version, origin=origin) + attempt.candidate.code
    if not text.endswith("\n"):
        text += "\n"
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as f:
            f.write(text)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def header(problem: Problem, attempt: "Attempt", *, version: str, origin: str) -> str:
    """Comment lines: where the file comes from, how it was checked, how to use it."""
    verdict = attempt.verdict
    lines = [
        f"{MARK}{version}.",
        f"`ModelNew` is a drop-in replacement for `Model` in {problem.path or problem.name}.",
        f"From: {origin}, {attempt.candidate.name}.",
        f"Verdict: {verdict.kind} on the {verdict.backend} backend.",
        *(f"Checked: {e.message}" for e in verdict.evidence),
        *(f"Note: {note}" for note in verdict.notes),
        f"nvcc: {_NVCC.get(verdict.nvcc, verdict.nvcc)}.",
        *(timing_lines(verdict.timing) if verdict.timing else ["Speed was not measured."]),
        "Use: model = ModelNew(*init_args).cuda(); model.load_state_dict(original.state_dict())",
    ]
    wrapped: list[str] = []
    for line in lines:
        line = line.removeprefix("# ")
        wrapped += textwrap.wrap(
            line, 96, initial_indent="# ", subsequent_indent="#   ", break_long_words=False
        )
    return "\n".join(wrapped) + "\n\n"
