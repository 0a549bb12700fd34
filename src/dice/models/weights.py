"""Safetensors files -> an SDAR model: checked by their headers first, then read tensor by tensor.

Reads one file or the published sharded layout with its index. Nothing is allocated before names, shapes
and types of all tensors are known to fit the config. Not covered: pickled and quantised weights.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from dice.errors import ModelError
from dice.models.generation import read_json
from dice.models.sdar import SdarConfig, SdarForCausalLM

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
_HEAD, _EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
_FLOATING = {"F64", "F32", "F16", "BF16"}
_IGNORED_SUFFIX = "rotary_emb.inv_freq"
_SHOWN = 4

Shape = tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorInfo:
    """One tensor of a checkpoint, as its file's header describes it."""

    file: Path
    shape: Shape
    dtype: str
    """Safetensors' name of the type: "BF16"."""


def read_headers(folder: Path) -> dict[str, TensorInfo]:
    """Every tensor of a checkpoint folder, without reading one.

    Raises:
        ModelError: no safetensors, a shard that is missing or cut short, or one that lacks a tensor the
            index promises.
    """
    if (folder / SINGLE).exists():
        return read_header(folder / SINGLE)
    if not (folder / INDEX).exists():
        raise ModelError(f"{folder} holds no weights: no {SINGLE}, no {INDEX}{_pickles(folder)}")
    weight_map = read_json(folder / INDEX).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise ModelError(f"{folder / INDEX} has no weight_map")
    shards = sorted({str(shard) for shard in weight_map.values()})
    absent = [shard for shard in shards if not (folder / shard).exists()]
    if absent:
        raise ModelError(
            f"{folder} is incomplete: {len(absent)} of {len(shards)} shards named by {INDEX} are not "
            f"there ({_some(absent)}); fetch the checkpoint again"
        )
    tensors: dict[str, TensorInfo] = {}
    for shard in shards:
        tensors.update(read_header(folder / shard))
    lost = sorted(weight_map.keys() - tensors.keys())
    if lost:
        raise ModelError(
            f"{folder}: {INDEX} names {len(lost)} tensors that no shard holds ({_some(lost)}); "
            "fetch the checkpoint again"
        )
    return tensors


def read_header(path: Path) -> dict[str, TensorInfo]:
    """The tensors of one safetensors file.

    Raises:
        ModelError: not a whole safetensors file.
    """
    with _open(path) as file:
        slices = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118
        return {
            name: TensorInfo(file=path, shape=tuple(one.get_shape()), dtype=one.get_dtype())
            for name, one in slices.items()
        }


def expected_shapes(config: SdarConfig) -> dict[str, Shape]:
    """Names and shapes of the parameters that a config describes; a tied head is not among them."""
    model = empty_model(config)
    shapes = {name: tuple(one.shape) for name, one in model.state_dict().items()}
    if config.tie_word_embeddings:
        del shapes[_HEAD]
    return shapes


def check_tensors(
    folder: Path, config: SdarConfig, tensors: dict[str, TensorInfo], wanted: dict[str, Shape]
) -> None:
    """Refuses a checkpoint that is not exactly what its config describes.

    Raises:
        ModelError: tensors are missing, unexpected, mis-shaped or quantised, or a head that the config
            ties to the embeddings has a value of its own.
    """
    found = {name: one for name, one in tensors.items() if not name.endswith(_IGNORED_SUFFIX)}
    if config.tie_word_embeddings and _HEAD in found:
        _check_tied(folder, found)
        del found[_HEAD]
    mis_shaped = [
        f"{name} {list(found[name].shape)} instead of {list(shape)}"
        for name, shape in wanted.items()
        if name in found and found[name].shape != shape
    ]
    quantised = [
        f"{name} {one.dtype}"
        for name, one in found.items()
        if name in wanted and one.dtype not in _FLOATING
    ]
    complain(
        f"{folder}: the weights do not fit its config.json",
        {
            "missing": wanted.keys() - found.keys(),
            "unexpected": found.keys() - wanted.keys(),
            "mis-shaped": mis_shaped,
            "not in a floating-point type": quantised,
        },
        "use the config.json that these weights were saved with",
    )


def complain(what: str, complaints: dict[str, Iterable[str]], advice: str) -> None:
    """Refuses when any of `complaints` names a tensor.

    Raises:
        ModelError: one message with all of them.
    """
    found = {kind: sorted(names) for kind, names in complaints.items()}
    parts = [f"{len(names)} {kind} ({_some(names)})" for kind, names in found.items() if names]
    if parts:
        raise ModelError(f"{what}: {'; '.join(parts)}; {advice}")


def empty_model(config: SdarConfig) -> SdarForCausalLM:
    """The model without memory for its parameters."""
    with torch.device("meta"):
        return SdarForCausalLM(config)


def load_weights(
    config: SdarConfig,
    tensors: dict[str, TensorInfo],
    *,
    device: torch.device | str,
    dtype: torch.dtype,
    change: Callable[[str, Tensor], Tensor] | None = None,
) -> SdarForCausalLM:
    """The model of `config` with checked tensors, one in memory at a time beside what is loaded.

    Args:
        change: what to put in the place of a tensor, called with it in the file's type on `device`,
            before it is rounded to `dtype`.
    """
    model = empty_model(config)
    state: dict[str, Tensor] = {}
    with ExitStack() as stack:
        files = {
            path: stack.enter_context(_open(path)) for path in {t.file for t in tensors.values()}
        }
        for name in expected_shapes(config):
            tensor = files[tensors[name].file].get_tensor(name).to(device)
            if change is not None:
                tensor = change(name, tensor)
            # A copy: what safetensors returns is a view of the mapped file.
            state[name] = tensor.to(dtype, copy=True).contiguous()
    if config.tie_word_embeddings:
        state[_HEAD] = state[_EMBEDDING]
    model.load_state_dict(state, assign=True)
    model.tie_weights()
    model.eval()
    return model


def read_tensor(info: TensorInfo, name: str) -> Tensor:
    """One tensor on the CPU, in its file's type."""
    with _open(info.file) as file:
        tensor: Tensor = file.get_tensor(name)
        return tensor


def _check_tied(folder: Path, found: dict[str, TensorInfo]) -> None:
    if _EMBEDDING not in found:
        return
    head, embedding = (read_tensor(found[name], name) for name in (_HEAD, _EMBEDDING))
    if not torch.equal(head, embedding):
        raise ModelError(
            f"{folder}: config.json ties {_HEAD} to {_EMBEDDING}, but the weights hold both and they "
            "differ; set tie_word_embeddings to false if the head was trained apart, or remove it"
        )


@contextmanager
def _open(path: Path) -> Iterator[Any]:
    opener: Any = safe_open  # untyped in safetensors
    try:
        with opener(path, framework="pt") as file:
            yield file
    except (OSError, SafetensorError) as error:
        raise ModelError(
            f"{path}: the weights cannot be read: {error}; fetch the file again"
        ) from error


def _pickles(folder: Path) -> str:
    if not list(folder.glob("*.bin")):
        return ""
    return "; its .bin files are pickles, which are never loaded: convert them to safetensors"


def _some(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more
