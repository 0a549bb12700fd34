"""The candidate's process on a GPU: as `worker`, with CUDA instead of the emulator.

Besides what `worker` does, it synchronises the whole device after a call (work that a candidate left on
a stream of its own counts), fills fresh memory with NaN so that an unwritten output shows, and turns
CUDA's errors into reports. CUDA is initialised here, never in the warm parent.
"""

import random
from collections.abc import Callable
from typing import Any

import torch

from dice.sandbox.wire import Channel, Message
from dice.toolchain import intercept
from dice.toolchain.cuda import launches
from dice.verify import trees
from dice.verify.standby import WARM
from dice.verify.worker import Worker, serve

DEVICE = "cuda"
MAX_FILE_BYTES = 64 << 30
_COPY_SHARE = 0.25
"""Inputs are copied for comparison when they take less than this share of the free memory."""
_PART = 1 << 26

# taken before a candidate can replace them
_synchronize: Callable[[], None] = getattr(torch._C, "_cuda_synchronize", torch.cuda.synchronize)
_equal, _clone = torch.equal, torch.Tensor.clone
_load, _tensors = trees.load, trees.tensors
_deterministic = torch.use_deterministic_algorithms


def main(channel: Channel) -> int:
    """Entry of the process: a candidate, then calls until the judge is satisfied."""
    start_cuda()
    channel.send(WARM)
    return serve(channel, GpuWorker)


def start_cuda() -> None:
    """Everything that the driver does once for a process."""
    torch.cuda.init()  # type: ignore[no-untyped-call]
    _synchronize()


class GpuWorker(Worker):
    """State of one candidate between calls, on a GPU."""

    def open_backend(self) -> None:
        start_cuda()
        self._fill = not self._job.get("timing")
        self._launches = launches.load(self._job["launch_library"])
        self._launches.skip(bool(self._job.get("skip_launches")))
        self._launches.count(), self._launches.kernels()  # looked up before the candidate watches
        intercept.install(build=self._ask_for_build, map_device=False)

    def skip_launches(self) -> None:
        self._launches.skip(True)

    def launch_count(self) -> int:
        return self._launches.count()

    def diagnostics(self) -> list[Message]:
        return []

    def load_inputs(self, path: str) -> Any:
        loaded = _load(path, max_bytes=MAX_FILE_BYTES, device=DEVICE)
        return trees.with_strides(loaded, path)

    def before_call(self, seed: int) -> None:
        torch.manual_seed(seed)
        random.seed(seed)
        if self._fill:
            fill_fresh_memory(True)

    def after_call(self) -> None:
        _synchronize()
        fill_fresh_memory(False)

    @staticmethod
    def place(model: torch.nn.Module) -> torch.nn.Module:
        return model.to(DEVICE)

    def remember(self, inputs: Any) -> Any:
        """What tells later whether the inputs changed."""
        tensors = _tensors(inputs)
        size = sum(t.numel() * t.element_size() for t in tensors)
        free, _ = torch.cuda.mem_get_info()
        if size < _COPY_SHARE * free:
            return [_clone(tensor) for tensor in tensors]
        return [tensor.cpu() for tensor in tensors]

    def unchanged(self, inputs: Any, remembered: Any) -> bool:
        pairs = zip(_tensors(inputs), remembered, strict=True)
        return all(_equal(_bits(now), _bits(before.to(now.device))) for now, before in pairs)

    def digest(self, tensor: torch.Tensor) -> str:
        """Of an output, to see later whether it changed: two sums over its bytes, one weighted."""
        sums = []
        for part in torch.split(_bits(tensor), _PART):
            wide = part.long()
            odd = 2 * torch.arange(part.numel(), device=part.device) + 1
            sums += [wide.sum(), (wide * odd).sum()]
        values = torch.stack(sums).tolist() if sums else []  # one wait for the GPU
        return f"{tensor.numel()}-{values}"


def fill_fresh_memory(on: bool) -> None:
    """Whether `torch.empty` (also from C++) fills its memory with NaN, integers with their maximum."""
    _deterministic(on, warn_only=True)
    torch.utils.deterministic.fill_uninitialized_memory = on  # type: ignore[attr-defined]


def _bits(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor's bytes as whole numbers."""
    flat = tensor.detach().contiguous().reshape(-1)
    if not flat.numel():
        return flat
    raw = flat.view(torch.uint8)
    return raw.view(torch.int32) if raw.numel() % 4 == 0 else raw
