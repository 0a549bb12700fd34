"""What the decoding benchmarks decode: models of the real shapes with random weights, and prompts for them."""

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer, models
from transformers import PreTrainedTokenizerFast

from dice.engine.canvas import Canvas
from dice.engine.paged.runner import PagedRunner
from dice.engine.sampling import SamplingParams
from dice.engine.scheduler import Sequence
from dice.models.generation import GenerationDefaults
from dice.models.load import LoadedModel, save_model
from dice.models.sdar import SdarConfig, SdarForCausalLM

SHAPES: dict[str, dict[str, Any]] = {
    "tiny": {"hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "vocab_size": 64,
             "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 16},
    "1.7B": {"hidden_size": 2048, "intermediate_size": 6144, "num_hidden_layers": 28,
             "num_attention_heads": 16, "num_key_value_heads": 8, "tie_word_embeddings": True},
    "4B": {"hidden_size": 2560, "intermediate_size": 9728, "num_hidden_layers": 36,
           "num_attention_heads": 32, "num_key_value_heads": 8},
    "8B": {"hidden_size": 4096, "intermediate_size": 12288, "num_hidden_layers": 36,
           "num_attention_heads": 32, "num_key_value_heads": 8},
}  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Timed:
    """One batch, decoded."""

    prefill_s: float
    decode_s: float
    forwards: int
    tokens: list[list[int]]
    """Of each response."""


def load(shape: str, block_size: int, device: str) -> LoadedModel:
    """A model of the shape with random weights."""
    small = shape == "tiny"
    config = SdarConfig(
        **{"vocab_size": 151936, "head_dim": 128, **SHAPES[shape]},
        block_size=block_size,
        max_position_embeddings=512 if small else 32768,
        mask_token_id=5 if small else 151669,
        eos_token_id=2 if small else 151643,
    )
    torch.manual_seed(0)
    with torch.device(device):
        torch.set_default_dtype(torch.float32 if device == "cpu" else torch.bfloat16)
        model = SdarForCausalLM(config).eval()
        torch.set_default_dtype(torch.float32)
    return LoadedModel(
        name=shape,
        config=config,
        model=model,
        tokenizer=None,
        mask_token_id=config.mask_token_id,
        stop_token_ids=frozenset(),
        template="kernelbench",
        generation=GenerationDefaults(eos_token_id=(2,)),
    )


def save(loaded: LoadedModel, folder: Path) -> None:
    """The same weights as a checkpoint in the published layout, with a tokenizer of three words."""
    config = loaded.config
    words = {"w": 0, "<|endoftext|>": config.eos_token_id, "<|MASK|>": loaded.mask_token_id}
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(models.WordLevel(words, unk_token="w")),
        eos_token="<|endoftext|>",
        mask_token="<|MASK|>",
    )
    save_model(folder, loaded.model, tokenizer, loaded.generation)


def prompts(loaded: LoadedModel, batch: int, length: int) -> list[list[int]]:
    """Different ones, so that nothing is shared."""
    draw = torch.Generator().manual_seed(1)
    most = loaded.config.vocab_size // 2
    return [torch.randint(6, most, (length,), generator=draw).tolist() for _ in range(batch)]


def sequences(loaded: LoadedModel, batch: int, steps: int, prompt: int, new: int) -> list[Sequence]:
    """`batch` requests under a fixed schedule."""
    params = SamplingParams(
        max_new_tokens=new, denoising_steps=steps, remasking_strategy="low_confidence_static"
    )
    return [
        Sequence(
            request=request,
            canvas=Canvas(
                ids, [None] * new, block_size=loaded.block_size, mask_token_id=loaded.mask_token_id
            ),
            params=params,
        )
        for request, ids in enumerate(prompts(loaded, batch, prompt))
    ]


def decode_timed(
    loaded: LoadedModel, batch: int, steps: int, prompt: int, new: int, rounds: int = 2
) -> Timed:
    """Decode `rounds` times with one runner; the last counts, the first captures graphs."""
    device = loaded.model.lm_head.weight.device.type
    runner = PagedRunner(loaded, batch, prompt + new + loaded.block_size)
    for _ in range(rounds):
        runner.weights_changed()  # every round is to compute its prefixes
        made = sequences(loaded, batch, steps, prompt, new)
        wait(device)
        started = time.perf_counter()
        assert len(runner.admit(made)) == batch
        wait(device)
        filled = time.perf_counter()
        while runner.running:
            assert not runner.step().preempted
        wait(device)
        ended = time.perf_counter()
    return Timed(
        prefill_s=filled - started,
        decode_s=ended - filled,
        forwards=max(one.forwards for one in made),
        tokens=[one.canvas.token_ids[prompt : prompt + new] for one in made],
    )


def wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()
