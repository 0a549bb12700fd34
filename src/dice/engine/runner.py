"""Model forwards for the running sequences.

Prefill writes the whole given blocks of new sequences (prompt, forced prefix) to the cache, once per
distinct prefix; sequences that share it get a copy. A denoising forward packs, for every running
sequence, the block being denoised and before it the final blocks not yet in the cache: their keys and
values are stored and committed by the same forward, so finishing a block costs no forward of its own.
Logits are computed at masked positions only.
"""

from dataclasses import dataclass

import torch
from torch import Tensor

from dice.engine.native import NativeForward, worthwhile
from dice.engine.sampling import Draws, draw_tokens
from dice.engine.scheduler import Sequence
from dice.models.load import LoadedModel
from dice.models.sdar import KVCache, Segment

_PREFILL_TOKENS = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class StepResult:
    """One denoising forward: the masked positions of each sequence, and a draw for each position.

    `draws` lists the positions of all sequences in order.
    """

    masked: list[list[int]]
    draws: Draws


class Runner:
    """Owns the cache of one `generate` call: `rows` sequences of at most `capacity` positions.

    `native` as in `LLM`, `batched` as in `KVCache`.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        rows: int,
        capacity: int,
        *,
        batched: bool | None = None,
        native: bool | None = None,
    ) -> None:
        self._model = loaded.model
        self._mask_token_id = loaded.mask_token_id
        self._block_size = loaded.block_size
        weight = loaded.model.lm_head.weight
        self._device = weight.device
        self._cache: KVCache | NativeForward
        if native is None:
            native = batched is None and worthwhile(loaded.model)
        if native:
            self._cache = NativeForward(loaded.model, rows, capacity)
        else:
            self._cache = KVCache(
                loaded.model.config,
                rows,
                capacity,
                device=weight.device,
                dtype=weight.dtype,
                batched=batched,
            )

    @torch.inference_mode()
    def prefill(self, admitted: list[Sequence], running: list[Sequence]) -> None:
        """Brings the prefixes of admitted sequences, which `running` contains, into the cache."""
        if not admitted:
            return
        new = {sequence.row for sequence in admitted}
        sources = {s.prefix: s.row for s in running if s.row not in new}
        batch: list[Sequence] = []
        for sequence in admitted:
            self._cache.clear(sequence.row)
            if sequence.prefix and sequence.prefix not in sources:
                sources[sequence.prefix] = sequence.row
                batch.append(sequence)
                if sum(len(s.prefix) for s in batch) >= _PREFILL_TOKENS:
                    self._prefill(batch)
                    batch = []
        if batch:
            self._prefill(batch)
        for sequence in admitted:
            if sequence.prefix and sources[sequence.prefix] != sequence.row:
                source = sources[sequence.prefix]
                self._cache.share_prefix(source, sequence.row, len(sequence.prefix))

    def _prefill(self, batch: list[Sequence]) -> None:
        token_ids: list[int] = []
        segments = []
        for sequence in batch:
            start, stop = len(token_ids), len(token_ids) + len(sequence.prefix)
            segments.append(Segment(row=sequence.row, start=start, stop=stop, position=0))
            token_ids += sequence.prefix
        self._logits(token_ids, segments, [])
        for sequence in batch:
            self._cache.commit(sequence.row, len(sequence.prefix))

    @torch.inference_mode()
    def denoise(self, running: list[Sequence]) -> StepResult:
        """One forward for every running sequence; draws a token at each masked position."""
        size = self._block_size
        token_ids: list[int] = []
        segments: list[Segment] = []
        masked: list[list[int]] = []
        wanted: list[int] = []
        for sequence in running:
            committed, end = self._cache.lengths[sequence.row], sequence.block_start + size
            at = len(token_ids) - committed
            segments.append(
                Segment(row=sequence.row, start=len(token_ids), stop=at + end, position=committed)
            )
            token_ids += sequence.canvas.token_ids[committed:end]
            masked.append(sequence.canvas.masked(sequence.block))
            wanted += [at + position for position in masked[-1]]
        logits_MV = self._logits(token_ids, segments, wanted)
        for sequence in running:
            self._cache.commit(sequence.row, sequence.block_start)
        laws, uniforms = [], []
        allowed: list[frozenset[int] | None] = []
        for sequence, positions in zip(running, masked, strict=True):
            allowed += [sequence.allowed(position) for position in positions]
            laws += [sequence.law] * len(positions)
            if sequence.law.temperature > 0:
                uniforms += [sequence.rng.random() for _ in positions]
            else:
                uniforms += [0.0] * len(positions)
        draws = draw_tokens(
            logits_MV,
            self._mask_token_id,
            laws,
            uniforms,
            allowed=allowed if any(one is not None for one in allowed) else None,
            with_entropies=any(s.params.remasking_strategy == "entropy_bounded" for s in running),
        )
        return StepResult(masked=masked, draws=draws)

    def _logits(self, token_ids: list[int], segments: list[Segment], wanted: list[int]) -> Tensor:
        if isinstance(self._cache, NativeForward):
            return self._cache.logits(token_ids, segments, wanted)
        self._cache.plan(segments)
        hidden_1NC = self._model.model(
            torch.tensor([token_ids], device=self._device),
            position_ids=self._cache.planned_positions[None],
            cache=self._cache,
        )
        wanted_M = torch.tensor(wanted, device=self._device, dtype=torch.long)
        logits_MV: Tensor = self._model.lm_head(hidden_1NC[0, wanted_M])
        return logits_MV
