"""What one prompt asks of the model, checked before any work: its canvas and the memory decoding takes."""

from collections.abc import Callable, Iterable

import torch

from dice.engine.canvas import Canvas
from dice.engine.sampling import SamplingParams
from dice.errors import ContextOverflow, UserError
from dice.models.chat import prompt_text
from dice.models.load import Checkpoint
from dice.models.sdar.cache import cache_bytes
from dice.types import Prompt

Tokenise = Callable[[str], tuple[int, ...]]


def tokenise_with(checkpoint: Checkpoint) -> Tokenise:
    """Text to token ids, special tokens understood, none added."""
    tokenizer = checkpoint.tokenizer
    return lambda text: tuple(tokenizer.encode(text, add_special_tokens=False)) if text else ()


def make_canvas(
    checkpoint: Checkpoint,
    prompt: Prompt,
    params: SamplingParams,
    *,
    tokenise: Tokenise | None = None,
    where: str = "the prompt",
) -> Canvas:
    """The canvas that decoding starts from.

    Raises:
        ContextOverflow: prompt and answer are longer than the model's positions.
        UserError: the prompt is empty or contains the mask token; more denoising steps than positions in
            a block.
        ModelError: messages for a tokenizer without a chat template.
    """
    tokenise = tokenise or tokenise_with(checkpoint)
    if params.denoising_steps is not None and params.denoising_steps > checkpoint.block_size:
        raise UserError(
            f"denoising_steps {params.denoising_steps} exceeds the block size {checkpoint.block_size}"
        )
    prompt_ids = tokenise(prompt_text(checkpoint.tokenizer, prompt))
    prefix_ids, suffix_ids = tokenise(prompt.forced_prefix), tokenise(prompt.forced_suffix)
    named = f"{where} ({prompt.problem})"
    if not prompt_ids:
        raise UserError(f"{named} is empty")
    if checkpoint.mask_token_id in (*prompt_ids, *prefix_ids, *suffix_ids):
        raise UserError(
            f"{named} contains the model's mask token "
            f"{checkpoint.tokenizer.convert_ids_to_tokens(checkpoint.mask_token_id)!r}; remove it"
        )
    canvas = Canvas(
        prompt_ids,
        [*prefix_ids, *[None] * params.max_new_tokens, *suffix_ids],
        block_size=checkpoint.block_size,
        mask_token_id=checkpoint.mask_token_id,
    )
    limit = checkpoint.config.max_position_embeddings
    if len(canvas) > limit:
        room = limit - len(prompt_ids) - len(prefix_ids) - len(suffix_ids)
        advice = (
            f"allow at most {room - checkpoint.block_size} new tokens"
            if room > checkpoint.block_size
            else "shorten the problem"
        )
        raise ContextOverflow(
            f"{named} has {len(prompt_ids)} tokens; with {len(canvas) - len(prompt_ids)} more it exceeds "
            f"the model's {limit} positions; {advice} (max_new_tokens)"
        )
    _check_allowed(checkpoint, canvas, params, named)
    return canvas


def _check_allowed(
    checkpoint: Checkpoint, canvas: Canvas, params: SamplingParams, named: str
) -> None:
    vocabulary = checkpoint.config.vocab_size
    for position, token_ids in (params.allowed_token_ids or {}).items():
        at = canvas.prompt_length + position
        where = f"allowed_token_ids of {named}: position {position}"
        if at >= len(canvas):
            raise UserError(
                f"{where} is not among the {len(canvas) - canvas.prompt_length} generated"
            )
        if not canvas.free[at]:
            raise UserError(f"{where} is forced; the model does not write there")
        if checkpoint.mask_token_id in token_ids:
            raise UserError(f"{where} allows the mask token {checkpoint.mask_token_id}; remove it")
        if not 0 <= min(token_ids) <= max(token_ids) < vocabulary:
            raise UserError(f"{where} allows ids outside the vocabulary of {vocabulary}")


def decoding_bytes(
    checkpoint: Checkpoint, canvases: Iterable[Canvas], rows: int, dtype: torch.dtype
) -> int:
    """Memory for the keys and values of `rows` sequences, each as long as the longest canvas."""
    capacity = max(len(canvas) for canvas in canvases)
    return cache_bytes(checkpoint.config, rows, capacity, dtype)
