"""How large is a problem? Found out on meta tensors, which have shapes and no memory.

Runs the problem's own code, so it belongs into a confined process. What cannot run on meta tensors is
measured for real, if it fits into memory.
"""

import warnings
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from dice.verify import trees
from dice.verify.reduce import Measured

_REAL_LIMIT = 1 << 24


class _WorkCounter(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up the elements that operations return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.elements = 0

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        out = func(*args, **(kwargs or {}))
        self.elements += sum(tensor.numel() for tensor in trees.tensors(out))
        return out


def measure(code: str) -> Measured:
    """Sizes of the problem in `code`. Never raises: `error` says what did not work."""
    try:
        return _measure_on(code, "meta")
    except Exception as error:
        first = error
    try:
        elements = _input_elements(code)
        if elements > _REAL_LIMIT:
            return Measured(elements=elements, work=elements, error=_one_line(first))
        return _measure_on(code, "cpu")
    except Exception as error:
        return Measured(error=_one_line(error))


def _one_line(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error) else ''}"


def load_namespace(code: str, name: str = "problem") -> dict[str, Any]:
    """Run a module file and return its globals."""
    namespace: dict[str, Any] = {"__name__": name, "__file__": f"{name}.py"}
    exec(compile(code, f"{name}.py", "exec"), namespace)
    return namespace


def _measure_on(code: str, device: str) -> Measured:
    with warnings.catch_warnings(), torch.no_grad(), torch.device(device):
        warnings.simplefilter("ignore")
        namespace = load_namespace(code)
        init = namespace["get_init_inputs"]() if "get_init_inputs" in namespace else []
        model = namespace["Model"](*init)
        inputs = namespace["get_inputs"]()
        counter, flops = _WorkCounter(), FlopCounterMode(display=False)
        with counter, flops:
            output = model(*inputs)
    state = [*model.parameters(), *model.buffers()]
    every = [*trees.tensors(list(inputs)), *state, *trees.tensors(output)]
    return Measured(
        elements=sum(tensor.numel() for tensor in every),
        work=counter.elements,
        flops=flops.get_total_flops(),
    )


def _input_elements(code: str) -> int:
    with torch.device("meta"), torch.no_grad():
        inputs = load_namespace(code)["get_inputs"]()
    return sum(tensor.numel() for tensor in trees.tensors(list(inputs)))
