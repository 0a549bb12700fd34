"""Endpoints that speak OpenAI's chat completions: hosted models, vLLM, SGLang, llama.cpp, ...

Guarantees: every request ends in one answer, or in an exception that leaves it unanswered; trouble of the
endpoint, of the network or with the key never counts as the model's failure. A dead endpoint pauses the run.
The key is read from the environment and never appears in a description, message, log or exception.

Not covered: forced text (no such endpoint can), streaming, choices other than the first.
"""

import asyncio
import queue
import threading
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future
from types import TracebackType

from dice.engine.backends.base import Answer, OnPause, Request, Unanswered
from dice.engine.backends.dialect import Dialect
from dice.engine.backends.options import EndpointOptions
from dice.engine.backends.wire import Kind
from dice.errors import ModelError
from dice.models.generation import GenerationDefaults
from dice.types import Completion

_DOOMED = 5
"""Requests the endpoint rejected, with none accepted, after which the run and not they must be wrong."""


class OpenAIBackend:
    """One model of one endpoint.

    Raises:
        UserError: no key.
        ModelError: the `openai` package is not installed.
    """

    block_size = 1

    def __init__(
        self, model: str, options: EndpointOptions, on_pause: OnPause | None = None
    ) -> None:
        try:
            from dice.engine.backends.session import Session
        except ImportError as error:
            raise ModelError(
                "endpoints need the openai package: pip install 'dice-cuda[openai]'"
            ) from error
        self.name = f"openai:{model}"
        self.template = options.template
        self.defaults = GenerationDefaults()
        self._options = options
        self._key = options.read_key()
        self._dialect = Dialect(model, options)
        self._on_pause = on_pause or (lambda message: None)
        self._session = Session

    def describe(self) -> dict[str, object]:
        options = self._options
        return {
            "kind": "endpoint",
            "model": self._dialect.model,
            "base_url": options.base_url,
            "template": options.template,
            "omit": list(options.omit),
            "input_price": options.input_price,
            "output_price": options.output_price,
            "notes": list(self._dialect.notes),
        }

    def pieces(self, completion: Completion) -> tuple[str, ...] | None:
        return None

    def answers(self, requests: Iterable[Request]) -> Generator[Answer, None, None]:
        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever, name="dice-endpoint", daemon=True)
        arrivals: queue.SimpleQueue[Future[Answer] | str] = queue.SimpleQueue()
        session = self._session(self._dialect, self._options, self._key, arrivals.put)
        thread.start()
        try:

            def submit(request: Request) -> None:
                coroutine = session.answer(request)
                asyncio.run_coroutine_threadsafe(coroutine, loop).add_done_callback(arrivals.put)

            yield from self._collect(requests, submit, arrivals)
        finally:
            try:
                asyncio.run_coroutine_threadsafe(session.end(), loop).result()
            finally:
                loop.call_soon_threadsafe(loop.stop)
                thread.join()
                loop.close()

    def _collect(
        self,
        requests: Iterable[Request],
        submit: Callable[[Request], None],
        arrivals: "queue.SimpleQueue[Future[Answer] | str]",
    ) -> Generator[Answer, None, None]:
        """Keeps twice as many requests under way as may be sent at a time, so that a caller who is busy
        with an answer does not stop the endpoint."""
        waiting, pending, more = iter(requests), 0, True
        accepted = False
        rejected: list[Answer] = []
        unanswered: list[Unanswered] = []
        while True:
            while more and pending < 2 * self._options.concurrency:
                request = next(waiting, None)
                more = request is not None
                if request is not None:
                    submit(request)
                    pending += 1
            if not pending:
                break
            arrival = arrivals.get()
            if isinstance(arrival, str):
                self._on_pause(arrival)
                continue
            pending -= 1
            try:
                answer = arrival.result()
            except Unanswered as error:
                unanswered.append(error)
                continue
            accepted = accepted or answer.failure != Kind.REJECTED
            # A rejection counts against the model only if the endpoint takes other requests.
            ready = [*rejected, answer] if accepted else []
            rejected = [] if accepted else [*rejected, answer]
            yield from ready
            if len(rejected) >= _DOOMED:
                break
        if rejected:
            raise ModelError(
                f"{self.name} rejects every request: {rejected[0].message}; check the model's name, base_url "
                "and the sampling parameters (omit leaves one out)"
            )
        if unanswered:
            raise Unanswered(
                f"{len(unanswered)} requests got no answer and are not counted as failures; run again to ask "
                f"them again. The first: {unanswered[0]}"
            )

    def close(self) -> None:
        """Nothing is held between calls."""

    def __enter__(self) -> "OpenAIBackend":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()
