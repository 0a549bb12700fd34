"""What a candidate must leave alone in its own process, and how the worker notices.

Two nets. `Seal` remembers the functions that the worker itself depends on and says which were replaced.
`watch` reports, at the moment it happens and straight over the judge's channel, that the candidate looks
through other objects of the process or asks for the runtime's controls; Python's audit hooks cannot be
removed again. Native code that searches memory by itself is seen by neither.
"""

import builtins
import json
import json.encoder
import re
import struct
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch

from dice.sandbox import wire
from dice.verify import trees

_SEARCHES = {"gc.get_objects", "gc.get_referrers", "sys._current_frames"}
_CONTROLS = re.compile(
    r"^(simt_|dice_cuda_(set_skip|launch_count|launched)$|Py(Eval|Frame|GC|ThreadState|Interpreter)|_Py)"
)


class Seal:
    """The functions that saving, comparing and reporting go through, as they were."""

    def __init__(self) -> None:
        self._kept: list[tuple[str, Mapping[str, Any], dict[str, Any]]] = [
            (name, vars(module), {k: v for k, v in vars(module).items() if callable(v)})
            for name, module in (
                *(("builtins", builtins), ("json", json), ("json.encoder", json.encoder)),
                *(("struct", struct), ("trees", trees), ("wire", wire)),
            )
        ]
        self._tensor = dict(vars(torch.Tensor))

    def broken(self) -> list[str]:
        """Names that mean something else than they did."""
        found = [
            f"{module}.{name}"
            for module, namespace, kept in self._kept
            for name, value in kept.items()
            if name != "_" and namespace.get(name) is not value
        ]
        now = vars(torch.Tensor)
        found += [f"torch.Tensor.{k}" for k, v in self._tensor.items() if now.get(k) is not v]
        found += [f"torch.Tensor.{k}" for k in now if k not in self._tensor]
        return found


def watch(report: Callable[[str], None]) -> None:
    """Have `report` hear, from now on, of searches through the process and of its controls."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in _SEARCHES:
            report(f"searches the process's objects ({event})")
        elif event == "ctypes.dlsym" and _CONTROLS.match(str(arguments[1])):
            report(f"asks for {arguments[1]}")

    sys.addaudithook(hook)
