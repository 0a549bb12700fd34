"""One step of some number of lanes: everything from embedding to the advanced state, in fixed buffers.

On a GPU it is captured as a CUDA graph once; what changes from step to step is in tensors that stay where they
are. While a step is bound by reading the weights it takes two blocks a lane, so that the keys and values of a
finished block are stored by the first forward of the next one; larger steps store them by a forward of
their own.
"""

import math
from dataclasses import dataclass

import torch
import triton

from dice.engine.paged.attention import Tiles
from dice.engine.paged.masks import TokenMasks
from dice.engine.paged.model import PagedModel
from dice.engine.paged.sampler import Masks, Parts, find_thresholds, scan
from dice.engine.paged.state import Layout, State, advance, gather
from dice.models.load import LoadedModel

FUSED_TOKENS = 128
"""Up to so many tokens a step, two blocks a lane cost no more time than one."""
_PROGRAMS = {"cuda": 512, "cpu": 8}
"""Programs that keep a large GPU busy, and the interpreter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Variant:
    """What some request in the batch asks for; a step without it does not pay for it."""

    filtered: bool
    """Top-k or top-p."""
    restricted: bool
    """Sets of allowed tokens."""


class Step:
    """The buffers and graphs for `count` lanes. `lanes` holds the slots that take part, -1 for none."""

    def __init__(
        self,
        loaded: LoadedModel,
        model: PagedModel,
        state: State,
        masks: TokenMasks,
        count: int,
        *,
        fused: bool | None = None,
    ) -> None:
        size, config = loaded.block_size, loaded.model.config
        device = state.canvas.device
        if fused is None:
            fused = 2 * count * size <= FUSED_TOKENS
        self._width, self._size = (1 + fused) * size, size
        self._model, self._state, self._mask_token_id = model, state, loaded.mask_token_id
        stops = sorted(loaded.stop_token_ids)
        self._stops = torch.tensor(stops, device=device, dtype=torch.int32)
        self.lanes = torch.full((count,), -1, device=device, dtype=torch.int32)
        self._layout = Layout.empty(count, self._width, size, device)
        rows, programs = count * size, _PROGRAMS[device.type]
        splits = _power_of_two(programs / (count * config.num_key_value_heads), 32)
        self._buffers = model.attention.buffers(count * self._width, splits)
        splits = _power_of_two(programs / rows, triton.cdiv(config.vocab_size, 1024))
        self._parts = Parts.empty(rows, splits, device)
        self._thresholds = torch.full((rows,), -1.0e30, device=device)
        self._tiles = Tiles(
            row=self._layout.tile_row,
            token=self._layout.tile_token,
            position=self._layout.tile_position,
            length=self._layout.tile_length,
            size=self._width,
        )
        self._masks = masks
        self._graphs: dict[tuple[Variant, int], torch.cuda.CUDAGraph] = {}

    def run(self, variant: Variant) -> None:
        """One forward of every lane."""
        if self.lanes.device.type != "cuda":
            self._run(variant)
            return
        # a graph holds the address of the table of masks, if it uses it
        key = variant, self._masks.generation if variant.restricted else 0
        if key not in self._graphs:
            self._graphs[key] = self._capture(variant)
        self._graphs[key].replay()

    def _capture(self, variant: Variant) -> "torch.cuda.CUDAGraph":
        """Warm up on lanes that hold nothing, which changes no state, then record."""
        lanes = self.lanes.clone()
        self.lanes.fill_(-1)
        stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(2):
                self._run(variant)
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._run(variant)
        self.lanes.copy_(lanes)
        return graph

    def _run(self, variant: Variant) -> None:
        layout, state, mask = self._layout, self._state, self._mask_token_id
        gather(self.lanes, state, layout, block_size=self._size, mask_token_id=mask)
        hidden_NC = self._model.hidden(
            layout.token_ids, layout.positions, layout.rows, self._tiles, state.table, self._buffers
        )
        logits_MV = self._model.logits(hidden_NC[layout.sampled])
        masks = None
        if variant.restricted:
            masks = Masks(table=self._masks.table, rows_M=layout.mask_row)
        if variant.filtered:
            find_thresholds(
                logits_MV,
                self._thresholds,
                temperature_M=layout.temperature,
                top_k_M=layout.top_k,
                top_p_M=layout.top_p,
                mask_token_id=mask,
                masks=masks,
            )
        else:
            self._thresholds.fill_(-1.0e30)
        scan(
            logits_MV,
            self._parts,
            temperature_M=layout.temperature,
            threshold_M=self._thresholds,
            noise_M=layout.noise,
            mask_token_id=mask,
            masks=masks,
        )
        advance(
            self.lanes,
            state,
            self._parts,
            self._stops,
            width=self._width,
            block_size=self._size,
            restricted=variant.restricted,
        )


def _power_of_two(wanted: float, most: int) -> int:
    """The nearest below, between 1 and `most`."""
    return 1 << max(0, int(math.log2(max(1.0, min(wanted, most)))))
