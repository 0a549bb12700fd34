"""A random block-diffusion model of a few thousand parameters and a word-level tokenizer for it."""

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from dice.models.generation import GenerationDefaults
from dice.models.load import LoadedModel
from dice.models.sdar import SdarConfig, SdarForCausalLM

SPECIAL = ("<|pad|>", "<|mask|>", "<|endoftext|>", "<|problem|>", "<|kernel|>")
MASK, EOS = 1, 2
VOCABULARY = 61


def tiny_tokenizer() -> PreTrainedTokenizerFast:
    words = [*SPECIAL, *(f"w{index}" for index in range(VOCABULARY - len(SPECIAL)))]
    tokenizer = Tokenizer(models.WordLevel({w: i for i, w in enumerate(words)}, unk_token="w0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token="<|pad|>",
        mask_token="<|mask|>",
        eos_token="<|endoftext|>",
        additional_special_tokens=["<|problem|>", "<|kernel|>"],
    )


def tiny_model(
    block_size: int = 4,
    *,
    seed: int = 0,
    sharpness: float = 0.3,
    layers: int = 2,
    heads: int = 4,
) -> SdarForCausalLM:
    """`sharpness` is the spread of the weights: the larger, the surer the model."""
    torch.manual_seed(seed)
    config = SdarConfig(
        vocab_size=VOCABULARY,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=8,
        block_size=block_size,
        mask_token_id=MASK,
        initializer_range=sharpness,
        tie_word_embeddings=True,
        max_position_embeddings=512,
        eos_token_id=EOS,
    )
    return SdarForCausalLM(config).eval()


def tiny_loaded(
    block_size: int = 4,
    *,
    seed: int = 0,
    sharpness: float = 0.3,
    stop_token_ids: frozenset[int] = frozenset({EOS}),
    layers: int = 2,
    heads: int = 4,
) -> LoadedModel:
    model = tiny_model(block_size, seed=seed, sharpness=sharpness, layers=layers, heads=heads)
    return LoadedModel(
        name="tiny",
        config=model.config,
        model=model,
        tokenizer=tiny_tokenizer(),
        mask_token_id=MASK,
        stop_token_ids=stop_token_ids,
        template="nano",
        generation=GenerationDefaults(eos_token_id=(EOS,)),
    )
