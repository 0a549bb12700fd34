"""Completion -> Candidate: find the kernel file in what the model returned."""

import re
from dataclasses import dataclass

from dice.types import Candidate, Completion, Prompt

_OPENING = re.compile(r"[ \t]*(`{3,}|~{3,})[ \t]*([^\s`]*)[^\n`]*")
_MODEL = re.compile(r"^[ \t]*class[ \t]+ModelNew\b", re.MULTILINE)
_PYTHON = ("", "python", "python3", "py")


def extract(prompt: Prompt, completion: Completion, *, name: str = "candidate") -> Candidate:
    """The kernel file of a completion: its last complete fenced block that defines `ModelNew`, whatever
    language it claims; else one that was cut off; else its last fenced block of Python; else the whole
    text. Forced text is part of the file, reasoning in `<think>` tags is not.

    Extraction never fails: a completion without a usable file becomes a candidate that does not
    compile, and the judge says so.
    """
    text = without_reasoning(completion.text)
    blocks = _fenced(text)
    for accepted in (
        [block for block in blocks if block.complete and _MODEL.search(block.code)],
        [block for block in blocks if _MODEL.search(block.code)],
        [block for block in blocks if block.complete and block.language in _PYTHON],
    ):
        if accepted:
            text = accepted[-1].code
            break
    return Candidate(problem=prompt.problem, code=text, name=name, completion=completion)


def without_reasoning(text: str) -> str:
    """The text behind a leading `<think>` block; nothing where that block was cut off.

    Models whose prompt opens the block return only its end.
    """
    before, tag, after = text.partition("</think>")
    if before.lstrip().startswith("<think>") or (tag and "<think>" not in before):
        return after.lstrip("\n")
    return text


@dataclass(frozen=True, slots=True)
class _Block:
    language: str
    code: str
    complete: bool


def _fenced(text: str) -> list[_Block]:
    """Fenced blocks in order. A fence that names a language inside another block starts it anew."""
    blocks: list[_Block] = []
    fence, language, lines = "", "", list[str]()
    for line in text.splitlines(keepends=True):
        opening = _OPENING.fullmatch(line.rstrip())
        if fence:
            bare = line.rstrip()
            last = bare.removesuffix(fence).rstrip(fence[0])
            if bare.endswith(fence):
                rest = [f"{last}\n"] if last.strip() else []
                blocks.append(_Block(language, "".join([*lines, *rest]), complete=True))
                fence = ""
                continue
            if not (opening and opening[2]):
                lines.append(line)
                continue
            blocks.append(_Block(language, "".join(lines), complete=False))
        if opening:
            fence, language, lines = opening[1], opening[2].lower(), []
    if fence:
        blocks.append(_Block(language, "".join(lines), complete=False))
    return blocks
