"""Throughput and memory of the paged engine by batch and context: `benchmarks/decode.py --scale`."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass

import torch

import decode_cases
from dice.models.load import LoadedModel
from dice.models.memory import available_bytes
from dice.models.sdar.cache import cache_bytes

_SHARE = 0.9
"""Of the free memory that keys and values may take, as in the engine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """One batch at one context; without figures where its keys and values do not fit."""

    shape: str
    batch: int
    context: int
    """Positions of a sequence at its end."""
    new_tokens: int
    denoising_steps: int
    kv_gib: float
    """Of all sequences at their ends."""
    prefill_tokens_per_s: float | None = None
    tokens_per_s: float | None = None
    """Of responses, prefill not counted."""
    forwards_per_s: float | None = None
    peak_gib: float | None = None
    """Of all that was allocated, weights included; known on a GPU."""


def rows(loaded: LoadedModel, args: argparse.Namespace) -> Iterator[Row]:
    """Contexts, then batches, in the order given."""
    steps = int(args.denoising_steps.split(",")[0])
    for context in map(int, args.contexts.split(",")):
        if context <= args.new:
            raise SystemExit(
                f"a context of {context} has no room for {args.new} new tokens (--new)"
            )
        for batch in map(int, args.batches.split(",")):
            row = measure(loaded, batch, context, args.new, steps)
            print(json.dumps({name: getattr(row, name) for name in row.__slots__}), flush=True)
            yield row


def measure(loaded: LoadedModel, batch: int, context: int, new: int, steps: int) -> Row:
    """Decode one cell, if it fits."""
    weight = loaded.model.lm_head.weight
    on_gpu = weight.device.type == "cuda"
    if on_gpu:
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
    needed = cache_bytes(loaded.model.config, batch, context + 2 * loaded.block_size, weight.dtype)
    free = available_bytes(weight.device)
    common = {"shape": loaded.name, "batch": batch, "context": context, "new_tokens": new,
              "denoising_steps": steps, "kv_gib": round(needed / 2**30, 3)}  # fmt: skip
    if free is not None and needed > _SHARE * free:
        return Row(**common)
    timed = decode_cases.decode_timed(loaded, batch, steps, context - new, new)
    return Row(
        **common,
        prefill_tokens_per_s=round(batch * (context - new) / timed.prefill_s, 1),
        tokens_per_s=round(batch * new / timed.decode_s, 1),
        forwards_per_s=round(timed.forwards / timed.decode_s, 2),
        peak_gib=round(torch.cuda.max_memory_allocated() / 2**30, 2) if on_gpu else None,
    )
