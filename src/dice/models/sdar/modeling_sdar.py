"""SDAR in plain PyTorch: Qwen3 with a block-causal mask and unshifted logits.

Position i sees every position of its own and of earlier blocks; blocks are `block_size` positions
counted from position id 0. The logit at a masked position predicts that position's own token.
Parameter names are Qwen3's, so checkpoints of either code load. Norms and rotary embeddings are
computed in float32 whatever the parameters' type.

Not covered: sliding windows, RoPE scaling, dropout.

Shapes: B batch, L sequence, C hidden size, H heads, K key-value heads, D head size, V vocabulary.
"""

import functools
from collections.abc import Callable
from typing import Any, ClassVar

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention.flex_attention import BlockMask, flex_attention
from transformers import PreTrainedModel
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import CausalLMOutput

from dice.models.sdar.cache import KVCache
from dice.models.sdar.configuration_sdar import SdarConfig


def block_causal_mask(position_ids_BL: Tensor, block_size: int) -> Tensor:
    """Boolean mask [B, 1, L, L], True where the row's query may see the column's key.

    Blocks come from position ids alone, so the order of positions in the row and the side of padding
    do not matter. Negative position ids are padding: seen by padding only.
    """
    block_BL = torch.div(position_ids_BL, block_size, rounding_mode="floor")
    padding_BL = position_ids_BL < 0
    query_BL1, key_B1L = block_BL[:, :, None], block_BL[:, None, :]
    same_kind_BLL = padding_BL[:, :, None] == padding_BL[:, None, :]
    return ((key_B1L <= query_BL1) & same_kind_BLL)[:, None]


def rotary_tables(position_ids_BL: Tensor, head_dim: int, theta: float) -> tuple[Tensor, Tensor]:
    """Cosine and sine tables [B, L, 1, D] in float32 (RoFormer, with Llama's half-split layout)."""
    exponent = torch.arange(0, head_dim, 2, device=position_ids_BL.device, dtype=torch.float32)
    frequency = 1.0 / (theta ** (exponent / head_dim))
    angle_BLD = (position_ids_BL[..., None].float() * frequency).repeat(1, 1, 2)
    return angle_BLD.cos()[:, :, None], angle_BLD.sin()[:, :, None]


def _rotate(x_BLHD: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    x = x_BLHD.float()
    first, second = x.chunk(2, dim=-1)
    return (x * cos + torch.cat((-second, first), dim=-1) * sin).to(x_BLHD.dtype)


@functools.cache
def _compiled_flex() -> Callable[..., Tensor]:
    compiled: Callable[..., Tensor] = torch.compile(flex_attention)
    return compiled


def _flex(q: Tensor, k: Tensor, v: Tensor, mask: BlockMask, grouped: bool) -> Tensor:
    # Uncompiled, flex_attention materialises the score matrix and warns.
    compiling = torch.compiler.is_compiling()
    attend: Any = flex_attention if compiling else _compiled_flex()
    out: Tensor = attend(q, k, v, block_mask=mask, enable_gqa=grouped)
    return out


class SdarRMSNorm(nn.Module):
    """Root-mean-square norm over the last dimension, in float32."""

    def __init__(self, size: int, eps: float) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        normed = F.rms_norm(x.float(), self.weight.shape, self.weight.float(), self.eps)
        return normed.to(x.dtype)


class SdarAttention(nn.Module):
    """Grouped-query attention with per-head q/k norms and rotary positions."""

    def __init__(self, config: SdarConfig, layer: int) -> None:
        super().__init__()
        self.layer = layer
        self.head_dim = config.head_dim
        self.grouped = config.num_key_value_heads != config.num_attention_heads
        width, bias = config.hidden_size, config.attention_bias
        query_width = config.num_attention_heads * config.head_dim
        key_width = config.num_key_value_heads * config.head_dim
        self.q_proj = nn.Linear(width, query_width, bias=bias)
        self.k_proj = nn.Linear(width, key_width, bias=bias)
        self.v_proj = nn.Linear(width, key_width, bias=bias)
        self.o_proj = nn.Linear(query_width, width, bias=bias)
        self.q_norm = SdarRMSNorm(config.head_dim, config.rms_norm_eps)
        self.k_norm = SdarRMSNorm(config.head_dim, config.rms_norm_eps)

    def forward(
        self,
        x_BLC: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | BlockMask | None,
        cache: KVCache | None,
    ) -> Tensor:
        heads = (*x_BLC.shape[:2], -1, self.head_dim)
        q_BLHD = _rotate(self.q_norm(self.q_proj(x_BLC).view(heads)), cos, sin)
        k_BLKD = _rotate(self.k_norm(self.k_proj(x_BLC).view(heads)), cos, sin)
        v_BLKD = self.v_proj(x_BLC).view(heads)
        if cache is not None:
            out_BLHD = cache.attend(self.layer, q_BLHD, k_BLKD, v_BLKD)
        else:
            q, k, v = (t.transpose(1, 2) for t in (q_BLHD, k_BLKD, v_BLKD))
            if isinstance(mask, BlockMask):
                out_BHLD = _flex(q, k, v, mask, self.grouped)
            else:
                out_BHLD = F.scaled_dot_product_attention(
                    q, k, v, attn_mask=mask, enable_gqa=self.grouped
                )
            out_BLHD = out_BHLD.transpose(1, 2)
        out_BLC: Tensor = self.o_proj(out_BLHD.reshape(*x_BLC.shape[:2], -1))
        return out_BLC


class SdarMLP(nn.Module):
    """SwiGLU."""

    def __init__(self, config: SdarConfig) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.up_proj = nn.Linear(config.hidden_size, config.intermediate_size, bias=False)
        self.down_proj = nn.Linear(config.intermediate_size, config.hidden_size, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        out: Tensor = self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))
        return out


