"""The CUDA device as Python code sees it, mapped to the CPU.

Tensors stay CPU tensors: `x.is_cuda` is True all the same and `x.device` says "cuda:0" (for every tensor:
one that a GPU program would have left on the CPU is not told apart). Every call that takes a device accepts
"cuda" (string, `torch.device`, or index) and means the CPU.
"""

import contextlib
import functools
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

DEVICE_NAME = "DICE SIMT emulator"

_FACTORIES = (
    *(
        "empty",
        "zeros",
        "ones",
        "full",
        "rand",
        "randn",
        "randint",
        "randperm",
        "arange",
        "linspace",
    ),
    *("logspace", "eye", "tensor", "as_tensor", "scalar_tensor", "empty_strided", "from_numpy"),
    *(
        "empty_like",
        "zeros_like",
        "ones_like",
        "full_like",
        "rand_like",
        "randn_like",
        "randint_like",
    ),
    *(
        "asarray",
        "tril_indices",
        "triu_indices",
        "hann_window",
        "hamming_window",
        "complex",
        "normal",
    ),
    *(
        "bartlett_window",
        "blackman_window",
        "kaiser_window",
        "range",
        "sparse_coo_tensor",
        "Generator",
    ),
)
_TENSOR_FACTORIES = (
    "new_empty",
    "new_zeros",
    "new_ones",
    "new_full",
    "new_tensor",
    "new_empty_strided",
)


def install(torch: Any) -> None:
    """Map the device in this process. Calling it again changes nothing."""
    if getattr(torch.cuda, "_dice_mapped", False):
        return
    to_cpu = _mapper(torch)
    for name in _FACTORIES:
        if hasattr(torch, name):
            setattr(torch, name, _mapped(getattr(torch, name), to_cpu))
    for name in _TENSOR_FACTORIES:
        setattr(torch.Tensor, name, _mapped(getattr(torch.Tensor, name), to_cpu))
    torch.Tensor.to = _mapped(torch.Tensor.to, to_cpu, positional=True)
    torch.Tensor.type = _mapped_type(torch.Tensor.type)
    torch.nn.Module.to = _mapped(torch.nn.Module.to, to_cpu, positional=True)
    torch.nn.Module.to_empty = _mapped(torch.nn.Module.to_empty, to_cpu)
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    torch.nn.Module.cuda = lambda self, *args, **kwargs: self
    torch.Tensor.is_cuda = property(lambda self: True)
    torch.Tensor.is_cpu = property(lambda self: False)
    torch.Tensor.device = _device_property(torch)
    torch.backends.cudnn.is_acceptable = lambda tensor: False
    torch.Tensor.get_device = lambda self: 0
    torch.Tensor.pin_memory = lambda self, *args, **kwargs: self
    torch.load = _mapped(torch.load, to_cpu, keywords=("map_location",))
    torch.set_default_device = _mapped(torch.set_default_device, to_cpu, positional=True)
    _map_device_class(torch, to_cpu)
    _map_module_devices(torch, to_cpu)
    _install_cuda_module(torch)


def _mapper(torch: Any) -> Callable[[Any], Any]:
    original = torch.device

    def to_cpu(value: Any) -> Any:
        if isinstance(value, str) and value.split(":")[0] == "cuda":
            return "cpu"
        if isinstance(value, original) and value.type == "cuda":
            return original("cpu")
        return value

    return to_cpu


def _mapped(
    function: Callable[..., Any],
    to_cpu: Callable[[Any], Any],
    *,
    positional: bool = False,
    keywords: tuple[str, ...] = ("device",),
) -> Callable[..., Any]:
    """`function` with its device argument mapped; an integer device is the CPU too."""

    @functools.wraps(function, updated=())
    def call(*args: Any, **kwargs: Any) -> Any:
        for keyword in keywords:
            if keyword in kwargs:
                given = kwargs[keyword]
                is_index = isinstance(given, int) and not isinstance(given, bool)
                kwargs[keyword] = "cpu" if is_index else to_cpu(given)
        if kwargs.get("pin_memory"):
            kwargs["pin_memory"] = False
        if positional:
            args = tuple(
                "cpu"
                if isinstance(one, int) and not isinstance(one, bool) and index == 1
                else to_cpu(one)
                for index, one in enumerate(args)
            )
        return function(*args, **kwargs)

    return call


def _mapped_type(function: Callable[..., Any]) -> Callable[..., Any]:
    """`Tensor.type`: "torch.cuda.FloatTensor" means "torch.FloatTensor"."""

    @functools.wraps(function)
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        args = tuple(
            one.replace("torch.cuda.", "torch.") if isinstance(one, str) else one for one in args
        )
        return function(self, *args, **kwargs)

    return call


