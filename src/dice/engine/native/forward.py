"""A model's weights packed for `forward.cpp`, and the keys and values of the sequences it decodes.

The plain model stays the reference: logits are equal but for rounding. A row's logits do not depend on what
else is in the step, bit for bit. Weights are packed when the object is made; bfloat16 where every weight is
one (half the bytes to read, same numbers), else float32. Rows with one prefix read it from one place.

Shapes: O outputs of a product, I its inputs, P panels of 16 outputs.
"""

import ctypes
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from dice.engine.native.library import Layer, Model, Step, load_library
from dice.models.sdar import SdarForCausalLM, Segment
from dice.models.sdar.modeling_sdar import SdarDecoderLayer, rotary_tables

_COLUMNS = 16
_MOST_PARAMETERS = 1 << 27
"""Packing copies the weights for each `generate` call; beyond this the copy costs more than it brings."""


def worthwhile(model: SdarForCausalLM) -> bool:
    """Whether a model can be and should be decoded by `NativeForward`: small, float32, on a CPU."""
    parameters = list(model.parameters())
    return (
        all(p.device.type == "cpu" and p.dtype == torch.float32 for p in parameters)
        and sum(p.numel() for p in parameters) <= _MOST_PARAMETERS
        and load_library() is not None
    )


def _panels(weight_OI: Tensor) -> Tensor:
    """[P, I, 16], outputs padded with zeros."""
    padded = F.pad(weight_OI, (0, 0, 0, -weight_OI.shape[0] % _COLUMNS))
    return padded.view(-1, _COLUMNS, weight_OI.shape[1]).transpose(1, 2)


