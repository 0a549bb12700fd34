"""Completion -> Candidate: find the kernel file in what the model returned."""

import re

from dice.types import Candidate, Completion, Prompt

_FENCE = re.compile(r"```(?:python|py)?[ \t]*\n(.*?)```", re.DOTALL)


def extract(prompt: Prompt, completion: Completion, *, name: str = "candidate") -> Candidate:
    """The kernel file of a completion: its last fenced block that defines `ModelNew`, else its last
    fenced block, else the whole text. Forced text is part of the file.

    Extraction never fails: a completion without a usable file becomes a candidate that does not
    compile, and the judge says so.
    """
    text = completion.text
    fenced = _FENCE.findall(text)
    if fenced:
        with_model = [block for block in fenced if "class ModelNew" in block]
        text = (with_model or fenced)[-1]
    return Candidate(problem=prompt.problem, code=text, name=name, completion=completion)
