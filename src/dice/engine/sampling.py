"""From logits at masked positions to a token and its log-probability for each.

The mask token takes part neither in sampling nor in normalisation. Log-probabilities are those of the
model itself (untempered, unfiltered), whatever law the token was drawn from. Randomness is one uniform
number per masked position from the request's own generator, turned into a token by inverting the
distribution function: the draw does not depend on what else is in the batch.

Shapes: M masked positions, V vocabulary.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from dice.engine.remasking import STRATEGIES
from dice.errors import UserError
from dice.models.generation import GenerationDefaults

MAX_NEW_TOKENS = 4096
"""Where neither the user nor the checkpoint says: what DICE is trained and evaluated with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """How one prompt is decoded.

    Raises:
        UserError: a value out of range, or an unknown strategy.
    """

    max_new_tokens: int = 1024
    """Positions the model may fill; rounded up to the end of the last block."""
    denoising_steps: int | None = None
    """Scheduled steps per block, at most the block size; `None` is one per position."""
    remasking_strategy: str = "low_confidence_dynamic"
    confidence_threshold: float = 0.9
    """Probability above which `low_confidence_dynamic` unmasks a position."""
    entropy_bound: float = 0.1
    """Total entropy in nats that `entropy_bounded` accepts per step."""
    temperature: float = 0.0
    """0 is the most probable token."""
    top_k: int | None = None
    top_p: float | None = None
    seed: int = 0
    allowed_token_ids: Mapping[int, frozenset[int]] | None = None
    """What may be written at a position, as `Completion.token_ids` counts them: 0 is the first after the
    prompt. Positions without an entry take every token. Only the choice is restricted: log-probabilities
    and entropies, and with them remasking, are still over the whole vocabulary."""

    def __post_init__(self) -> None:
        allowed = self.allowed_token_ids or {}
        checks = [
            (self.max_new_tokens >= 1, "max_new_tokens must be at least 1"),
            (
                self.denoising_steps is None or self.denoising_steps >= 1,
                "denoising_steps must be at least 1",
            ),
            (
                self.remasking_strategy in STRATEGIES,
                f"unknown remasking_strategy {self.remasking_strategy!r}; "
                f"one of {', '.join(STRATEGIES)}",
            ),
            (0.0 <= self.confidence_threshold <= 1.0, "confidence_threshold must be in [0, 1]"),
            (self.entropy_bound >= 0.0, "entropy_bound must not be negative"),
            (
                self.temperature >= 0.0 and math.isfinite(self.temperature),
                "temperature must be finite and not negative",
            ),
            (self.top_k is None or self.top_k >= 1, "top_k must be at least 1"),
            (self.top_p is None or 0.0 < self.top_p <= 1.0, "top_p must be in (0, 1]"),
            (min(allowed, default=0) >= 0, "allowed_token_ids has a negative position"),
            (all(allowed.values()), "allowed_token_ids has a position where nothing is allowed"),
        ]
        for valid, message in checks:
            if not valid:
                raise UserError(f"sampling parameters: {message}")
        if self.allowed_token_ids is not None:  # the caller's own may change later
            copied = {at: frozenset(ids) for at, ids in allowed.items()}
            object.__setattr__(self, "allowed_token_ids", copied)

    @property
    def bound(self) -> float:
        """The number the remasking strategy compares with."""
        if self.remasking_strategy == "entropy_bounded":
            return self.entropy_bound
        return self.confidence_threshold

    @classmethod
    def from_defaults(cls, defaults: GenerationDefaults, **chosen: Any) -> "SamplingParams":
        """A checkpoint's own settings where it has any, overridden by what the caller chose.

        `None` among `chosen` means "not chosen".
        """
        names = (
            "max_new_tokens",
            "denoising_steps",
            "remasking_strategy",
            "confidence_threshold",
            "entropy_bound",
            "temperature",
            "top_k",
            "top_p",
        )
        settings = {name: getattr(defaults, name) for name in names}
        settings.update({name: value for name, value in chosen.items() if value is not None})
        return cls(**{name: value for name, value in settings.items() if value is not None})

    @classmethod
    def requested(
        cls,
        defaults: GenerationDefaults,
        *,
        threshold: float | None,
        steps: int | None,
        max_new_tokens: int | None,
        **chosen: Any,
    ) -> "SamplingParams":
        """`from_defaults` in the terms of a command line: a threshold or a number of steps names its strategy."""
        strategy = None
        if threshold is not None:
            strategy = "low_confidence_dynamic"
        elif steps is not None:
            strategy = "low_confidence_static"
        return cls.from_defaults(
            defaults,
            max_new_tokens=max_new_tokens or defaults.max_new_tokens or MAX_NEW_TOKENS,
            denoising_steps=steps,
            remasking_strategy=strategy,
            confidence_threshold=threshold,
            **chosen,
        )


