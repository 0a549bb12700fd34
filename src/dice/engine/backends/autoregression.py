"""Decoding with a Hugging Face causal LM: one token a row and forward, rows leave when they end.

Each row draws from a generator of its own, so that what it gets depends on its prompt, parameters and seed,
not on its neighbours (up to floating-point rounding of differently shaped matrix products).

Shapes: B rows under way, T positions so far, padding on the left included, V vocabulary.
"""

import inspect
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch

from dice.engine.sampling import Law, SamplingParams, draw_tokens
from dice.errors import ModelError

_CACHES = ("cache", "past_key_values")
"""What the argument is called, from transformers 5.24 on and before."""


@dataclass(slots=True, kw_only=True)
class Row:
    """One sequence while it is written."""

    request: int
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    token_ids: list[int] = field(default_factory=list)
    """What was written, a stop token included."""
    logprobs: list[float] = field(default_factory=list)
    finish_reason: str | None = None
    rng: random.Random = field(init=False)
    law: Law = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.params.seed)
        self.law = Law(self.params.temperature, self.params.top_k, self.params.top_p)

    def write(self, token_id: int, logprob: float, stop_token_ids: frozenset[int]) -> None:
        self.token_ids.append(token_id)
        self.logprobs.append(logprob)
        if token_id in stop_token_ids:
            self.finish_reason = "stop"
        elif len(self.token_ids) == self.params.max_new_tokens:
            self.finish_reason = "length"


def decode(model: Any, rows: list[Row], stop_token_ids: frozenset[int]) -> Iterator[Row]:
    """Writes all rows to their ends; each comes as soon as it has ended.

    A model that keeps a running state, in which padding would leave traces, takes one row at a time.

    Raises:
        ModelError: a model whose cache is passed in an unknown way.
    """
    parameters = inspect.signature(model.forward).parameters
    cache_name = next((name for name in _CACHES if name in parameters), None)
    if cache_name is None:
        raise ModelError(
            f"{type(model).__name__} keeps its state in a way that is not supported with this transformers"
        )
    extra: dict[str, Any] = {"logits_to_keep": 1} if "logits_to_keep" in parameters else {}
    rows = list(rows)
    width = max(len(row.prompt_ids) for row in rows)
    lengths = [len(row.prompt_ids) for row in rows]
    inputs_BT = torch.tensor(
        [
            [*[0] * (width - length), *row.prompt_ids]
            for row, length in zip(rows, lengths, strict=True)
        ],
        device=model.device,
    )
    mask_BT = torch.tensor(
        [[*[0] * (width - length), *[1] * length] for length in lengths], device=model.device
    )
    positions_BT = (mask_BT.cumsum(-1) - 1).clamp(min=0)
    while rows:
        if "position_ids" in parameters:
            extra["position_ids"] = positions_BT
        with torch.inference_mode():
            output = model(
                input_ids=inputs_BT,
                attention_mask=mask_BT,
                use_cache=True,
                **extra,
            )
            # Drawing overwrites the logits.
            logits_BV = output.logits[:, -1].float().clone()
            uniforms = [row.rng.random() if row.params.temperature > 0 else 0.0 for row in rows]
            draws = draw_tokens(logits_BV, None, [row.law for row in rows], uniforms)
        extra[cache_name] = cache = getattr(output, cache_name)
        for row, token_id, logprob in zip(rows, draws.token_ids, draws.logprobs, strict=True):
            row.write(token_id, logprob, stop_token_ids)
        left = [index for index, row in enumerate(rows) if row.finish_reason is None]
        yield from (row for row in rows if row.finish_reason is not None)
        if left and len(left) < len(rows):
            with torch.inference_mode():
                left_B = torch.tensor(left, device=model.device)
                cache.batch_select_indices(left_B)
                mask_BT, positions_BT = mask_BT[left_B], positions_BT[left_B]
        rows = [rows[index] for index in left]
        if rows:
            inputs_BT = torch.tensor([row.token_ids[-1:] for row in rows], device=model.device)
            positions_BT = positions_BT[:, -1:] + 1
            mask_BT = torch.cat([mask_BT, mask_BT.new_ones(len(rows), 1)], dim=1)
