"""Load a built extension as a module with the candidate's functions."""

import ctypes
import importlib.machinery
import importlib.util
import re
import sys
import types

from dice.errors import BuildFailure
from dice.toolchain.bindings import MODULE_NAME
from dice.toolchain.cache import digest
from dice.toolchain.source import BuiltExtension

_UNDEFINED = re.compile(r"undefined symbol: (\w+)")


def load_module(built: BuiltExtension) -> types.ModuleType:
    """The extension as a module named as the candidate named it.

    The shared object runs the candidate's static initialisers: load it only in a process that may be
    lost. Raises BuildFailure for a symbol that is declared and defined nowhere.
    """
    import torch  # noqa: F401  (its libraries must be loaded first)

    # PyInit's name is the last part; pybind11 tells modules apart by the whole name.
    name = f"dice_{digest(built.path)}.{MODULE_NAME}"
    loader = importlib.machinery.ExtensionFileLoader(name, str(built.path))
    spec = importlib.util.spec_from_file_location(name, built.path, loader=loader)
    assert spec is not None
    before = sys.getdlopenflags()
    sys.setdlopenflags(before & ~ctypes.RTLD_GLOBAL)
    try:
        native = importlib.util.module_from_spec(spec)
        loader.exec_module(native)
    except ImportError as error:
        raise BuildFailure(_explain(str(error))) from error
    finally:
        sys.setdlopenflags(before)
    module = types.ModuleType(built.sources.name)
    module.__file__ = str(built.path)
    for name in dir(native):
        if name.startswith(built.module_prefix) and not name.startswith("__"):
            setattr(module, name.removeprefix(built.module_prefix), getattr(native, name))
    module.__dict__["__dice_native__"] = native
    return module


def _explain(message: str) -> str:
    found = _UNDEFINED.search(message)
    if found is None:
        reason = re.sub(r"/[^\s:]*/", "", message)[:200]
        return f"the compiled extension cannot be loaded: {reason}"
    return f"declared but defined nowhere: {_readable(found[1])}"


def _readable(symbol: str) -> str:
    """The qualified name in a mangled symbol, without its parameters (no program is run here)."""
    names = []
    rest = symbol.removeprefix("_ZN").removeprefix("_Z")
    while (length := re.match(r"\d+", rest)) is not None:
        end = length.end() + int(length[0])
        names.append(rest[length.end() : end])
        rest = rest[end:]
    return "::".join(names) or symbol
