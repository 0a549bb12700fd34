"""Block diffusion without a cache, for one sequence: the whole sequence is computed at every step.

Written for the tests only and independent of `dice.engine`: plain loops over DESIGN section 3.
"""

import math
from dataclasses import dataclass

import torch

from dice.models.sdar import SdarForCausalLM


@dataclass(frozen=True, kw_only=True)
class OracleResult:
    token_ids: list[int]
    steps: list[int | None]
    logprobs: list[float | None]
    stop_at: int | None
    forwards: int


def decode(
    model: SdarForCausalLM,
    prompt_ids: list[int],
    template: list[int | None],
    *,
    mask: int,
    stops: set[int],
    strategy: str = "low_confidence_dynamic",
    steps_per_block: int | None = None,
    threshold: float = 0.9,
    entropy_bound: float = 0.1,
    allowed: dict[int, set[int]] | None = None,
) -> OracleResult:
    """`allowed` by position after the prompt."""
    size = model.config.block_size
    steps_per_block = steps_per_block or size
    given: list[int | None] = [*prompt_ids, *template]
    pad_is_free = template[-1] is None
    while len(given) % size:
        given.append(None if pad_is_free else -1)  # -1: a hole nobody fills
    free = [at >= len(prompt_ids) and token is None for at, token in enumerate(given)]
    ids = [mask if token in (None, -1) else token for token in given]
    steps: list[int | None] = [None] * len(ids)
    logprobs: list[float | None] = [None] * len(ids)
    forwards = 0
    last_block = 0
    for block in range(len(ids) // size):
        at = range(block * size, (block + 1) * size)
        step = 0
        while todo := [i for i in at if free[i] and ids[i] == mask]:
            last_block = block
            with torch.no_grad():
                logits = model(torch.tensor([ids[: at.stop]])).logits[0].double()
            forwards += 1
            logits[:, mask] = -math.inf
            logp = logits.log_softmax(-1)
            best = {i: int(logits[i].argmax()) for i in todo}
            for i in todo:
                if allowed and (few := allowed.get(i - len(prompt_ids))):
                    best[i] = max(sorted(few), key=lambda v: float(logits[i, v]))
            sure = {i: float(logp[i, best[i]]) for i in todo}
            quota = size // steps_per_block + (1 if step < size % steps_per_block else 0)
            by_confidence = sorted(todo, key=lambda i: (-sure[i], i))
            if strategy == "sequential":
                chosen = todo[:quota]
            elif strategy == "low_confidence_static":
                chosen = by_confidence[:quota]
            elif strategy == "low_confidence_dynamic":
                chosen = [i for i in todo if math.exp(sure[i]) > threshold]
                if len(chosen) < quota:
                    chosen = by_confidence[:quota]
            elif strategy == "entropy_bounded":
                p = logp.exp()
                entropy = {
                    i: -sum(float(p[i, v] * logp[i, v]) for v in range(p.shape[1]) if v != mask)
                    for i in todo
                }
                order = sorted(todo, key=lambda i: (entropy[i], i))
                count = 0
                while count < len(order) and sum(entropy[i] for i in order[: count + 1]) <= (
                    entropy_bound
                ):
                    count += 1
                chosen = order[: max(count, quota)]
            else:
                raise AssertionError(strategy)
            for i in chosen:
                ids[i], steps[i], logprobs[i] = best[i], step, sure[i]
            step += 1
            for i in at:
                if free[i] and ids[i] == mask:
                    break
                if free[i] and ids[i] in stops:
                    return OracleResult(
                        token_ids=ids[len(prompt_ids) : at.stop],
                        steps=steps[len(prompt_ids) : at.stop],
                        logprobs=logprobs[len(prompt_ids) : at.stop],
                        stop_at=i - len(prompt_ids),
                        forwards=forwards,
                    )
    end = (last_block + 1) * size
    return OracleResult(
        token_ids=ids[len(prompt_ids) : end],
        steps=steps[len(prompt_ids) : end],
        logprobs=logprobs[len(prompt_ids) : end],
        stop_at=None,
        forwards=forwards,
    )
