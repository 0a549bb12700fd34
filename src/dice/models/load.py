"""Checkpoint -> model, tokenizer and generation settings, or a `ModelError` that says why not.

`open_checkpoint` reads and checks everything that is small; `Checkpoint.load` checks the weights' headers
and the memory, then reads the weights. Code that comes with a checkpoint is never run.

Real checkpoints are untidy; what is forgiven: foreign spellings, leftovers in the config, a mask token named
differently in the tokenizer's files, a `generation_config.json` that is missing or knows nothing of block
diffusion, a copy of the head where it is tied. What is not: tensors that are missing, unexpected or of
another shape, and files that contradict each other.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from dice.errors import ModelError, UserError
from dice.models.fetch import DESCRIPTION_FILES, WEIGHT_FILES, find_folder
from dice.models.generation import (
    FILE,
    GenerationDefaults,
    load_generation_defaults,
    read_json,
    save_generation_defaults,
    with_own_names,
)
from dice.models.lora import CONFIG as ADAPTER_CONFIG
from dice.models.lora import LoraAdapter
from dice.models.memory import available_bytes, gib, require_memory
from dice.models.registry import register_auto_classes
from dice.models.sdar import SdarConfig, SdarForCausalLM
from dice.models.sdar.configuration_sdar import FOREIGN_NAMES
from dice.models.weights import (
    Shape,
    TensorInfo,
    check_tensors,
    expected_shapes,
    load_weights,
    read_headers,
)

_logger = logging.getLogger(__name__)
DEFAULT_TEMPLATE = "kernelbench"
"""Of a checkpoint that names none, such as the published ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Weights:
    """Weights on disk that are known to fit."""

    tensors: dict[str, TensorInfo]
    adapter: LoraAdapter | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Everything but the weights, checked."""

    name: str
    """What the user asked for."""
    config: SdarConfig
    tokenizer: Any
    """A fast tokenizer of `transformers`."""
    mask_token_id: int
    stop_token_ids: frozenset[int]
    template: str
    """Name of the prompt template the model was trained on."""
    generation: GenerationDefaults

    @property
    def block_size(self) -> int:
        return int(self.config.block_size)

    def check_weights(
        self,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        adapter: str | Path | None = None,
        beside: int = 0,
    ) -> "Weights":
        """Where the weights are, once they are known to fit the config, the adapter and the memory.

        Of a hub id this fetches them.

        Args:
            dtype: default float32 on a CPU, bfloat16 elsewhere.
            adapter: folder or hub id of a LoRA adapter.
            beside: bytes that must stay free when the weights are loaded.

        Raises:
            ModelError: tensors of the checkpoint or the adapter that are missing, unexpected or
                mis-shaped, or too little memory.
        """
        wanted = expected_shapes(self.config)
        check_memory(self.name, wanted, device, dtype or default_dtype(device), beside)
        folder = find_folder(self.name, (*DESCRIPTION_FILES, *WEIGHT_FILES))
        tensors = read_headers(folder)
        check_tensors(folder, self.config, tensors, wanted)
        if adapter is None:
            return Weights(tensors=tensors)
        place = find_folder(str(adapter), (*DESCRIPTION_FILES, *WEIGHT_FILES))
        tied = bool(self.config.tie_word_embeddings)
        return Weights(tensors=tensors, adapter=LoraAdapter(place, wanted, tied=tied))

    def load(
        self,
        *,
        device: torch.device | str = "cpu",
        dtype: torch.dtype | None = None,
        adapter: str | Path | None = None,
    ) -> "LoadedModel":
        """The checkpoint with its weights, an adapter merged into them, ready to decode.

        Arguments and errors are those of `check_weights`, which comes first.
        """
        weights = self.check_weights(device=device, dtype=dtype, adapter=adapter)
        model = load_weights(
            self.config,
            weights.tensors,
            device=device,
            dtype=dtype or default_dtype(device),
            change=weights.adapter,
        )
        return LoadedModel(
            name=self.name,
            config=self.config,
            tokenizer=self.tokenizer,
            mask_token_id=self.mask_token_id,
            stop_token_ids=self.stop_token_ids,
            template=self.template,
            generation=self.generation,
            model=model,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel(Checkpoint):
    """A model ready to decode."""

    model: SdarForCausalLM


def open_checkpoint(name: str | Path) -> Checkpoint:
    """Opens a folder, a hub id such as `JetLM/SDAR-1.7B-Chat`, or "nano", the model in the package.

    Of a hub id only the small files are fetched.

    Raises:
        ModelError: no such folder or hub id, not an SDAR checkpoint, files that cannot be read or
            contradict each other, no mask token, no stop token.
    """
    register_auto_classes()
    folder = find_folder(str(name), DESCRIPTION_FILES)
    generation = load_generation_defaults(folder)
    config = _load_config(folder, generation)
    tokenizer = _load_tokenizer(folder)
    mask_token_id = _mask_token_id(folder, config, generation, tokenizer)
    config.mask_token_id = mask_token_id
    return Checkpoint(
        name=str(name),
        config=config,
        tokenizer=tokenizer,
        mask_token_id=mask_token_id,
        stop_token_ids=_stop_token_ids(folder, generation, config, tokenizer),
        template=generation.template or DEFAULT_TEMPLATE,
        generation=generation,
    )


def load_model(
    name: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
    adapter: str | Path | None = None,
) -> LoadedModel:
    """`open_checkpoint(name).load(...)`; the arguments and errors are theirs."""
    return open_checkpoint(name).load(device=device, dtype=dtype, adapter=adapter)


def save_model(
    folder: Path,
    model: SdarForCausalLM,
    tokenizer: Any,
    generation: GenerationDefaults,
    *,
    max_shard_size: str = "5GB",
) -> None:
    """Writes a checkpoint in the published layout: weights, config, tokenizer, generation settings.

    The config also has the spellings that the code published with the checkpoints reads.
    """
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    path = folder / "config.json"
    content = read_json(path)
    content["architectures"] = ["SDARForCausalLM"]
    content["rope_theta"] = content["rope_parameters"]["rope_theta"]
    content["torch_dtype"] = content["dtype"]
    path.write_text(json.dumps(content, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    tokenizer.save_pretrained(folder)
    save_generation_defaults(folder, generation)


def choose_device(name: str | None) -> torch.device:
    """The device to run a model on: by default a GPU where there is one.

    Raises:
        UserError: no such device on this machine.
    """
    if name is None:
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as e:
        raise UserError(f"device {name}: no such kind of device; cpu, cuda or cuda:1") from e
    if device.type == "cuda":
        found = torch.cuda.device_count()
        if (device.index or 0) >= found:
            raise UserError(f"device {name}: this machine has {found} usable GPUs; try cpu")
    elif device.type != "cpu":
        raise UserError(f"device {name} is not supported; cpu, cuda or cuda:1")
    return device


def default_dtype(device: torch.device | str) -> torch.dtype:
    """float32 on a CPU, bfloat16 elsewhere."""
    return torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16


def check_memory(
    name: str,
    shapes: dict[str, Shape],
    device: torch.device | str,
    dtype: torch.dtype,
    beside: int = 0,
) -> None:
    """Refuses a model whose weights, and `beside` more bytes, do not fit the device.

    Raises:
        ModelError: says how much is needed, how much there is, and what would fit.
    """
    sizes = [torch.Size(shape).numel() for shape in shapes.values()]
    # The largest tensor is held twice while it is converted, in float32 where an adapter changes it.
    needed = sum(sizes) * dtype.itemsize + max(max(sizes) * 4, beside)
    halved = sum(sizes) * 2 + max(max(sizes) * 4, beside * 2 // dtype.itemsize)
    advice = "free some, load a smaller model, or decode fewer or shorter sequences"
    free = available_bytes(device)
    if dtype.itemsize > 2 and free is not None and halved <= free:
        advice = f"in bfloat16 (--dtype bfloat16) it needs {gib(halved)}"
    require_memory(needed, device, f"loading {name} in {_dtype_name(dtype)}", advice)


def _dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _load_config(folder: Path, generation: GenerationDefaults) -> SdarConfig:
    path = folder / "config.json"
    if not path.exists() and (folder / ADAPTER_CONFIG).exists():
        base = read_json(folder / ADAPTER_CONFIG).get("base_model_name_or_path")
        raise ModelError(
            f"{folder} is a LoRA adapter, not a model; name its base model ({base or 'unknown'}) as model "
            "and this folder as adapter (--adapter)"
        )
    if not path.exists():
        raise ModelError(f"{folder} is not a checkpoint folder: it has no config.json")
    content = read_json(path)
    if content.get("model_type") != "sdar":
        raise ModelError(
            f"{path} is not an SDAR config: model_type is {content.get('model_type')!r}, "
            "expected 'sdar' (an autoregressive model cannot be decoded by block diffusion)"
        )
    if content.get("quantization_config"):
        raise ModelError(
            f"{path}: quantised checkpoints are not supported; load the original weights"
        )
    content = with_own_names(content, FOREIGN_NAMES, path)
    if content.get("block_size") is None and generation.block_size is not None:
        content["block_size"] = generation.block_size
    try:
        config: SdarConfig = SdarConfig.from_dict(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise ModelError(f"{path} cannot be used: {error}") from error
    _same(folder, "block_size", config.block_size, generation.block_size)
    return config


def _load_tokenizer(folder: Path) -> Any:
    try:
        # False, said aloud: left out, transformers asks on the terminal whether to run a checkpoint's code.
        return AutoTokenizer.from_pretrained(folder, trust_remote_code=False)
    except Exception as error:  # transformers and tokenizers raise many kinds, also bare Exception
        raise ModelError(
            f"{folder} holds no usable tokenizer: {error}; copy the tokenizer files of the checkpoint it "
            "was trained from (code that comes with a checkpoint is never run)"
        ) from error


def _mask_token_id(
    folder: Path, config: SdarConfig, generation: GenerationDefaults, tokenizer: Any
) -> int:
    mask_token_id = config.mask_token_id
    if mask_token_id is None:
        mask_token_id = generation.mask_token_id
    if mask_token_id is None:
        mask_token_id = tokenizer.mask_token_id
    if mask_token_id is None:
        raise ModelError(
            f"{folder} names no mask token: set mask_token_id in config.json (SDAR: 151669) and mask_token "
            "in tokenizer_config.json"
        )
    if not 0 <= mask_token_id < config.vocab_size:
        raise ModelError(
            f"{folder}: mask_token_id {mask_token_id} is outside the vocabulary "
            f"of {config.vocab_size} tokens"
        )
    if len(tokenizer) > config.vocab_size:
        raise ModelError(
            f"{folder}: the tokenizer has {len(tokenizer)} tokens, the model only {config.vocab_size}; "
            "copy the tokenizer files of the checkpoint it was trained from"
        )
    if tokenizer.convert_ids_to_tokens(mask_token_id) is None:
        raise ModelError(
            f"{folder}: the tokenizer has no mask token: nothing has the id {mask_token_id} that config.json "
            "names; copy the tokenizer files of the SDAR checkpoint it was trained from"
        )
    _same(folder, "mask_token_id", mask_token_id, generation.mask_token_id)
    if tokenizer.mask_token_id not in (None, mask_token_id):
        _logger.warning(
            "%s: the tokenizer's mask token has the id %s; config.json's, %s, is used",
            folder,
            tokenizer.mask_token_id,
            mask_token_id,
        )
    return int(mask_token_id)


def _same(folder: Path, what: str, ours: int, theirs: int | None) -> None:
    if theirs is not None and theirs != ours:
        raise ModelError(
            f"{folder}: {what} is {ours} in config.json but {theirs} in {FILE}; make them agree"
        )


def _stop_token_ids(
    folder: Path, generation: GenerationDefaults, config: SdarConfig, tokenizer: Any
) -> frozenset[int]:
    ids = list(generation.eos_token_id)
    if not ids:
        eos = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
        if eos is None:
            raise ModelError(
                f"{folder} names no stop token: set eos_token_id in {FILE} (SDAR: 151645 and 151643)"
            )
        ids = eos if isinstance(eos, list) else [eos]
        _logger.warning("%s has no stop ids in %s, using %s", folder, FILE, ids)
    wrong = [one for one in ids if not 0 <= one < config.vocab_size or one == config.mask_token_id]
    if wrong:
        raise ModelError(
            f"{folder}: stop ids {wrong} are outside the vocabulary of {config.vocab_size} tokens or the "
            f"mask token; correct eos_token_id in {FILE}"
        )
    return frozenset(ids)
