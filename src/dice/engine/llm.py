"""Prompts in, completions out: the loop schedule, run, postprocess.

Guarantees: at temperature 0 the result equals that of a full recomputation without a cache; otherwise it
depends on the prompt, the parameters and their seed, not on the batch (up to floating-point rounding of
differently shaped matrix products). Every generated position is recorded with the step at which it was
unmasked and its log-probability then.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache

from dice.engine.canvas import Canvas
from dice.engine.remasking import STRATEGIES, Candidates, scheduled_number
from dice.engine.request import decoding_bytes, make_canvas, tokenise_with
from dice.engine.runner import Runner
from dice.engine.sampling import SamplingParams
from dice.engine.scheduler import Scheduler
from dice.engine.scheduler import Sequence as Decoded
from dice.errors import UserError
from dice.models.load import LoadedModel
from dice.models.memory import require_memory
from dice.types import Completion, Prompt


@dataclass(frozen=True, slots=True, kw_only=True)
class StepEvent:
    """What one denoising forward did to one sequence.

    `positions` index `Completion.token_ids`: 0 is the first position after the prompt. Each has a token
    id, the token's text and its log-probability.
    """

    request: int
    """Index of the prompt in the call."""
    block: int
    """Diffusion block, counted from position 0 of the sequence, prompt included."""
    step: int
    """0-based denoising step within the block."""
    positions: tuple[int, ...]
    token_ids: tuple[int, ...]
    texts: tuple[str, ...]
    logprobs: tuple[float, ...]
    generated_stop: int
    """Behind the last generated position of the block: what a viewer has to show so far."""
    finish_reason: str | None
    """Set on the sequence's last event."""


