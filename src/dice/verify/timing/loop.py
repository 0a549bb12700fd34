"""The loop that times calls, the same for candidates and baselines, and the inputs that it calls with.

Every call gets values that no call had before, in memory of its own, and finds the caches cold. What the
loop needs of PyTorch is taken when this module is imported, before a candidate can replace it.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import torch

from dice.verify import trees
from dice.verify.trees import Tree

FLUSH_BYTES = 256 << 20
"""Written between calls; several times the second-level cache of today's GPUs."""
NOISE = 0.1
"""Fresh values are the drawn ones less up to this share of each."""

_no_grad = torch.no_grad
_zero = torch.Tensor.zero_
# PyTorch's own wrappers look the C functions up at every call, so those are taken themselves
_synchronize: Callable[[], None] = getattr(torch._C, "_cuda_synchronize", torch.cuda.synchronize)
_clock_ns = time.perf_counter_ns


class Stopwatch(Protocol):
    """Times one call on a device."""

    def measure(self, call: Callable[[], Any]) -> tuple[Any, float]:
        """What `call` returns, and the microseconds from a cold start to the end of all its work."""


class CudaStopwatch:
    """By CUDA's events on the current stream; the whole device is waited for before and after."""

    def __init__(self) -> None:
        self._scratch = torch.empty(FLUSH_BYTES, dtype=torch.uint8, device="cuda")
        self._start = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._stop = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        self._stream = torch.cuda.current_stream()
        self._record = torch._C._CudaEventBase.record
        self._elapsed_ms = torch._C._CudaEventBase.elapsed_time

    def measure(self, call: Callable[[], Any]) -> tuple[Any, float]:
        _zero(self._scratch)
        _synchronize()
        self._record(self._start, self._stream)
        value = call()
        self._record(self._stop, self._stream)
        _synchronize()
        return value, self._elapsed_ms(self._start, self._stop) * 1e3


class HostStopwatch:
    """By the host's clock: what a CPU has."""

    def measure(self, call: Callable[[], Any]) -> tuple[Any, float]:
        started = _clock_ns()
        value = call()
        return value, (_clock_ns() - started) / 1e3


def stopwatch(device: str) -> Stopwatch:
    """The one for "cuda" or "cpu"."""
    return CudaStopwatch() if device == "cuda" else HostStopwatch()


def time_calls(
    watch: Stopwatch, model: Callable[..., Any], inputs: Sequence[Sequence[Any]]
) -> tuple[list[Any], list[float]]:
    """Call `model` once with each of `inputs`; all outputs, kept alive, and the microseconds of each."""
    outputs, calls_us = [], []
    with _no_grad():
        for arguments in inputs:
            value, us = watch.measure(lambda given=arguments: model(*given))  # type: ignore[misc]
            outputs.append(value)
            calls_us.append(us)
    return outputs, calls_us


def fresh(inputs: Tree, seed: int) -> Tree:
    """The same inputs with values of their own, reproducible from `seed` on the same kind of device.

    Floating-point values shrink by a random share, each by its own: zeros, signs and symmetric matrices
    stay what they are. Whole numbers stay (they may be indices), their memory is new.
    """
    generators: dict[torch.device, torch.Generator] = {}

    def vary(tensor: torch.Tensor) -> torch.Tensor:
        if not tensor.is_floating_point():
            return tensor.clone()
        if tensor.device not in generators:
            generators[tensor.device] = torch.Generator(tensor.device).manual_seed(seed)
        generator = generators[tensor.device]
        share = torch.rand(tensor.shape, generator=generator, device=tensor.device)
        if _symmetric(tensor):
            share = (share + share.mT) / 2
        return torch.empty_like(tensor).copy_(tensor * (1 - NOISE * share))

    return trees.map_tensors(inputs, vary)


def _symmetric(tensor: torch.Tensor) -> bool:
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2] or tensor.shape[-1] == 1:
        return False
    return bool(torch.equal(tensor, tensor.mT))


def size_of(tree: Tree) -> int:
    """Bytes of all tensors."""
    return sum(tensor.numel() * tensor.element_size() for tensor in trees.tensors(tree))
