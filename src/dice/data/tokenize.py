"""Pairs to token ids: prompt, kernel file, stop token."""

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from dice.data.records import PairRecord
from dice.data.store import SampleStore
from dice.data.tokenizer import STOP_TOKEN
from dice.models.chat import prompt_text
from dice.prompts.render import render
from dice.types import Problem, TrainingSample

_BATCH = 2000


def training_texts(records: Iterable[PairRecord]) -> Iterable[str]:
    """What a tokenizer is trained on: problems and kernels, without special tokens."""
    for record in records:
        yield record.problem_code
        yield record.kernel_code


def tokenize_pairs(
    records: Iterable[PairRecord], tokenizer: Any, *, template: str = "nano"
) -> SampleStore:
    """Render and tokenise. Prompt and kernel are encoded apart, as in decoding, so that the boundary
    between their tokens never moves."""
    return SampleStore.from_samples(_samples(records, tokenizer, template))


def _samples(
    records: Iterable[PairRecord], tokenizer: Any, template: str
) -> Iterable[TrainingSample]:
    stop = tokenizer.convert_tokens_to_ids(STOP_TOKEN)
    remaining = iter(records)
    while batch := list(islice(remaining, _BATCH)):
        prompts = _encode(tokenizer, [_prompt(r, template, tokenizer) for r in batch])
        kernels = _encode(tokenizer, [r.kernel_code for r in batch])
        for prompt, kernel in zip(prompts, kernels, strict=True):
            yield TrainingSample(token_ids=(*prompt, *kernel, stop), prompt_length=len(prompt))


def _prompt(record: PairRecord, template: str, tokenizer: Any) -> str:
    problem = Problem(name=str(record.index), code=record.problem_code, source="synth")
    return prompt_text(tokenizer, render(problem, template))


def _encode(tokenizer: Any, texts: Sequence[str]) -> list[list[int]]:
    ids: list[list[int]] = tokenizer(list(texts), add_special_tokens=False)["input_ids"]
    return ids