class LLM:
    """Decodes with one loaded model; at most `max_rows` sequences at a time.

    `batched_attention` is passed to the cache: `None` is one attention call for all rows on a GPU and
    one per row on a CPU. `native` runs the compiled forward of `dice.engine.native`; `None` does so for
    small float32 models on a CPU unless `batched_attention` is set. `paged` keeps keys, values and the
    decoding state in pages on the GPU (needs Triton; not yet run on one, so it is not the default).
    """

    def __init__(
        self,
        loaded: LoadedModel,
        *,
        max_rows: int = 64,
        batched_attention: bool | None = None,
        native: bool | None = None,
        paged: bool = False,
    ) -> None:
        self.loaded = loaded
        self._max_rows = max_rows
        self._batched_attention = batched_attention
        self._native = native
        self._paged = paged
        self._token_text = cache(lambda token_id: str(loaded.tokenizer.decode([token_id])))

    def generate(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams],
        on_step: Callable[[StepEvent], None] | None = None,
    ) -> list[Completion]:
        """One completion per prompt, in order. One `SamplingParams` serves all prompts, seed included.

        Raises:
            UserError: numbers of prompts and parameters differ, or what `make_canvas` refuses.
            ModelError: too little memory for the keys and values, or no chat template for messages.
        """
        per_prompt = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(per_prompt) != len(prompts):
            raise UserError(f"{len(prompts)} prompts but {len(per_prompt)} sampling parameters")
        tokenise = cache(tokenise_with(self.loaded))
        sequences = [
            Decoded(
                request=index,
                canvas=make_canvas(
                    self.loaded, prompt, param, tokenise=tokenise, where=f"prompt {index}"
                ),
                params=param,
            )
            for index, (prompt, param) in enumerate(zip(prompts, per_prompt, strict=True))
        ]
        if not sequences:
            return []
        rows = min(self._max_rows, len(sequences))
        self._require_memory([sequence.canvas for sequence in sequences], rows)
        if self._paged:
            self._decode_paged(sequences, rows, on_step)
        else:
            self._decode(sequences, rows, on_step)
        return [self._completion(sequence) for sequence in sequences]

    def _decode_paged(
        self, sequences: list[Decoded], rows: int, on_step: Callable[[StepEvent], None] | None
    ) -> None:
        from dice.engine.paged.decode import decode
        from dice.engine.paged.runner import Written

        def report(written: Written) -> None:
            assert on_step is not None
            on_step(self._event(written.sequence, written.block, written.step, written.positions))

        decode(self.loaded, sequences, rows, on_written=None if on_step is None else report)

    def _decode(
        self, sequences: list[Decoded], rows: int, on_step: Callable[[StepEvent], None] | None
    ) -> None:
        runner = Runner(
            self.loaded,
            rows,
            max(len(s.canvas) for s in sequences),
            batched=self._batched_attention,
            native=self._native,
        )
        scheduler = Scheduler(sequences, rows)
        while True:
            admitted = scheduler.admit()
            if not scheduler.running:
                break
            runner.prefill(admitted, scheduler.running)
            result = runner.denoise(scheduler.running)
            offset = 0
            for sequence, positions in zip(scheduler.running, result.masked, strict=True):
                span = slice(offset, offset + len(positions))
                offset = span.stop
                entropies = result.draws.entropies
                candidates = Candidates(
                    logprobs=result.draws.logprobs[span],
                    entropies=None if entropies is None else entropies[span],
                )
                event = self._unmask(
                    sequence,
                    positions,
                    result.draws.token_ids[span],
                    candidates,
                    on_step is not None,
                )
                if on_step is not None and event is not None:
                    on_step(event)
            scheduler.retire()

    def check(self, prompt: Prompt, params: SamplingParams) -> None:
        """Raise what `generate` would raise for this prompt: UserError, for an overflow above all."""
        self._require_memory([make_canvas(self.loaded, prompt, params)], 1)

    def _require_memory(self, canvases: list[Canvas], rows: int) -> None:
        weight = self.loaded.model.lm_head.weight
        require_memory(
            decoding_bytes(self.loaded, canvases, rows, weight.dtype),
            weight.device,
            f"decoding {rows} sequences at a time",
            "decode fewer at a time, or allow fewer new tokens (max_new_tokens)",
        )

    def _unmask(
        self,
        sequence: Decoded,
        positions: list[int],
        token_ids: list[int],
        candidates: Candidates,
        with_event: bool,
    ) -> StepEvent | None:
        canvas, params, block = sequence.canvas, sequence.params, sequence.block
        size = canvas.block_size
        scheduled = scheduled_number(sequence.step, size, params.denoising_steps or size)
        strategy = STRATEGIES[params.remasking_strategy]
        chosen = strategy(candidates, scheduled, params.bound)
        for index in chosen:
            canvas.write(
                positions[index], token_ids[index], sequence.step, candidates.logprobs[index]
            )
        step = sequence.step
        sequence.advance(self.loaded.stop_token_ids, block_done=len(chosen) == len(positions))
        if not with_event:
            return None
        return self._event(sequence, block, step, tuple(positions[index] for index in chosen))

    def _event(
        self, sequence: Decoded, block: int, step: int, positions: tuple[int, ...]
    ) -> StepEvent:
        canvas = sequence.canvas
        token_ids = tuple(canvas.token_ids[at] for at in positions)
        return StepEvent(
            request=sequence.request,
            block=block,
            step=step,
            positions=tuple(at - canvas.prompt_length for at in positions),
            token_ids=token_ids,
            texts=tuple(map(self._token_text, token_ids)),
            logprobs=tuple(
                logprob for at in positions if (logprob := canvas.logprobs[at]) is not None
            ),
            generated_stop=(block + 1) * canvas.block_size - canvas.prompt_length,
            finish_reason=sequence.finish_reason,
        )

    def _completion(self, sequence: Decoded) -> Completion:
        canvas = sequence.canvas
        start, stop = canvas.prompt_length, (sequence.block + 1) * canvas.block_size
        written_to = canvas.free_stop if sequence.stop_at is None else sequence.stop_at
        text_ids = [*canvas.token_ids[start:written_to], *canvas.suffix_ids]
        assert sequence.finish_reason is not None
        return Completion(
            prompt_ids=tuple(canvas.token_ids[:start]),
            token_ids=tuple(canvas.token_ids[start:stop]),
            steps=tuple(canvas.steps[start:stop]),
            logprobs=tuple(canvas.logprobs[start:stop]),
            text=self.loaded.tokenizer.decode(
                text_ids, skip_special_tokens=True, clean_up_tokenization_spaces=False
            ),
            finish_reason=sequence.finish_reason,
            forwards=sequence.forwards,
            seed=sequence.params.seed,
        )
