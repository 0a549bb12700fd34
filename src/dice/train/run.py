"""A supervised run from its configuration: tokenizer, data, model, training, the saved result."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoTokenizer

from dice.config.schema import ModelSection, SftConfig
from dice.data.records import read_records
from dice.data.store import SampleStore
from dice.data.tokenize import tokenize_pairs
from dice.data.tokenizer import save_tokenizer
from dice.errors import ModelError
from dice.models.generation import GenerationDefaults
from dice.models.load import load_model, save_model
from dice.models.sdar import SdarConfig, SdarForCausalLM
from dice.prompts import template_texts
from dice.train.batches import TokenIds
from dice.train.meter import StepReport
from dice.train.sft import SftResult, train_sft

_VOCAB_MULTIPLE = 64
_MAX_NEW_TOKENS = 1536
"""What a decoder is told to allow: the longest synthetic kernel has about 1,500 tokens."""
SHARD_SIZE = "15MB"


@dataclass(frozen=True, slots=True, kw_only=True)
class SftRun:
    """A finished or interrupted run and where its model is."""

    result: SftResult
    model: Path


def run_sft(
    config: SftConfig,
    run_dir: Path,
    *,
    device: torch.device | str | None = None,
    resume: bool = False,
    on_progress: Callable[[StepReport], None] | None = None,
    should_stop: Callable[[], bool] = lambda: False,
) -> SftRun:
    """Train what `config` says; the model lands in `run_dir/model`, also when interrupted.

    Args:
        device: default CUDA where there is some.

    Raises:
        DataError, ModelError, UserError: what `config` names cannot be used.
    """
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(config.train.seed)
    if config.init_from is not None:
        loaded = load_model(config.init_from, dtype=torch.float32)
        model, tokenizer = loaded.model, loaded.tokenizer
        ids = TokenIds(
            mask=loaded.mask_token_id,
            stop=min(loaded.stop_token_ids),
            pad=min(loaded.stop_token_ids),
            block_size=loaded.block_size,
        )
    else:
        tokenizer = load_tokenizer(Path(config.data.tokenizer))
        ids = token_ids(tokenizer, config.model.block_size)
        model = new_model(config.model, len(tokenizer), ids)
    result = train_sft(
        config,
        model=model,
        store=_samples(config, tokenizer, run_dir),
        ids=ids,
        run_dir=run_dir,
        device=device,
        resume=resume,
        on_progress=on_progress,
        should_stop=should_stop,
    )
    folder = run_dir / "model"
    export(model, tokenizer, ids, folder, template=config.data.template)
    return SftRun(result=result, model=folder)


def load_tokenizer(folder: Path) -> Any:
    """A tokenizer folder in Hugging Face's layout.

    Raises:
        ModelError: there is none.
    """
    if not (folder / "tokenizer.json").exists():
        raise ModelError(f"{folder} holds no tokenizer.json; train a tokenizer or name its folder")
    return AutoTokenizer.from_pretrained(folder)


def token_ids(tokenizer: Any, block_size: int) -> TokenIds:
    """The ids that training needs.

    Raises:
        ModelError: the tokenizer lacks a mask or a stop token.
    """
    for name in ("mask_token_id", "eos_token_id"):
        if getattr(tokenizer, name) is None:
            raise ModelError(f"the tokenizer has no {name}")
    stop = int(tokenizer.eos_token_id)
    pad = stop if tokenizer.pad_token_id is None else int(tokenizer.pad_token_id)
    return TokenIds(mask=int(tokenizer.mask_token_id), stop=stop, pad=pad, block_size=block_size)


def new_model(section: ModelSection, vocab_size: int, ids: TokenIds) -> SdarForCausalLM:
    """A model with fresh weights, from torch's current random state. The vocabulary is filled up to a
    multiple of 64, which matrix products like."""
    shape = section.model_dump(exclude={"rope_theta"})
    config = SdarConfig(
        **shape,
        vocab_size=-(-vocab_size // _VOCAB_MULTIPLE) * _VOCAB_MULTIPLE,
        rope_parameters={"rope_type": "default", "rope_theta": section.rope_theta},
        mask_token_id=ids.mask,
        pad_token_id=ids.pad,
        eos_token_id=ids.stop,
    )
    return SdarForCausalLM(config)


def export(
    model: SdarForCausalLM, tokenizer: Any, ids: TokenIds, folder: Path, *, template: str
) -> None:
    """Save in bfloat16, in Hugging Face's layout, shards of at most 15 MB."""
    weights = SdarForCausalLM(model.config).to(torch.bfloat16)
    weights.load_state_dict(model.state_dict())
    generation = GenerationDefaults(
        eos_token_id=(ids.stop,),
        temperature=1.0,
        max_new_tokens=_MAX_NEW_TOKENS,
        template=template,
        template_texts=template_texts(template),
        remasking_strategy="low_confidence_dynamic",
        confidence_threshold=0.9,
    )
    save_model(folder, weights, tokenizer, generation, max_shard_size=SHARD_SIZE)
    save_tokenizer(tokenizer, folder)


def _samples(config: SftConfig, tokenizer: Any, run_dir: Path) -> SampleStore:
    """The tokenised pairs, kept in the run's folder for a resume."""
    path = run_dir / "samples.npz"
    if path.exists():
        return SampleStore.load(path)
    records = read_records(Path(config.data.train))
    store = tokenize_pairs(records, tokenizer, template=config.data.template)
    run_dir.mkdir(parents=True, exist_ok=True)
    store.save(path)
    return store
