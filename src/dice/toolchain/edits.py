"""Edits of a text by byte ranges, which keep every line's number."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Edit:
    """Replace the bytes [start, end) by `text`."""

    start: int
    end: int
    text: str


def apply_edits(text: bytes, edits: list[Edit]) -> str:
    """Apply edits. One that lies inside another is swallowed by it."""
    ordered = sorted(edits, key=lambda one: (one.start, -one.end))
    pieces: list[bytes] = []
    position = 0
    for edit in ordered:
        if edit.start < position:
            continue
        pieces += [text[position : edit.start], edit.text.encode()]
        position = edit.end
    pieces.append(text[position:])
    return b"".join(pieces).decode(errors="replace")


def line_breaks(text: bytes) -> str:
    """The line breaks of a text that is to be replaced, continued ones as such."""
    return "".join(
        "\\\n" if line.endswith(b"\\\n") else "\n"
        for line in text.splitlines(keepends=True)
        if line.endswith(b"\n")
    )
