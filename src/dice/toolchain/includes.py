"""A source with its own headers pasted in, so that its text is all that a build needs.

Only headers found beside the source or in folders that it names are pasted; torch's, CUDA's and the system's
stay what they are. A header with `#pragma once` is pasted once, any other as often as it is included: its
guards work as usual.
"""

import re
from collections.abc import Sequence
from pathlib import Path

LIMIT = 1 << 20
"""Characters of one expanded source; a library of headers is more."""
_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>).*$', re.MULTILINE)
_ONCE = re.compile(r"^[ \t]*#[ \t]*pragma[ \t]+once\b.*$", re.MULTILINE)
_DEPTH = 64


class CannotPaste(Exception):
    """The headers are a library, include each other without end, or cannot be read."""


def expand(text: str, *, beside: Path | None, folders: Sequence[Path]) -> str:
    """`text` with every header from `beside` (quoted ones) or `folders` in place of its include.

    Raises CannotPaste.
    """
    return _expand(text, beside, folders, set(), 0)


def _expand(
    text: str, beside: Path | None, folders: Sequence[Path], once: set[Path], depth: int
) -> str:
    if depth > _DEPTH:
        raise CannotPaste("headers that include each other without end")
    pieces, at, size = [], 0, 0
    for match in _INCLUDE.finditer(text):
        quoted, angled = match.groups()
        places = [beside] if quoted and beside is not None else []
        found = _find(quoted or angled, [*places, *folders])
        if found is None:
            continue
        pieces += [text[at : match.start()], _paste(found, folders, once, depth)]
        at = match.end()
        size += sum(map(len, pieces[-2:]))
        if size > LIMIT:
            raise CannotPaste(f"headers of more than {LIMIT} characters")
    return "".join([*pieces, text[at:]])


def _paste(header: Path, folders: Sequence[Path], once: set[Path], depth: int) -> str:
    if header in once:
        return ""
    try:
        text = header.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise CannotPaste(f"{header.name} cannot be read") from error
    if _ONCE.search(text):
        once.add(header)
        text = _ONCE.sub("", text)
    return _expand(text, header.parent, folders, once, depth + 1)


def _find(name: str, places: Sequence[Path]) -> Path | None:
    for place in places:
        path = (place / name).resolve()
        if path.is_file():
            return path
    return None
