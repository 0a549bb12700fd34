"""Prompts in, completions out: the loop schedule, run, postprocess.

Guarantees: at temperature 0 the result equals that of a full recomputation without a cache; otherwise it
depends on the prompt, the parameters and their seed, not on the batch (up to floating-point rounding of
differently shaped matrix products). Every generated position is recorded with the step at which it was
unmasked and its log-probability then.
"""

from collections import deque
from collections.abc import Callable, Generator, Sequence
from functools import cache

from dice.engine.canvas import Canvas
from dice.engine.events import Finished, StepEvent, Stream
from dice.engine.loop import ABORTED, Decoder, Written, decode
from dice.engine.plain import PlainDecoder
from dice.engine.request import decoding_bytes, make_canvas, tokenise_with
from dice.engine.sampling import SamplingParams
from dice.engine.scheduler import Sequence as Decoded
from dice.errors import UserError
from dice.models.load import LoadedModel
from dice.models.memory import require_memory
from dice.types import Completion, Prompt


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
        completions: dict[int, Completion] = {}
        with self.stream(prompts, params, steps=on_step is not None) as stream:
            for event in stream:
                if isinstance(event, Finished):
                    completions[event.request] = event.completion
                elif on_step is not None:
                    on_step(event)
        return [completions[request] for request in range(len(prompts))]

    def stream(
        self,
        prompts: Sequence[Prompt],
        params: SamplingParams | Sequence[SamplingParams],
        *,
        steps: bool = True,
    ) -> Stream:
        """The same work, watched: every step as it is done, every completion as soon as it is finished.

        With `steps=False` completions only, which is faster on a GPU: the host need not look at every
        step. Raises what `generate` raises, on this call rather than on the first `next`.
        """
        sequences = self._sequences(prompts, params)
        rows = min(self._max_rows, len(sequences))
        if sequences:
            # pages are taken as sequences grow: there must be room for the longest
            at_once = 1 if self._paged else rows
            self._require_memory([sequence.canvas for sequence in sequences], at_once)
        aborts: deque[int] = deque()
        return Stream(self._events(sequences, rows, steps, aborts), aborts, len(sequences))

    def _sequences(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Decoded]:
        per_prompt = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(per_prompt) != len(prompts):
            raise UserError(f"{len(prompts)} prompts but {len(per_prompt)} sampling parameters")
        tokenise = cache(tokenise_with(self.loaded))
        return [
            Decoded(
                request=index,
                canvas=make_canvas(
                    self.loaded, prompt, param, tokenise=tokenise, where=f"prompt {index}"
                ),
                params=param,
            )
            for index, (prompt, param) in enumerate(zip(prompts, per_prompt, strict=True))
        ]

    def _events(
        self, sequences: list[Decoded], rows: int, steps: bool, aborts: deque[int]
    ) -> Generator[StepEvent | Finished, None, None]:
        if not sequences:
            return
        decoder = self._decoder(rows, max(len(one.canvas) for one in sequences))
        for news in decode(decoder, sequences, watched=steps, aborts=aborts):
            if isinstance(news, Written):
                yield self._event(news)
            else:
                yield Finished(request=news.request, completion=self._completion(news))

    def _decoder(self, rows: int, capacity: int) -> Decoder:
        if self._paged:
            from dice.engine.paged.runner import PagedRunner

            return PagedRunner(self.loaded, rows, capacity)
        return PlainDecoder(
            self.loaded, rows, capacity, batched=self._batched_attention, native=self._native
        )

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

    def _event(self, written: Written) -> StepEvent:
        sequence, canvas = written.sequence, written.sequence.canvas
        token_ids = tuple(canvas.token_ids[at] for at in written.positions)
        logprobs = [canvas.logprobs[at] for at in written.positions]
        return StepEvent(
            request=sequence.request,
            block=written.block,
            step=written.step,
            positions=tuple(at - canvas.prompt_length for at in written.positions),
            token_ids=token_ids,
            texts=tuple(map(self._token_text, token_ids)),
            logprobs=tuple(logprob for logprob in logprobs if logprob is not None),
            generated_stop=(written.block + 1) * canvas.block_size - canvas.prompt_length,
            finish_reason=sequence.finish_reason,
        )

    def _completion(self, sequence: Decoded) -> Completion:
        canvas = sequence.canvas
        start, stop = canvas.prompt_length, (sequence.block + 1) * canvas.block_size
        if sequence.finish_reason == ABORTED:
            text_ids = canvas.token_ids[start : canvas.first_masked()]
        else:
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
