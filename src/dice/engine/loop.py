"""The decoding loop, whatever decodes: admit, step, retire. `LLM` is what people call.

Guarantees: a sequence comes out once, when it has ended; between two forwards nothing is computed, so whoever
stops asking stops the work.
"""

from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from typing import Protocol

from dice.engine.scheduler import Sequence

ABORTED = "aborted"
"""Finish reason of a sequence that somebody gave up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What one forward wrote into one sequence: positions of its canvas, which holds their tokens."""

    sequence: Sequence
    block: int
    step: int
    positions: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stepped:
    """What became of the running sequences in a forward."""

    written: list[Written]
    """Empty unless the forward was watched."""
    ended: list[Sequence]
    """No longer running; their canvases hold the result."""
    preempted: list[Sequence] = field(default_factory=list)
    """No longer running for lack of memory, oldest first; to be admitted again, to go on where they were."""


class Decoder(Protocol):
    """Something that decodes sequences side by side."""

    @property
    def running(self) -> list[Sequence]:
        """What is being decoded."""
        ...

    def admit(self, waiting: list[Sequence]) -> list[Sequence]:
        """Take sequences from the front while there is room; those that were taken."""
        ...

    def step(self, *, watched: bool) -> Stepped:
        """One forward of every running sequence. Unwatched, an end may be told a step late."""
        ...

    def abort(self, sequence: Sequence) -> None:
        """Stop decoding a running sequence; what it has so far is in its canvas."""
        ...


def decode(
    decoder: Decoder,
    sequences: Iterable[Sequence],
    *,
    watched: bool = False,
    aborts: deque[int] | None = None,
) -> Generator[Written | Sequence, None, None]:
    """Decode to the end, first come, first served; every sequence as it ends.

    Args:
        watched: also what each forward wrote, before the sequences that it ended.
        aborts: requests to give up, looked at (and taken) before every forward.
    """
    waiting = list(sequences)
    while True:
        while aborts:
            request = aborts.popleft()
            for sequence in [*waiting, *decoder.running]:
                if sequence.request == request:
                    yield _abort(decoder, sequence)
            waiting = [one for one in waiting if one.request != request]
        if waiting:
            waiting = waiting[len(decoder.admit(waiting)) :]
        if not decoder.running:
            return
        stepped = decoder.step(watched=watched)
        waiting = [*stepped.preempted, *waiting]
        yield from stepped.written
        yield from stepped.ended


def _abort(decoder: Decoder, sequence: Sequence) -> Sequence:
    if any(sequence is one for one in decoder.running):
        decoder.abort(sequence)
    if sequence.finish_reason is None:  # it may have ended unseen
        sequence.finish_reason = ABORTED
    return sequence
