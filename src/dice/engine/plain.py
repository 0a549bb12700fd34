"""Decoding with the plain (or native) model: the host chooses what each forward unmasks."""

from dice.engine.loop import Stepped, Written
from dice.engine.remasking import STRATEGIES, Candidates, scheduled_number
from dice.engine.runner import Runner
from dice.engine.sampling import Draws
from dice.engine.scheduler import Scheduler, Sequence
from dice.models.load import LoadedModel


class PlainDecoder:
    """A `loop.Decoder` of `rows` sequences of at most `capacity` positions.

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
        self._stop_token_ids = loaded.stop_token_ids
        self._runner = Runner(loaded, rows, capacity, batched=batched, native=native)
        self._scheduler = Scheduler(rows)

    @property
    def running(self) -> list[Sequence]:
        return self._scheduler.running

    def admit(self, waiting: list[Sequence]) -> list[Sequence]:
        admitted = self._scheduler.admit(waiting)
        self._runner.prefill(admitted, self.running)
        return admitted

    def step(self, *, watched: bool) -> Stepped:
        result = self._runner.denoise(self.running)
        written, offset = [], 0
        for sequence, positions in zip(self.running, result.masked, strict=True):
            draws = _part(result.draws, offset, len(positions))
            offset += len(positions)
            one = self._unmask(sequence, positions, draws)
            if watched:
                written.append(one)
        return Stepped(written=written, ended=self._scheduler.retire())

    def abort(self, sequence: Sequence) -> None:
        self._scheduler.remove([sequence])

    def _unmask(self, sequence: Sequence, positions: list[int], draws: Draws) -> Written:
        canvas, params = sequence.canvas, sequence.params
        block, step, size = sequence.block, sequence.step, sequence.canvas.block_size
        scheduled = scheduled_number(step, size, params.denoising_steps or size)
        candidates = Candidates(logprobs=draws.logprobs, entropies=draws.entropies)
        chosen = STRATEGIES[params.remasking_strategy](candidates, scheduled, params.bound)
        for index in chosen:
            canvas.write(positions[index], draws.token_ids[index], step, draws.logprobs[index])
        sequence.advance(self._stop_token_ids, block_done=len(chosen) == len(positions))
        return Written(
            sequence=sequence,
            block=block,
            step=step,
            positions=tuple(positions[index] for index in chosen),
        )


def _part(draws: Draws, start: int, count: int) -> Draws:
    span = slice(start, start + count)
    return Draws(
        token_ids=draws.token_ids[span],
        logprobs=draws.logprobs[span],
        entropies=None if draws.entropies is None else draws.entropies[span],
    )
