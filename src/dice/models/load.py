"""Checkpoint folder -> model, tokenizer and generation settings, or a `ModelError` that says why not.

Real checkpoints are untidy; what is forgiven: foreign config spellings, leftovers in the config, a mask
token named differently in the tokenizer's files, a `generation_config.json` that is missing or knows
nothing of block diffusion. What is not: tensors that are missing, unknown or of another shape.
"""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import snapshot_download
from safetensors import SafetensorError
from transformers import AutoTokenizer
from transformers.utils import logging as transformers_logging

from dice.errors import ModelError
from dice.models.registry import register_auto_classes
from dice.models.sdar import SdarConfig, SdarForCausalLM

_logger = logging.getLogger(__name__)
_HUB_FILES = ["*.json", "*.safetensors", "*.jinja", "merges.txt", "*.model"]


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationDefaults:
    """What a checkpoint's `generation_config.json` says about decoding; `None` where it says nothing.

    The last five fields are this project's own keys and are written by `save_model`.
    """

    eos_token_id: tuple[int, ...] = ()
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    max_new_tokens: int | None = None
    template: str | None = None
    denoising_steps: int | None = None
    remasking_strategy: str | None = None
    confidence_threshold: float | None = None
    entropy_bound: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to decode."""

    name: str
    """What the user asked for."""
    model: SdarForCausalLM
    tokenizer: Any
    """A fast tokenizer of `transformers`."""
    mask_token_id: int
    stop_token_ids: frozenset[int]
    template: str
    """Name of the prompt template the model was trained on."""
    generation: GenerationDefaults

    @property
    def block_size(self) -> int:
        return int(self.model.config.block_size)


def load_model(
    name: str | Path,
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype | None = None,
) -> LoadedModel:
    """Loads a folder, a hub id such as `JetLM/SDAR-1.7B-Chat`, or "nano", the model in the package.

    Args:
        dtype: default float32 on a CPU, bfloat16 elsewhere.

    Raises:
        ModelError: no such folder or hub id, not an SDAR checkpoint, no mask token, no stop token, or
            tensors that are missing, unknown or of another shape.
    """
    register_auto_classes()
    folder = _find_folder(str(name))
    config = _load_config(folder)
    if dtype is None:
        dtype = torch.float32 if torch.device(device).type == "cpu" else torch.bfloat16
    tokenizer = _load_tokenizer(folder)
    generation = load_generation_defaults(folder)
    mask_token_id = _mask_token_id(folder, config, tokenizer)
    config.mask_token_id = mask_token_id
    stop_token_ids = _stop_token_ids(folder, generation, config, tokenizer)
    model = _load_weights(folder, config, dtype).to(device).eval()
    return LoadedModel(
        name=str(name),
        model=model,
        tokenizer=tokenizer,
        mask_token_id=mask_token_id,
        stop_token_ids=stop_token_ids,
        template=generation.template or "chat",
        generation=generation,
    )


def load_generation_defaults(folder: Path) -> GenerationDefaults:
    """Reads `generation_config.json`; a missing file says nothing.

    Raises:
        ModelError: the file is no JSON object.
    """
    path = folder / "generation_config.json"
    if not path.exists():
        return GenerationDefaults()
    content = _read_json(path)
    if content.get("do_sample") is False:
        content["temperature"] = 0.0
    eos = content.pop("eos_token_id", None)
    eos_ids = () if eos is None else tuple(eos) if isinstance(eos, list) else (eos,)
    known = {field.name for field in fields(GenerationDefaults)}
    settings = {key: value for key, value in content.items() if key in known}
    return GenerationDefaults(eos_token_id=eos_ids, **settings)


def save_model(
    folder: Path,
    model: SdarForCausalLM,
    tokenizer: Any,
    generation: GenerationDefaults,
    *,
    max_shard_size: str = "5GB",
) -> None:
    """Writes a checkpoint that `load_model` reads: weights, config, tokenizer, generation settings."""
    model.save_pretrained(folder, max_shard_size=max_shard_size)
    tokenizer.save_pretrained(folder)
    settings = {
        field.name: getattr(generation, field.name)
        for field in fields(generation)
        if getattr(generation, field.name) not in (None, ())
    }
    text = json.dumps(settings, indent=2, sort_keys=True) + "\n"
    (folder / "generation_config.json").write_text(text, encoding="utf-8")


def _find_folder(name: str) -> Path:
    if name == "nano":
        folder = Path(str(resources.files("dice.models"))) / "nano"
        if not (folder / "config.json").exists():
            raise ModelError(
                f"the built-in model 'nano' is not in this installation ({folder} holds no "
                "config.json); reinstall the package or name a checkpoint folder"
            )
        return folder
    folder = Path(name).expanduser()
    if folder.is_dir():
        return folder
    if name.count("/") != 1 or name.startswith((".", "/", "~")):
        raise ModelError(
            f"no model folder {folder}; name a folder, a hub id (owner/name) or 'nano'"
        )
    try:
        return Path(snapshot_download(name, allow_patterns=_HUB_FILES))
    except (OSError, ValueError) as error:
        raise ModelError(
            f"{name} is no folder here and could not be fetched from the hub: {error}"
        ) from error


def _read_json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ModelError(f"{path} cannot be read as JSON: {error}") from error
    if not isinstance(content, dict):
        raise ModelError(f"{path} holds {type(content).__name__}, expected a JSON object")
    return content


def _load_config(folder: Path) -> SdarConfig:
    path = folder / "config.json"
    if not path.exists():
        raise ModelError(f"{folder} is not a checkpoint folder: it has no config.json")
    content = _read_json(path)
    if content.get("model_type") != "sdar":
        raise ModelError(
            f"{path} is not an SDAR config: model_type is {content.get('model_type')!r}, "
            "expected 'sdar' (an autoregressive model cannot be decoded by block diffusion)"
        )
    try:
        config: SdarConfig = SdarConfig.from_dict(content)
    except (ValueError, TypeError) as error:
        raise ModelError(f"{path}: {error}") from error
    return config


def _load_tokenizer(folder: Path) -> Any:
    try:
        return AutoTokenizer.from_pretrained(folder)
    except Exception as error:  # transformers and tokenizers raise many kinds, also bare Exception
        raise ModelError(f"{folder} holds no usable tokenizer: {error}") from error


def _mask_token_id(folder: Path, config: SdarConfig, tokenizer: Any) -> int:
    mask_token_id = config.mask_token_id
    if mask_token_id is None:
        mask_token_id = tokenizer.mask_token_id
    if mask_token_id is None:
        raise ModelError(
            f"{folder} names no mask token: set mask_token_id in config.json (SDAR: 151669)"
        )
    if not 0 <= mask_token_id < config.vocab_size:
        raise ModelError(
            f"{folder}: mask_token_id {mask_token_id} is outside the vocabulary "
            f"of {config.vocab_size} tokens"
        )
    if len(tokenizer) > config.vocab_size:
        raise ModelError(
            f"{folder}: the tokenizer has {len(tokenizer)} tokens, the model only {config.vocab_size}"
        )
    return int(mask_token_id)


def _stop_token_ids(
    folder: Path, generation: GenerationDefaults, config: SdarConfig, tokenizer: Any
) -> frozenset[int]:
    if generation.eos_token_id:
        return frozenset(generation.eos_token_id)
    eos = config.eos_token_id if config.eos_token_id is not None else tokenizer.eos_token_id
    if eos is None:
        raise ModelError(
            f"{folder} names no stop token: set eos_token_id in generation_config.json"
        )
    _logger.warning("%s has no stop ids in generation_config.json, using %s", folder, eos)
    return frozenset(eos if isinstance(eos, list) else [eos])


@contextmanager
def _quiet_transformers() -> Iterator[None]:
    # Loading draws a progress bar and prints a report; what it says becomes a ModelError.
    had_bar, level = (
        transformers_logging.is_progress_bar_enabled(),
        transformers_logging.get_verbosity(),
    )
    transformers_logging.disable_progress_bar()
    transformers_logging.set_verbosity_error()
    try:
        yield
    finally:
        transformers_logging.set_verbosity(level)
        if had_bar:
            transformers_logging.enable_progress_bar()


def _load_weights(folder: Path, config: SdarConfig, dtype: torch.dtype) -> SdarForCausalLM:
    try:
        with _quiet_transformers():
            model, info = SdarForCausalLM.from_pretrained(
                folder,
                config=config,
                dtype=dtype,
                use_safetensors=True,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
    except (OSError, SafetensorError) as error:
        raise ModelError(f"{folder}: the weights cannot be read: {error}") from error
    unknown = {key for key in info["unexpected_keys"] if not key.endswith("rotary_emb.inv_freq")}
    complaints = [
        _complaint("missing", sorted(info["missing_keys"])),
        _complaint("unknown", sorted(unknown)),
        _complaint(
            "mis-shaped",
            [
                f"{name} {list(found)} instead of {list(wanted)}"
                for name, found, wanted in sorted(info["mismatched_keys"])
            ],
        ),
    ]
    if any(complaints):
        raise ModelError(
            f"{folder}: the weights do not fit its config.json: "
            + "; ".join(complaint for complaint in complaints if complaint)
        )
    result: SdarForCausalLM = model
    return result


def _complaint(kind: str, names: list[str], shown: int = 4) -> str:
    if not names:
        return ""
    more = f" and {len(names) - shown} more" if len(names) > shown else ""
    return f"{len(names)} {kind} ({', '.join(names[:shown])}{more})"
