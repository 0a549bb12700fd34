"""One side of a timing, in its process: base inputs, batches of calls, the outputs that are asked for."""

from collections.abc import Callable
from typing import Any

from dice.verify import trees
from dice.verify.timing.loop import Stopwatch, fresh, time_calls
from dice.verify.trees import Tree

_fresh, _time_calls, _save = fresh, time_calls, trees.save


class TimedCalls:
    """A model and the inputs that it is timed on.

    `ready` makes the inputs of a batch and is not timed; `go` calls the model once with each; `keep` writes
    outputs of the last batch. Outputs live until the next `ready`, so that none can share memory.
    """

    def __init__(self, watch: Stopwatch, model: Callable[..., Any], base: list[Tree]) -> None:
        self._watch, self._model, self._base = watch, model, base
        self._inputs: list[Tree] = []
        self._outputs: list[Any] = []

    def ready(self, calls: int, seed: int) -> None:
        """Call `i` gets base inputs `i % len(base)` with values from `seed + i`."""
        self._inputs, self._outputs = [], []
        self._inputs = [
            _fresh(self._base[call % len(self._base)], seed + call) for call in range(calls)
        ]

    def go(self) -> list[float]:
        """Microseconds of each call, by the device."""
        self._outputs, calls_us = _time_calls(self._watch, self._model, self._inputs)
        return calls_us

    @property
    def outputs(self) -> list[Any]:
        """Of the last batch."""
        return self._outputs

    def keep(self, call: int, path: str) -> None:
        """Write the output of one call of the last batch."""
        _save(self._outputs[call], path)
