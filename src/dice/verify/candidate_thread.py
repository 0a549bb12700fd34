"""The thread in which all code of a candidate runs: nothing of the worker is on its stack.

The worker's frames hold the channel and the nonce. A frame's callers are reachable from any exception,
so the candidate gets a stack of its own, and talks to the worker through queues that hold only its own
things.
"""

import _thread
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any

import torch

from dice.errors import BuildFailure
from dice.toolchain.source import BuiltExtension, ExtensionSources

_set_num_threads = torch.set_num_threads


class CandidateThread:
    """Runs one function at a time. `results` yields ("done", value), ("failed", exception) or
    ("build", request); a build's answer goes into `answers`."""

    def __init__(self) -> None:
        self._tasks: SimpleQueue[tuple[Callable[..., Any], tuple[Any, ...]]] = SimpleQueue()
        self.results: SimpleQueue[tuple[str, Any]] = SimpleQueue()
        self.answers: SimpleQueue[Any] = SimpleQueue()
        arguments = (self._tasks, self.results)
        threading.Thread(target=_loop, args=arguments, daemon=True, name="candidate").start()

    def start(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> None:
        """Have `function` run."""
        self._tasks.put((function, arguments))


def _loop(tasks: "SimpleQueue[Any]", results: "SimpleQueue[Any]") -> None:
    _set_num_threads(1)  # of the libraries; the setting belongs to a thread
    while True:
        function, arguments = tasks.get()
        try:
            outcome = ("done", function(*arguments))
        except BaseException as error:
            outcome = ("failed", error)
        results.put(outcome)
        del function, arguments, outcome


def follow_threads(recorder: Callable[[], Any]) -> None:
    """Have every thread that Python code starts from now on run inside `recorder()`, a context."""
    start = _thread.start_new_thread

    def started(function: Any, arguments: Any, *keywords: Any) -> Any:
        def recorded(*args: Any, **kwargs: Any) -> None:
            with recorder():
                function(*args, **kwargs)

        return start(recorded, arguments, *keywords)

    for module, name in ((_thread, "start_new_thread"), (_thread, "start_new")):
        setattr(module, name, started)
    threading._start_new_thread = started  # type: ignore[attr-defined]


class Builds:
    """Asks the judge's side for builds, from the candidate's thread."""

    def __init__(self, thread: CandidateThread, *, check: bool) -> None:
        self._requests, self._answers, self._check = thread.results, thread.answers, check

    def ask(self, sources: ExtensionSources) -> BuiltExtension:
        """A shared object for these sources; raises BuildFailure with the compiler's messages."""
        request = {
            "stage": "build",
            "name": sources.name,
            "cpp_sources": sources.cpp_sources,
            "cuda_sources": sources.cuda_sources,
            "functions": list(sources.functions),
            "defines": [list(pair) for pair in sources.defines],
            "cuda_flags": list(sources.cuda_flags),
            "ld_flags": list(sources.ld_flags),
            "stock_reason": sources.stock_reason,
        }
        self._requests.put(("build", request))
        answer = self._answers.get()
        if answer is None:
            raise BuildFailure("the judge has gone")
        if "failure" in answer:
            raise BuildFailure(answer["failure"])
        return BuiltExtension(
            sources=sources,
            path=answer["path"],
            seconds=answer["seconds"],
            route=answer["route"],
            check=self._check,
            module_prefix=answer["module_prefix"],
        )
