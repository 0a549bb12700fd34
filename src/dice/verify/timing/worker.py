"""The candidate's process while it is timed: as `gpu_worker`, without what slows calls down.

No operators are recorded and fresh memory is not filled. The judge's clock runs over the "go" request
alone; which outputs it wants to see it says afterwards.
"""

from typing import Any

import torch

from dice.sandbox.wire import Channel, Message
from dice.verify.gpu_worker import GpuWorker
from dice.verify.timing.calls import TimedCalls
from dice.verify.timing.loop import stopwatch
from dice.verify.worker import serve


def main(channel: Channel) -> int:
    """Entry of the process: a candidate, then batches of calls."""
    return serve(channel, TimingWorker)


class TimingWorker(GpuWorker):
    """Answers "inputs", "ready", "go" and "keep" besides the requests of `Worker`."""

    _calls: TimedCalls | None = None

    def open_backend(self) -> None:
        super().open_backend()
        self._watch = stopwatch("cuda")

    def handle(self, request: Message) -> Message:
        action = request["do"]
        if action == "inputs":
            base = [self.load_inputs(path) for path in request["paths"]]
            self._calls = TimedCalls(self._watch, self._model, base)
            return self._report(action, "", "")
        if action not in ("ready", "go", "keep"):
            return super().handle(request)
        assert self._calls is not None
        answer: Message = {}
        if action == "ready":
            self._calls.ready(request["calls"], request["seed"])
            self.after_call()
            torch.manual_seed(request["seed"])
        elif action == "go":
            answer["calls_us"] = self._timed()
        else:
            self._run("call", self._calls.keep, request["call"], request["path"])
        return {**self._report(action, "", ""), **answer}

    def _timed(self) -> Any:
        """In the candidate's own thread, the whole batch at once."""
        assert self._calls is not None
        return self._run("call", self._calls.go)