@dataclass(frozen=True, slots=True)
class Law:
    """What a token is drawn from; positions with equal laws are drawn together."""

    temperature: float
    top_k: int | None
    top_p: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Draws:
    """One token per masked position. Lists of M numbers."""

    token_ids: list[int]
    logprobs: list[float]
    entropies: list[float] | None


def draw_tokens(
    logits_MV: Tensor,
    mask_token_id: int | None,
    laws: Sequence[Law],
    uniforms: Sequence[float],
    *,
    allowed: Sequence[frozenset[int] | None] | None = None,
    with_entropies: bool = False,
) -> Draws:
    """Draws a token for every row; `logits_MV` is overwritten.

    Args:
        mask_token_id: what is never drawn; `None` for a model without a mask token.
        laws: M laws.
        uniforms: M numbers in [0, 1), ignored at temperature 0.
        allowed: M sets of the tokens to choose from, `None` for all; `None` restricts no row.
        with_entropies: also compute each row's entropy over the vocabulary, in nats.
    """
    logits_MV = logits_MV.float()
    if mask_token_id is not None:
        logits_MV[:, mask_token_id] = -torch.inf
    normaliser_M = logits_MV.logsumexp(-1)
    entropies = None
    if with_entropies:
        probs_MV = (logits_MV - normaliser_M[:, None]).exp()
        entropies = torch.special.entr(probs_MV).sum(-1).tolist()
    if allowed is not None:
        _restrict(logits_MV, allowed)
    best = logits_MV.max(-1)
    chosen_M, ids_M = best.values, best.indices
    drawn = [row for row, law in enumerate(laws) if law.temperature > 0]
    if drawn:
        ids_M = ids_M.clone()
        for law in dict.fromkeys(laws[row] for row in drawn):
            rows = [row for row in drawn if laws[row] == law]
            rows_R = torch.tensor(rows, device=logits_MV.device)
            uniforms_R = torch.tensor(
                [uniforms[row] for row in rows], device=logits_MV.device, dtype=torch.float64
            )
            ids_M[rows_R] = _draw(logits_MV[rows_R], law, uniforms_R)
        chosen_M = logits_MV.gather(1, ids_M[:, None])[:, 0]
    return Draws(
        token_ids=ids_M.tolist(),
        logprobs=(chosen_M - normaliser_M).tolist(),
        entropies=entropies,
    )


def _restrict(logits_MV: Tensor, allowed: Sequence[frozenset[int] | None]) -> None:
    for ids in dict.fromkeys(one for one in allowed if one is not None):
        rows = [row for row, one in enumerate(allowed) if one == ids]
        rows_R1 = torch.tensor(rows, device=logits_MV.device)[:, None]
        ids_A = torch.tensor(sorted(ids), device=logits_MV.device)
        kept_RA = logits_MV[rows_R1, ids_A]
        logits_MV[rows_R1[:, 0]] = -torch.inf
        logits_MV[rows_R1, ids_A] = kept_RA


def _draw(logits_RV: Tensor, law: Law, uniforms_R: Tensor) -> Tensor:
    scaled_RV = logits_RV / law.temperature
    order_RV: Tensor | None = None
    if law.top_k is not None and law.top_k < scaled_RV.shape[1]:
        scaled_RV, order_RV = scaled_RV.topk(law.top_k, dim=-1)
    elif law.top_p is not None:
        scaled_RV, order_RV = scaled_RV.sort(dim=-1, descending=True, stable=True)
    probs_RV = scaled_RV.double().softmax(-1)
    if law.top_p is not None:
        before_RV = probs_RV.cumsum(-1) - probs_RV
        probs_RV = probs_RV.masked_fill(before_RV >= law.top_p, 0.0)
    cumulative_RV = probs_RV.cumsum(-1)
    # Just below 1, so that rounding cannot lead past the last token with any probability.
    target_R1 = (uniforms_R * (1 - 1e-12) * cumulative_RV[:, -1])[:, None]
    index_R1 = torch.searchsorted(cumulative_RV, target_R1, right=True)
    return (index_R1 if order_RV is None else order_RV.gather(1, index_R1))[:, 0]
