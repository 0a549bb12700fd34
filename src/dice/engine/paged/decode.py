"""The loop over a `PagedRunner`: admit, step, retire."""

from collections.abc import Callable, Sequence

from dice.engine.paged.runner import PagedRunner, Written
from dice.engine.scheduler import Sequence as Decoded
from dice.models.load import LoadedModel


def decode(
    loaded: LoadedModel,
    sequences: Sequence[Decoded],
    slots: int,
    *,
    fused: bool | None = None,
    on_written: Callable[[Written], None] | None = None,
) -> PagedRunner:
    """Decode sequences to their ends; their canvases hold the result.

    With `on_written` the host looks at every step, which costs speed. Returns the runner, whose pages are
    free again.
    """
    capacity = max(len(one.canvas) for one in sequences)
    runner = PagedRunner(loaded, min(slots, len(sequences)), capacity, fused=fused)
    waiting = list(sequences)
    while True:
        if waiting:
            waiting = waiting[len(runner.admit(waiting)) :]
        if not runner.running:
            return runner
        runner.step()
        if on_written is not None:
            for written in runner.news():
                on_written(written)
        runner.ended(behind=0 if on_written is not None else 1)
