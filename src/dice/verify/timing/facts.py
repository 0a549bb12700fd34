"""What every implementation of a problem has to move and compute: the roofline's side of a timing."""

import copy
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.flop_counter import FlopCounterMode

from dice.verify import trees
from dice.verify.input_sets import derive_seed
from dice.verify.reference_child import run_model
from dice.verify.timing.loop import size_of

PROBES = 4
"""Places of a tensor that must all reach the output before its bytes count as read."""
PROBED = 8
"""The largest tensors; what the others hold is not counted."""
_FIRST_SET = 1 << 20
"""Input sets of a timing are numbered from here, those of the checks from 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """Bytes of one call, and its arithmetic."""

    input_bytes: int
    output_bytes: int
    read_bytes: int
    """Of inputs and weights whose every probed part reaches the output."""
    flops: int
    """Of the reference's matrix products and convolutions."""
    stateful: bool = False
    """Whether the output depends on the calls before."""


def timing_seed(code: str, seed: int | None, index: int) -> int:
    """Of the base inputs with this number."""
    return derive_seed(code, seed, _FIRST_SET + index)


def facts_of(model: torch.nn.Module, inputs: list[Any], *, stateful: bool = False) -> Facts:
    """Measured by running the reference, which is copied first."""
    counter = FlopCounterMode(display=False)
    with counter:
        output = run_model(copy.deepcopy(model), inputs)
    sizes = [size_of(tensor) for tensor in _all_read(model, inputs)]
    largest = sorted(range(len(sizes)), key=lambda number: -sizes[number])[:PROBED]
    return Facts(
        input_bytes=size_of(inputs),
        output_bytes=size_of(output),
        read_bytes=sum(
            sizes[number] for number in largest if _reaches(model, inputs, number, output)
        ),
        flops=counter.get_total_flops(),
        stateful=stateful,
    )


def _all_read(model: torch.nn.Module, inputs: list[Any]) -> list[torch.Tensor]:
    return [*trees.tensors(inputs), *model.parameters(), *model.buffers()]


def _reaches(model: torch.nn.Module, inputs: list[Any], number: int, before: Any) -> bool:
    """Whether a NaN at every probed place of one tensor shows in the output."""
    shown = _count_nan(before)
    for probe in range(PROBES):
        try:
            after = _with_nan(model, inputs, number, probe)
        except Exception:  # too large to copy, or a reference that refuses NaN: nothing is known
            return False
        if after is None or _count_nan(after) <= shown:
            return False
    return True


def _with_nan(model: torch.nn.Module, inputs: list[Any], number: int, probe: int) -> Any:
    """The output with one element of tensor `number` replaced; None where it cannot hold a NaN."""
    changed = [trees.map_tensors(one, torch.clone) for one in inputs]
    twin = copy.deepcopy(model)
    tensor = _all_read(twin, changed)[number]
    if not tensor.is_floating_point() or not tensor.numel():
        return None
    with torch.no_grad():
        _place_nan(tensor, (2 * probe + 1) * tensor.numel() // (2 * PROBES))
    return run_model(twin, changed)


def _place_nan(tensor: torch.Tensor, at: int) -> None:
    """At the `at`-th element, whatever the strides."""
    index = []
    for size in reversed(tensor.shape):
        index.append(at % size)
        at //= size
    tensor[tuple(reversed(index))] = float("nan")


def _count_nan(tree: Any) -> int:
    return sum(
        int(tensor.isnan().sum()) for tensor in trees.tensors(tree) if tensor.is_floating_point()
    )
