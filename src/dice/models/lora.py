"""LoRA adapters in peft's layout (adapter_config.json, adapter_model.safetensors), merged while loading.

An adapted matrix becomes W + s B A with s = alpha / r, or alpha / sqrt(r) with rank-stabilised scaling; the
sum is in float32, rounded once to the model's type (LoRA, arXiv 2106.09685; rsLoRA, arXiv 2312.03732).
Whole tensors that were trained beside it (`modules_to_save`) replace the checkpoint's. `peft` itself is not
needed. Not covered, and refused: DoRA, trained biases, layer replication, initialisations that change the
base weights (PiSSA, OLoRA, ...), other adapter types.
"""

import math
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from dice.errors import ModelError
from dice.models.generation import read_json
from dice.models.weights import Shape, TensorInfo, complain, read_header, read_tensor

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
_PREFIX = "base_model.model."
_PART = re.compile(r"(.+)\.(lora_A|lora_B|lora_embedding_A|lora_embedding_B)(\.weight)?")
_PLAIN_INITS = (None, True, False, "gaussian", "eva", "orthogonal")
_REFUSED_FIELDS = (
    "alora_invocation_tokens",
    "fan_in_fan_out",
    "layer_replication",
    "lora_bias",
    "target_parameters",
    "trainable_token_indices",
    "use_bdlora",
    "use_dora",
    "use_qalora",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _LowRank:
    """What is added to one matrix: scale x (B @ A), transposed for an embedding."""

    down: tuple[str, TensorInfo]
    up: tuple[str, TensorInfo]
    scale: float
    transposed: bool


class LoraAdapter:
    """An adapter whose every tensor fits a model with parameters `wanted`.

    Raises:
        ModelError: not a LoRA adapter in peft's layout, a variant that is not covered, or tensors that do
            not fit the model.
    """

    def __init__(self, folder: Path, wanted: dict[str, Shape], *, tied: bool) -> None:
        config = _read_config(folder)
        if not (folder / WEIGHTS).exists():
            raise ModelError(f"{folder} has no {WEIGHTS} (pickled adapters are never loaded)")
        self._low_rank: dict[str, _LowRank] = {}
        self._replaced: dict[str, tuple[str, TensorInfo]] = {}
        parts: dict[str, dict[str, tuple[str, TensorInfo]]] = {}
        unexpected, mis_shaped = [], []
        for key, info in read_header(folder / WEIGHTS).items():
            # A target that peft saved whole beside its low-rank parts keeps a wrapper's name.
            name = key.removeprefix(_PREFIX).replace(".base_layer.weight", ".weight")
            part = _PART.fullmatch(name)
            if part and f"{part[1]}.weight" in wanted:
                parts.setdefault(part[1], {})[part[2]] = (key, info)
            elif name in wanted:
                self._replaced[name] = (key, info)
                if info.shape != wanted[name]:
                    mis_shaped.append(f"{key} {list(info.shape)} instead of {list(wanted[name])}")
            else:
                unexpected.append(key)
        unpaired = []
        for module, found in parts.items():
            target = f"{module}.weight"
            embedding = "lora_embedding_A" in found
            names = ("lora_embedding_A", "lora_embedding_B") if embedding else ("lora_A", "lora_B")
            if set(found) != set(names):
                unpaired += [key for key, _ in found.values()]
                continue
            down, up = (found[name] for name in names)
            rank = _rank(config, module)
            rows, columns = wanted[target][::-1] if embedding else wanted[target]
            for (key, info), shape in ((down, (rank, columns)), (up, (rows, rank))):
                if info.shape != shape:
                    mis_shaped.append(f"{key} {list(info.shape)} instead of {list(shape)}")
            self._low_rank[target] = _LowRank(
                down=down, up=up, scale=_scale(config, module, rank), transposed=embedding
            )
        complain(
            f"{folder}: the adapter does not fit the model",
            {"unexpected": unexpected, "mis-shaped": mis_shaped, "without partner": unpaired},
            f"it was trained on {config.get('base_model_name_or_path') or 'another model'}",
        )
        self._check_tied(folder, tied)
        if not self.targets:
            raise ModelError(f"{folder / WEIGHTS} holds no tensors")

    @property
    def targets(self) -> Collection[str]:
        """Names of the parameters that the adapter changes."""
        return self._low_rank.keys() | self._replaced.keys()

    def __call__(self, name: str, weight: Tensor) -> Tensor:
        """The adapted parameter; `weight` itself where the adapter does not touch it."""
        if name in self._replaced:
            key, info = self._replaced[name]
            weight = read_tensor(info, key).to(weight.device)
        if name not in self._low_rank:
            return weight
        low_rank = self._low_rank[name]
        up, down = (
            read_tensor(info, key).to(weight.device, torch.float32)
            for key, info in (low_rank.up, low_rank.down)
        )
        delta = up @ down
        return weight.float() + low_rank.scale * (delta.T if low_rank.transposed else delta)

    def _check_tied(self, folder: Path, tied: bool) -> None:
        shared = {"model.embed_tokens.weight", "lm_head.weight"} & set(self.targets)
        if tied and shared:
            raise ModelError(
                f"{folder} adapts {', '.join(sorted(shared))}, which this model uses both as embedding and "
                "as head; merge the adapter into a copy with tie_word_embeddings false first"
            )


def _read_config(folder: Path) -> dict[str, Any]:
    if not (folder / CONFIG).exists():
        raise ModelError(f"{folder} is no LoRA adapter: it has no {CONFIG}")
    config = read_json(folder / CONFIG)
    refused = [name for name in _REFUSED_FIELDS if config.get(name)]
    if config.get("bias", "none") != "none":
        refused.append("bias")
    if config.get("init_lora_weights") not in _PLAIN_INITS:
        refused.append("init_lora_weights")
    if config.get("peft_type") != "LORA":
        refused.append("peft_type")
    if refused:
        said = ", ".join(f"{name} {config.get(name)!r}" for name in refused)
        raise ModelError(
            f"{folder / CONFIG}: {said} is not supported, only plain LoRA; merge the adapter into its "
            "base model with peft and load the result"
        )
    if not _is_count(config.get("r")) or not isinstance(config.get("lora_alpha"), int | float):
        raise ModelError(f"{folder / CONFIG} must give a rank r >= 1 and lora_alpha")
    return config


def _rank(config: dict[str, Any], module: str) -> int:
    return int(_by_pattern(config.get("rank_pattern"), module, config["r"]))


def _scale(config: dict[str, Any], module: str, rank: int) -> float:
    alpha = float(_by_pattern(config.get("alpha_pattern"), module, config["lora_alpha"]))
    return alpha / (math.sqrt(rank) if config.get("use_rslora") else rank)


def _by_pattern(patterns: dict[str, Any] | None, module: str, otherwise: Any) -> Any:
    """peft's rule: the first pattern that matches the whole name or a dotted end of it."""
    for pattern, value in (patterns or {}).items():
        if re.match(rf"(.*\.)?({pattern})$", module):
            return value
    return otherwise


def _is_count(value: Any) -> bool:
    return isinstance(value, int) and value >= 1