class NativeForward:
    """Forwards of one `generate` call: `rows` sequences of at most `capacity` positions.

    Serves the runner as a `KVCache` does: `lengths`, `commit`, `share_prefix`, `clear`.
    """

    @torch.no_grad()
    def __init__(self, model: SdarForCausalLM, rows: int, capacity: int) -> None:
        library = load_library()
        assert library is not None
        config = model.config
        self.lengths = [0] * rows
        self.capacity = capacity + -capacity % _COLUMNS
        self.block_size = int(config.block_size)
        self._vocabulary = int(config.vocab_size)
        self._shared = [(row, 0) for row in range(rows)]
        """Where each row's first positions are: a row, and how many of them (whole panels)."""
        kv_heads, size = int(config.num_key_value_heads), int(config.head_dim)
        before = (int(config.num_hidden_layers), rows, kv_heads)
        self.keys = torch.empty(*before, self.capacity // _COLUMNS, size, _COLUMNS)
        self.values = torch.empty(*before, self.capacity, size + -size % _COLUMNS)
        self._kept: list[Tensor] = []
        short = all(
            torch.equal(p.bfloat16().float(), p) for p in model.parameters() if p.dim() == 2
        )
        self._dtype = torch.bfloat16 if short else torch.float32
        self._run = library.dice_forward_bfloat16 if short else library.dice_forward_float
        self._scratch_size = library.dice_scratch
        self._scratch = torch.empty(0)
        self._layers = (Layer * before[0])()
        for index, layer in enumerate(model.model.layers):
            assert isinstance(layer, SdarDecoderLayer)
            self._layers[index] = self._layer(index, layer)
        tables = rotary_tables(
            torch.arange(self.capacity)[None], config.head_dim, model.model.rope_theta
        )
        cosine, sine = (self._address(table) for table in tables)
        self._model = Model(
            hidden=config.hidden_size,
            inner=config.intermediate_size,
            heads=config.num_attention_heads,
            kv_heads=kv_heads,
            head_dim=size,
            vocabulary=config.vocab_size,
            capacity=self.capacity,
            layers=before[0],
            eps=config.rms_norm_eps,
            layer=ctypes.addressof(self._layers),
            embedding=self._address(model.model.embed_tokens.weight),
            norm=self._address(model.model.norm.weight),
            cosine=cosine,
            sine=sine,
            head=self._packed(model.lm_head.weight),
        )

    def _address(self, tensor: Tensor) -> int:
        self._kept.append(tensor.detach().contiguous())
        return self._kept[-1].data_ptr()

    def _packed(self, *weights_OI: Tensor) -> int:
        """Panels of several products that are computed together follow each other."""
        panels = [_panels(weight_OI.to(self._dtype)) for weight_OI in weights_OI]
        return self._address(panels[0] if len(panels) == 1 else torch.stack(panels, dim=1))

    def _layer(self, index: int, layer: SdarDecoderLayer) -> Layer:
        attention, mlp = layer.self_attn, layer.mlp
        inputs = (attention.q_proj, attention.k_proj, attention.v_proj)
        biased = attention.o_proj.bias is not None
        return Layer(
            qkv=self._packed(torch.cat([one.weight for one in inputs])),
            out=self._packed(attention.o_proj.weight),
            gate_up=self._packed(mlp.gate_proj.weight, mlp.up_proj.weight),
            down=self._packed(mlp.down_proj.weight),
            qkv_bias=self._address(torch.cat([one.bias for one in inputs])) if biased else None,
            out_bias=self._address(attention.o_proj.bias) if biased else None,
            input_norm=self._address(layer.input_layernorm.weight),
            post_norm=self._address(layer.post_attention_layernorm.weight),
            q_norm=self._address(attention.q_norm.weight),
            k_norm=self._address(attention.k_norm.weight),
            keys=self.keys[index].data_ptr(),
            values=self.values[index].data_ptr(),
        )

    def logits(
        self, token_ids: Sequence[int], segments: Sequence[Segment], wanted: Sequence[int]
    ) -> Tensor:
        """Logits [len(wanted), V] at the wanted packed tokens, after storing keys and values of all."""
        rows: list[int] = []
        positions: list[int] = []
        blocks: list[int] = []
        size = self.block_size
        for segment in segments:
            end = segment.position + segment.stop - segment.start
            assert segment.start == len(rows)
            assert segment.position % size == 0 == end % size
            assert end <= self.capacity, f"row {segment.row}: {end} > capacity {self.capacity}"
            source, shared = self._shared[segment.row]
            assert segment.position >= shared
            rows += [segment.row] * (end - segment.position)
            positions += range(segment.position, end)
            for at in range(segment.position, end, size):
                first = segment.start + at - segment.position
                blocks += (first, size, segment.row, source, shared, at + size)
        assert len(token_ids) == len(rows)
        assert 0 <= min(token_ids) <= max(token_ids) < self._vocabulary
        assert not wanted or 0 <= min(wanted) <= max(wanted) < len(rows)
        lists = [torch.tensor(one) for one in (token_ids, rows, positions, list(wanted), blocks)]
        logits = torch.empty(len(wanted), self._vocabulary)
        step = Step(len(rows), len(blocks) // 6, len(wanted), torch.get_num_threads())
        needed = self._scratch_size(ctypes.byref(self._model), ctypes.byref(step))
        if needed > len(self._scratch):
            self._scratch = torch.empty(needed)
        step.ids, step.rows, step.positions, step.wanted_at, step.block = (
            one.data_ptr() for one in lists
        )
        step.scratch, step.logits = self._scratch.data_ptr(), logits.data_ptr()
        self._run(ctypes.byref(self._model), ctypes.byref(step))
        return logits

    def commit(self, row: int, length: int) -> None:
        """Keeps the row's first `length` positions for good."""
        assert self.lengths[row] <= length <= self.capacity
        self.lengths[row] = length

    def share_prefix(self, source: int, target: int, length: int) -> None:
        """Lets row `target` begin with the first `length` committed positions of row `source`.

        Whole panels stay where they are; the rest is copied.
        """
        assert length <= self.lengths[source]
        whole = length - length % _COLUMNS
        place, held = self._shared[source]
        assert held in (0, whole), "a row shares the whole of its prefix or nothing"
        self._copy(source, target, whole, length)
        self._shared[target] = (place if held else source, whole)
        self.lengths[target] = length

    def clear(self, row: int) -> None:
        """Frees a row for another sequence; rows that read its prefix get copies."""
        for other, (place, held) in enumerate(self._shared):
            if place == row != other:
                self._copy(row, other, 0, held)
                self._shared[other] = (other, 0)
        self._shared[row] = (row, 0)
        self.lengths[row] = 0

    def _copy(self, source: int, target: int, start: int, stop: int) -> None:
        panels = slice(start // _COLUMNS, -(-stop // _COLUMNS))
        self.keys[:, target, :, panels] = self.keys[:, source, :, panels]
        self.values[:, target, :, start:stop] = self.values[:, source, :, start:stop]
