"""What a caller sees of decoding while it goes on: steps, finished completions, and a handle on the work."""

from collections import deque
from collections.abc import Generator, Iterator
from dataclasses import dataclass

from dice.errors import UserError
from dice.types import Completion


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
    """Set on the last event of a sequence that ended by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finished:
    """A completion, as soon as there is one."""

    request: int
    """Index of the prompt in the call."""
    completion: Completion


class Stream(Iterator[StepEvent | Finished]):
    """Decoding that is driven by whoever iterates: nothing is computed between two `next`.

    Every request has one `Finished`, after all of its steps. Leaving the context, `close` or dropping the
    object stops the work and frees its memory. One thread iterates and closes; any may call `abort`.
    """

    def __init__(
        self,
        events: Generator[StepEvent | Finished, None, None],
        aborts: deque[int],
        requests: int,
    ) -> None:
        self._events, self._aborts, self._requests = events, aborts, requests

    def __next__(self) -> StepEvent | Finished:
        return next(self._events)

    def abort(self, request: int) -> None:
        """Give up one request before the next forward.

        Its completion, with what it has so far, comes with the finish reason "aborted". Without effect on
        a request that has ended.

        Raises:
            UserError: there is no such request.
        """
        if not 0 <= request < self._requests:
            raise UserError(f"cannot abort request {request}: there are {self._requests}")
        self._aborts.append(request)

    def close(self) -> None:
        """Stop. Completions that are not finished never come. Idempotent."""
        self._events.close()

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
