"""SDAR: Qwen3's architecture under a block-causal mask, compatible with Hugging Face."""

from dice.models.sdar.cache import KVCache, Segment
from dice.models.sdar.configuration_sdar import SdarConfig
from dice.models.sdar.modeling_sdar import SdarForCausalLM, SdarModel, block_causal_mask

__all__ = [
    "KVCache",
    "SdarConfig",
    "SdarForCausalLM",
    "SdarModel",
    "Segment",
    "block_causal_mask",
]