class SdarDecoderLayer(GradientCheckpointingLayer):  # type: ignore[misc]
    """One pre-norm layer: attention, then SwiGLU."""

    def __init__(self, config: SdarConfig, layer: int) -> None:
        super().__init__()
        self.self_attn = SdarAttention(config, layer)
        self.mlp = SdarMLP(config)
        self.input_layernorm = SdarRMSNorm(config.hidden_size, config.rms_norm_eps)
        self.post_attention_layernorm = SdarRMSNorm(config.hidden_size, config.rms_norm_eps)

    def forward(
        self,
        x_BLC: Tensor,
        cos: Tensor,
        sin: Tensor,
        mask: Tensor | BlockMask | None,
        cache: KVCache | None,
    ) -> Tensor:
        x_BLC = x_BLC + self.self_attn(self.input_layernorm(x_BLC), cos, sin, mask, cache)
        out: Tensor = x_BLC + self.mlp(self.post_attention_layernorm(x_BLC))
        return out


class SdarPreTrainedModel(PreTrainedModel):  # type: ignore[misc]
    """What `transformers` wants to know about the family."""

    config: SdarConfig
    config_class = SdarConfig
    base_model_prefix = "model"
    supports_gradient_checkpointing = True
    _no_split_modules: ClassVar[list[str]] = ["SdarDecoderLayer"]
    _supports_sdpa = True
    _supports_flex_attn = True


class SdarModel(SdarPreTrainedModel):
    """The decoder without its head: token ids to normed hidden states."""

    def __init__(self, config: SdarConfig) -> None:
        super().__init__(config)
        self.embed_tokens = nn.Embedding(config.vocab_size, config.hidden_size)
        self.layers = nn.ModuleList(
            SdarDecoderLayer(config, layer) for layer in range(config.num_hidden_layers)
        )
        self.norm = SdarRMSNorm(config.hidden_size, config.rms_norm_eps)
        assert config.rope_parameters is not None
        self.rope_theta = float(config.rope_parameters["rope_theta"])
        self.gradient_checkpointing = False
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | BlockMask | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
    ) -> Tensor:
        """Hidden states [B, L, C] after the final norm.

        Args:
            input_ids: [B, L].
            attention_mask: `None` derives the block-causal mask from `position_ids`; a 2D mask [B, L]
                marks real tokens and, where `position_ids` is `None`, numbers them from 0; a 4D
                boolean (True = visible) or additive mask and a `BlockMask` are used as they are.
            position_ids: [B, L], negative for padding; default 0..L-1.
            cache: decodes against a `KVCache` whose step was planned with `KVCache.plan`; then
                `attention_mask` must be `None` and B is 1 (rows are packed along L).
        """
        padding_mask: Tensor | None = None
        if isinstance(attention_mask, Tensor) and attention_mask.dim() == 2:
            padding_mask, attention_mask = attention_mask.bool(), None
        if position_ids is None:
            if padding_mask is not None:
                position_ids = padding_mask.long().cumsum(-1) - 1
            else:
                position_ids = torch.arange(input_ids.shape[1], device=input_ids.device)[None]
        if padding_mask is not None:
            position_ids = position_ids.masked_fill(~padding_mask, -1)
        if attention_mask is None and cache is None:
            attention_mask = block_causal_mask(position_ids, self.config.block_size)
        cos, sin = rotary_tables(position_ids, self.config.head_dim, self.rope_theta)
        x_BLC = self.embed_tokens(input_ids)
        for layer in self.layers:
            x_BLC = layer(x_BLC, cos, sin, attention_mask, cache)
        out: Tensor = self.norm(x_BLC)
        return out


class SdarForCausalLM(SdarPreTrainedModel):
    """SDAR with its language-model head. Logits are unshifted."""

    _tied_weights_keys: ClassVar[dict[str, str]] = {"lm_head.weight": "model.embed_tokens.weight"}

    def __init__(self, config: SdarConfig) -> None:
        super().__init__(config)
        self.model = SdarModel(config)
        self.lm_head = nn.Linear(config.hidden_size, config.vocab_size, bias=False)
        self.post_init()

    def forward(
        self,
        input_ids: Tensor,
        attention_mask: Tensor | BlockMask | None = None,
        position_ids: Tensor | None = None,
        cache: KVCache | None = None,
        **_: Any,
    ) -> CausalLMOutput:
        """Logits [B, L, V]; the arguments are `SdarModel.forward`'s."""
        hidden_BLC = self.model(input_ids, attention_mask, position_ids, cache)
        return CausalLMOutput(logits=self.lm_head(hidden_BLC))
