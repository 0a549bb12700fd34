"""Which operations PyTorch itself runs during a candidate's forward, called from Python or from C++.

A record against the candidate, kept in its own process: it shows who did the work as long as nobody
hides it (threads that native code starts and code that leaves the dispatcher are not seen).
"""

from collections import Counter
from itertools import permutations
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from dice.verify import trees
from dice.verify.trees import Tree

FREE = frozenset(
    [
        "empty",
        "empty_like",
        "empty_strided",
        "empty_permuted",
        "new_empty",
        "new_empty_strided",
        "new_zeros",
        "new_ones",
        "new_full",
        "zeros",
        "zeros_like",
        "ones",
        "ones_like",
        "full",
        "full_like",
        "arange",
        "scalar_tensor",
        "lift",
        "lift_fresh",
        "lift_fresh_copy",
        "clone",
        "contiguous",
        "copy",
        "copy_",
        "_to_copy",
        "to",
        "detach",
        "detach_",
        "alias",
        "fill_",
        "zero_",
        "resize_",
        "resize_as_",
        "set_",
        "item",
        "_local_scalar_dense",
        "equal",
        "is_same_size",
        "is_nonzero",
        "cat",
        "stack",
        "constant_pad_nd",
        "repeat",
        "_reshape_alias",
        "_unsafe_view",
        "view",
        "reshape",
        "expand",
        "squeeze_",
        "unsqueeze_",
        "transpose_",
        "t_",
        "as_strided_",
        "pin_memory",
        "_pin_memory",
        "record_stream",
        "is_pinned",
        "rand",
        "randn",
        "rand_like",
        "randn_like",
        "randint",
        "manual_seed",
        "sym_size",
        "sym_stride",
        "sym_numel",
        "sym_storage_offset",
    ]
)
"""Allocation, layout, copies and looks at a tensor: no arithmetic."""

_KEPT = 64
_RESULTS = 12
_MAX_ORDERS = 24

_permute = torch.Tensor.permute


def computes(operator: Any) -> bool:
    """Whether an ATen operator does arithmetic: no view, allocation, copy or query."""
    namespace, _, name = operator._schema.name.partition("::")
    return namespace not in ("prim", "profiler") and name not in FREE and not operator.is_view


class OpTrace(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Counts the operators that compute; with `keep_bytes` also keeps results, the newest of them."""

    def __init__(self, keep_bytes: int = 0) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.ops: Counter[str] = Counter()
        self._keep_bytes = keep_bytes
        self._results: dict[tuple[Any, ...], torch.Tensor] = {}

    def twin(self) -> "OpTrace":
        """Another mode with the same record, for another thread."""
        other = OpTrace(self._keep_bytes)
        other.ops, other._results = self.ops, self._results
        return other

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Record, then run."""
        result = func(*args, **(kwargs or {}))
        if computes(func):
            self.ops[func._schema.name.partition("::")[2]] += 1
        if self._keep_bytes and not func.is_view:
            for tensor in trees.tensors(result):
                self._keep(tensor)
        return result

    def _keep(self, tensor: torch.Tensor) -> None:
        if tensor.layout is not torch.strided:
            return
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride())
        self._results.pop(key, None)
        self._results[key] = tensor
        while len(self._results) > 1 and (
            len(self._results) > _KEPT or self._size() > self._keep_bytes
        ):
            del self._results[next(iter(self._results))]

    def _size(self) -> int:
        return sum(t.numel() * t.element_size() for t in self._results.values())

    def guesses(self, output: Tree) -> list[Tree]:
        """Trees like `output` made of PyTorch's own results, the newest first.

        A result stands for an output tensor when it has as many elements, in another order of axes too.
        """
        wanted = trees.tensors(output)
        fitting = [self._fitting(tensor) for tensor in wanted]
        count = max((len(results) for results in fitting), default=0)
        if not all(fitting):
            return []
        out = []
        for k in range(min(count, _RESULTS)):
            chosen = iter([results[min(k, len(results) - 1)] for results in fitting])
            out.append(trees.map_tensors(output, lambda _, chosen=chosen: next(chosen)))
        return out

    def _fitting(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        found: list[torch.Tensor] = []
        for result in reversed(list(self._results.values())):
            if (
                result.numel() == tensor.numel()
                and result.dtype.is_complex == tensor.dtype.is_complex
            ):
                found += [one.to(tensor.dtype) for one in _as_shape(result, tensor.shape)]
        return found


def _as_shape(result: torch.Tensor, shape: torch.Size) -> list[torch.Tensor]:
    """The result reshaped, and with its axes permuted where that gives the shape."""
    out = [result.detach().reshape(shape)]
    if result.dim() == len(shape) <= 4 and sorted(result.shape) == sorted(shape):
        orders = [p for p in permutations(range(result.dim())) if p != tuple(range(result.dim()))]
        out += [
            _permute(result, order)
            for order in orders[:_MAX_ORDERS]
            if tuple(result.shape[axis] for axis in order) == tuple(shape)
        ]
    return out
