"""SDAR's decoder over packed tokens and paged keys and values, its small operations fused.

Shares the plain model's weights: the projections that see the same input are one matrix, and the plain
model's parameters become views of it, so a weight that is changed in place is changed here too.

Shapes: N packed tokens, C hidden size, H heads, K key-value heads, D head size, V vocabulary.
"""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from dice.engine.paged.attention import PagedAttention, Tiles
from dice.engine.paged.pointwise import add_norm, rotate_store, silu_mul
from dice.models.sdar import SdarForCausalLM
from dice.models.sdar.modeling_sdar import SdarDecoderLayer, SdarRMSNorm


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """Weights of one layer. Biases are None where the model has none."""

    qkv: Tensor
    qkv_bias: Tensor | None
    out: Tensor
    out_bias: Tensor | None
    gate_up: Tensor
    down: Tensor
    norms: tuple[Tensor, Tensor]
    """Before attention, before the MLP."""
    head_norms: tuple[Tensor, Tensor]
    """Of queries and keys."""


class PagedModel:
    """A model's decoder for packed tokens. `pages` of `page_size` positions hold keys and values."""

    def __init__(self, model: SdarForCausalLM, *, pages: int, page_size: int) -> None:
        config = model.config
        weight = model.model.embed_tokens.weight
        self.model, self.config = model, config
        self._heads, self._eps = config.num_attention_heads, config.rms_norm_eps
        kv_heads, head_dim = config.num_key_value_heads, config.head_dim
        self.attention = PagedAttention(
            heads=self._heads,
            kv_heads=kv_heads,
            head_dim=head_dim,
            block_size=config.block_size,
            page_size=page_size,
            device=weight.device,
            dtype=weight.dtype,
        )
        shape = (config.num_hidden_layers, pages, page_size, kv_heads, head_dim)
        # zeros, because masked positions still enter products: what lies there must be finite
        self.keys = torch.zeros(shape, device=weight.device, dtype=weight.dtype)
        self.values = torch.zeros(shape, device=weight.device, dtype=weight.dtype)
        self._layers = [
            _layer(one) for one in model.model.layers if isinstance(one, SdarDecoderLayer)
        ]
        self._rotary = _rotary(
            config.max_position_embeddings, head_dim, model.model.rope_theta, weight.device
        )

    def hidden(
        self,
        token_ids_N: Tensor,
        positions_N: Tensor,
        rows_N: Tensor,
        tiles: Tiles,
        table: Tensor,
        buffers: tuple[Tensor, Tensor, Tensor],
    ) -> Tensor:
        """Hidden states [N, C] after the final norm; the tokens' keys and values go into their pages."""
        residual_NC = F.embedding(token_ids_N, self.model.model.embed_tokens.weight)
        change_NC: Tensor | None = None
        for index, layer in enumerate(self._layers):
            x_NC = add_norm(change_NC, residual_NC, layer.norms[0], self._eps)
            q_NHD = rotate_store(
                F.linear(x_NC, layer.qkv, layer.qkv_bias),
                self.keys[index],
                self.values[index],
                layer.head_norms,
                self._rotary,
                positions_N,
                rows_N,
                table,
                heads=self._heads,
                eps=self._eps,
            )
            out_NHD = self.attention(
                q_NHD, self.keys[index], self.values[index], table, tiles, positions_N, buffers
            )
            change_NC = F.linear(out_NHD.flatten(1), layer.out, layer.out_bias)
            x_NC = add_norm(change_NC, residual_NC, layer.norms[1], self._eps)
            change_NC = F.linear(silu_mul(F.linear(x_NC, layer.gate_up)), layer.down)
        return add_norm(change_NC, residual_NC, self.model.model.norm.weight, self._eps)

    def logits(self, hidden_MC: Tensor) -> Tensor:
        """[M, V], in the weights' precision."""
        return F.linear(hidden_MC, self.model.lm_head.weight)

    def copy_page(self, source: int, target: int) -> None:
        """All layers' keys and values of one page."""
        self.keys[:, target] = self.keys[:, source]
        self.values[:, target] = self.values[:, source]


def _layer(layer: SdarDecoderLayer) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    projections = [attention.q_proj, attention.k_proj, attention.v_proj]
    return Layer(
        qkv=_joined([one.weight for one in projections]),
        qkv_bias=_joined([one.bias for one in projections])
        if attention.q_proj.bias is not None
        else None,
        out=attention.o_proj.weight.data,
        out_bias=None if attention.o_proj.bias is None else attention.o_proj.bias.data,
        gate_up=_joined([mlp.gate_proj.weight, mlp.up_proj.weight]),
        down=mlp.down_proj.weight.data,
        norms=(_of(layer.input_layernorm), _of(layer.post_attention_layernorm)),
        head_norms=(_of(attention.q_norm), _of(attention.k_norm)),
    )


def _of(norm: SdarRMSNorm) -> Tensor:
    return norm.weight.data


def _joined(parameters: list[Tensor]) -> Tensor:
    """One tensor, of which these parameters become views. Joining again finds it."""
    base = parameters[0].data
    rows = sum(len(one) for one in parameters)
    whole = base._base if base._base is not None else base
    at = whole.data_ptr()
    for one in parameters:
        if one.data.data_ptr() != at:
            break
        at += one.data.numel() * one.data.element_size()
    else:
        if len(whole) == rows and whole.shape[1:] == base.shape[1:]:
            return whole
    joined = torch.cat([one.data for one in parameters])
    start = 0
    for one in parameters:
        one.data = joined[start : start + len(one)]
        start += len(one)
    return joined


def _rotary(
    positions: int, head_dim: int, theta: float, device: torch.device
) -> tuple[Tensor, Tensor]:
    """Cosine and sine [positions, D / 2] in float32, as `models.sdar` computes them."""
    exponent = torch.arange(0, head_dim, 2, device=device, dtype=torch.float32) / head_dim
    angle = torch.arange(positions, device=device, dtype=torch.float32)[:, None] / theta**exponent
    return angle.cos(), angle.sin()
