"""Which batches come when in a supervised run, and how much of the run is done."""

import logging
from collections.abc import Iterator
from dataclasses import dataclass

from dice.config.schema import TrainSection
from dice.data.store import SampleStore
from dice.errors import DataError
from dice.train.batches import (
    SftBatch,
    TokenIds,
    batches_in,
    epoch_batches,
    grouped,
    prefetch,
)
from dice.train.checkpoint import Progress
from dice.train.layout import epoch_rows, filled_length

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Position:
    """Where in the data the step after this one begins."""

    epoch: int
    batch: int


class Plan:
    """The steps of a run over `store`: rows are planned anew for each epoch."""

    def __init__(self, store: SampleStore, settings: TrainSection, ids: TokenIds) -> None:
        self.store, self.settings, self.ids = store, settings, ids
        too_long = sum(
            filled_length(int(n), ids.block_size) > settings.row_length for n in store.lengths
        )
        if too_long == len(store):
            raise DataError(f"no sample fits a row of {settings.row_length} tokens")
        if too_long:
            logger.warning("%d of %d samples exceed the row and are left out", too_long, len(store))
        self.total_steps = None if settings.time_budget_s is not None else self._count_steps()

    def steps(self, start: Progress) -> Iterator[tuple[Position, list[SftBatch]]]:
        """The batches of every step from `start` on, with the position after it."""
        return prefetch(self._steps(start))

    def done(self, progress: Progress) -> float:
        """Share of the run that the next step's middle is at."""
        if self.total_steps is not None:
            return (progress.step + 0.5) / self.total_steps
        assert self.settings.time_budget_s is not None
        return progress.elapsed_s / self.settings.time_budget_s

    def finished(self, progress: Progress) -> bool:
        if self.total_steps is not None:
            return progress.step >= self.total_steps
        limit = self.settings.max_steps
        return self.done(progress) >= 1.0 or (limit is not None and progress.step >= limit)

    def _steps(self, start: Progress) -> Iterator[tuple[Position, list[SftBatch]]]:
        settings, epoch, batch = self.settings, start.epoch, start.batch
        while settings.time_budget_s is not None or epoch < settings.epochs:
            batches = epoch_batches(
                self.store,
                rows := self._rows(epoch),
                self.ids,
                row_length=settings.row_length,
                rows_per_batch=settings.rows_per_batch,
                noise=settings.noise,
                noise_eps=settings.noise_eps,
                seed=settings.seed,
                epoch=epoch,
                first_batch=batch,
            )
            last = batches_in(len(rows), settings.rows_per_batch)
            for group in grouped(batches, settings.accumulation):
                batch += len(group)
                ended = batch == last
                yield Position(epoch=epoch + ended, batch=0 if ended else batch), group
            epoch, batch = epoch + 1, 0

    def _rows(self, epoch: int) -> list[list[int]]:
        return epoch_rows(
            self.store,
            row_length=self.settings.row_length,
            block_size=self.ids.block_size,
            seed=self.settings.seed,
            epoch=epoch,
        )

    def _count_steps(self) -> int:
        per_step = self.settings.rows_per_batch * self.settings.accumulation
        steps = sum(
            batches_in(len(self._rows(epoch)), per_step) for epoch in range(self.settings.epochs)
        )
        return min(steps, self.settings.max_steps or steps)