def _device_property(torch: Any) -> property:
    """`Tensor.device`: "cuda:0" for a CPU tensor, the truth for any other."""
    cuda = torch.device("cuda", 0)
    truth = torch._C.TensorBase.device.__get__

    def device(self: Any) -> Any:
        real = truth(self)
        return cuda if real.type == "cpu" else real

    return property(device)


def _map_device_class(torch: Any, to_cpu: Callable[[Any], Any]) -> None:
    """`with torch.device("cuda"):` makes CPU tensors."""
    from torch.utils._device import DeviceContext

    context: Any = DeviceContext
    original = context.__init__

    @functools.wraps(original)
    def construct(self: Any, device: Any) -> None:
        original(self, to_cpu(device))

    context.__init__ = construct


def _map_module_devices(torch: Any, to_cpu: Callable[[Any], Any]) -> None:
    """`nn.Linear(..., device="cuda")`: every layer's constructor maps the keyword."""
    for one in vars(torch.nn).values():
        if isinstance(one, type) and issubclass(one, torch.nn.Module) and "__init__" in vars(one):
            layer: Any = one
            layer.__init__ = _mapped(layer.__init__, to_cpu)


class _Event:
    """`torch.cuda.Event`: remembers the time it was recorded at."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self._time_s = 0.0

    def record(self, stream: Any = None) -> None:
        self._time_s = time.perf_counter()

    def synchronize(self) -> None:
        """Everything has finished."""

    def wait(self, stream: Any = None) -> None:
        """Everything has finished."""

    def query(self) -> bool:
        return True

    def elapsed_time(self, end: "_Event") -> float:
        """Milliseconds from this event to `end`."""
        return (end._time_s - self._time_s) * 1e3


class _Stream:
    """`torch.cuda.Stream`: a no-op that may be entered."""

    cuda_stream = 0
    stream_id = 0
    device_index = 0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Takes what a stream takes."""

    def __enter__(self) -> "_Stream":
        return self

    def __exit__(self, *exception: object) -> None:
        """Nothing to restore."""

    def synchronize(self) -> None:
        """Everything has finished."""

    def wait_stream(self, stream: Any) -> None:
        """Everything has finished."""

    def wait_event(self, event: Any) -> None:
        """Everything has finished."""

    def record_event(self, event: _Event | None = None) -> _Event:
        event = event or _Event()
        event.record()
        return event

    def query(self) -> bool:
        return True


def _install_cuda_module(torch: Any) -> None:
    @contextlib.contextmanager
    def scope(*args: Any, **kwargs: Any) -> Iterator[None]:
        yield

    def seed(value: int) -> None:
        torch.default_generator.manual_seed(int(value))

    properties = SimpleNamespace(
        name=DEVICE_NAME,
        major=9,
        minor=0,
        multi_processor_count=132,
        total_memory=80 * 2**30,
        max_threads_per_multi_processor=2048,
        warp_size=32,
        shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448,
        regs_per_multiprocessor=65536,
        L2_cache_size=52428800,
        is_integrated=False,
    )
    values: dict[str, Any] = {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "is_bf16_supported": lambda *args, **kwargs: True,
        "init": lambda: None,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": lambda device: None,
        "synchronize": lambda device=None: None,
        "empty_cache": lambda: None,
        "ipc_collect": lambda: None,
        "get_device_name": lambda device=None: DEVICE_NAME,
        "get_device_capability": lambda device=None: (9, 0),
        "get_device_properties": lambda device=None: properties,
        "get_arch_list": lambda: ["sm_90"],
        "current_stream": lambda device=None: _Stream(),
        "default_stream": lambda device=None: _Stream(),
        "set_stream": lambda stream: None,
        "stream": scope,
        "device": scope,
        "device_of": scope,
        "Event": _Event,
        "Stream": _Stream,
        "manual_seed": seed,
        "manual_seed_all": seed,
        "seed": torch.seed,
        "memory_allocated": lambda device=None: 0,
        "max_memory_allocated": lambda device=None: 0,
        "memory_reserved": lambda device=None: 0,
        "max_memory_reserved": lambda device=None: 0,
        "reset_peak_memory_stats": lambda device=None: None,
        "mem_get_info": lambda device=None: (80 * 2**30, 80 * 2**30),
    }
    for name, value in values.items():
        setattr(torch.cuda, name, value)
    for kind in (
        "Float",
        "Double",
        "Half",
        "BFloat16",
        "Int",
        "Long",
        "Short",
        "Char",
        "Byte",
        "Bool",
    ):
        setattr(torch.cuda, f"{kind}Tensor", getattr(torch, f"{kind}Tensor"))
    torch.cuda._dice_mapped = True
