"""Which functions an ELF object defines: read from its symbol table, no tool started."""

import ctypes
import ctypes.util
import struct
from functools import cache
from pathlib import Path

_SYMTAB = 2
_FUNCTION, _OBJECT = 2, 1


def defined_symbols(path: Path, *, local: bool = False) -> list[str]:
    """Names of the functions and variables that a 64-bit object file or cubin defines.

    Global ones; with `local` all (a cubin's variables are local, and found by name all the same).

    Raises ValueError for a file that is none.
    """
    data = path.read_bytes()
    if data[:5] != b"\x7fELF\x02":
        raise ValueError(f"{path.name} is no 64-bit ELF file")
    (sections_at,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    headers = [
        struct.unpack_from("<IIQQQQIIQQ", data, sections_at + index * size)
        for index in range(count)
    ]
    names: list[str] = []
    for header in headers:
        if header[1] != _SYMTAB:
            continue
        offset, length, strings = header[4], header[5], headers[header[6]][4]
        for at in range(offset, offset + length, 24):
            name, info, _, section = struct.unpack_from("<IBBH", data, at)
            if section and (local or info >> 4) and info & 15 in (_FUNCTION, _OBJECT):
                end = data.index(b"\0", strings + name)
                names.append(data[strings + name : end].decode(errors="replace"))
    return names


@cache
def _demangler() -> ctypes._CFuncPtr | None:  # type: ignore[name-defined]
    name = ctypes.util.find_library("stdc++") or "libstdc++.so.6"
    try:
        function = ctypes.CDLL(name).__cxa_demangle
    except (OSError, AttributeError):
        return None
    function.restype = ctypes.c_void_p
    function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
    return function


def demangle(symbol: str) -> str:
    """The C++ declaration behind a mangled name; the name itself where there is none."""
    function = _demangler()
    if function is None or not symbol.startswith("_Z"):
        return symbol
    status = ctypes.c_int(0)
    found = function(symbol.encode(), None, None, ctypes.byref(status))
    if status.value != 0 or not found:
        return symbol
    text = ctypes.string_at(found).decode(errors="replace")
    ctypes.CDLL(None).free(ctypes.c_void_p(found))
    return text


def base_name(declaration: str) -> str:
    """`k` of "void space::k<float, 2>(float*, int)"."""
    depth, end = 0, len(declaration)
    for index, character in enumerate(declaration):
        if character == "<":
            depth += 1
        elif character == ">":
            depth -= 1
        elif character == "(" and depth == 0:
            end = index
            break
    head = declaration[:end]
    if head.endswith(">"):
        depth = 0
        for index in range(len(head) - 1, -1, -1):
            depth += (head[index] == ">") - (head[index] == "<")
            if depth == 0:
                head = head[:index]
                break
    return head.rsplit("::", 1)[-1].rsplit(" ", 1)[-1].strip()
