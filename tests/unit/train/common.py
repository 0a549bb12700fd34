"""A tiny model and random samples for the training tests."""

import torch

from dice.data.store import SampleStore
from dice.models.sdar import SdarConfig, SdarForCausalLM
from dice.train.batches import TokenIds
from dice.types import TrainingSample

VOCAB, MASK, STOP, PAD = 40, 1, 2, 0


def ids(block_size: int = 4) -> TokenIds:
    return TokenIds(mask=MASK, stop=STOP, pad=PAD, block_size=block_size)


def tiny_model(block_size: int = 4, seed: int = 0, layers: int = 2) -> SdarForCausalLM:
    torch.manual_seed(seed)
    config = SdarConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=2,
        num_key_value_heads=2,
        head_dim=16,
        tie_word_embeddings=True,
        block_size=block_size,
        mask_token_id=MASK,
        rope_parameters={"rope_type": "default", "rope_theta": 10_000.0},
        initializer_range=0.3,
    )
    return SdarForCausalLM(config).eval()


def samples(lengths: list[tuple[int, int]], seed: int = 0) -> SampleStore:
    """Random samples, one per (prompt length, response length); the response ends in the stop token."""
    generator = torch.Generator().manual_seed(seed)
    return SampleStore.from_samples(
        TrainingSample(
            token_ids=(
                *torch.randint(5, VOCAB, (prompt + response - 1,), generator=generator).tolist(),
                STOP,
            ),
            prompt_length=prompt,
        )
        for prompt, response in lengths
    )
