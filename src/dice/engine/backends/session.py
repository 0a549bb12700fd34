"""Asks an endpoint until there is an answer: sending, retrying, and telling its troubles apart."""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import openai
from pydantic import SecretStr

from dice.engine.backends.base import Answer, Request, Unanswered, Usage
from dice.engine.backends.dialect import Dialect
from dice.engine.backends.options import EndpointOptions
from dice.engine.backends.pacing import Charge, Gate, RateLimit, backoff_s
from dice.engine.backends.wire import Kind, Reply, Trouble, read_error, read_reply
from dice.errors import ModelError
from dice.types import Completion

_CHARACTERS_PER_TOKEN = 3.0
"""Of code, on the low side, for the token limit until the endpoint has counted."""


class Session:
    """One stream of requests. Made anywhere, used inside one event loop."""

    def __init__(
        self,
        dialect: Dialect,
        options: EndpointOptions,
        key: SecretStr | None,
        tell: Callable[[str], None],
    ) -> None:
        self._dialect, self._options, self._key = dialect, options, key
        self._client = openai.AsyncOpenAI(
            api_key=key.get_secret_value() if key else "none",
            base_url=options.base_url,
            timeout=openai.Timeout(options.timeout_s, connect=min(30.0, options.timeout_s)),
            max_retries=0,
        )
        self._slots = asyncio.Semaphore(options.concurrency)
        self._requests = RateLimit(options.requests_per_minute)
        self._tokens = RateLimit(options.tokens_per_minute)
        self._gate = Gate(
            options.base_url,
            lambda message: tell(self._clean(message)),
            pause_after=options.pause_after,
            pause_limit_s=options.pause_limit_s,
            base_s=options.retry_base_s,
            longest_s=options.retry_longest_s,
        )

    async def answer(self, request: Request) -> Answer:
        """Asks until there is an answer."""
        spent = Usage()
        failures = own = answers_before = 0
        while True:
            async with self._slots, self._gate.passage():
                charge = await self._take(request)
                body = self._dialect.body(request)
                began = time.monotonic()
                outcome = await self._send(body)
                seconds = time.monotonic() - began
                if self._options.tokens_per_minute and outcome.usage.prompt_tokens:
                    charge.amount = outcome.usage.prompt_tokens + outcome.usage.completion_tokens
                self._note(outcome, failures)
            spent = _sum(spent, outcome.usage)
            usage = self._cost(spent)
            if isinstance(outcome, Reply):
                completion = _completion(outcome, request)
                return Answer(request=request, completion=completion, usage=usage, seconds=seconds)
            message = self._clean(outcome.message)
            if outcome.kind in (Kind.OVERFLOW, Kind.REFUSED, Kind.REJECTED):
                return Answer(
                    request=request,
                    failure=outcome.kind.value,
                    message=message,
                    usage=usage,
                    seconds=seconds,
                )
            if outcome.kind is Kind.FATAL:
                raise ModelError(self._advice(message))
            if outcome.kind is Kind.PARAMETER:
                self._dialect.adapt(outcome.parameter, body, message)
                continue
            failures += 1
            if outcome.kind is Kind.BROKEN or (
                outcome.kind is Kind.DOWN and self._gate.answers > answers_before
            ):
                own += 1  # the endpoint works, for others at least
            answers_before = self._gate.answers
            if own >= self._options.attempts:
                raise Unanswered(f"request {request.id}, {own} attempts: {message}")
            if not self._gate.paused:
                wait = backoff_s(
                    failures, self._options.retry_base_s, self._options.retry_longest_s
                )
                asked = min(outcome.retry_after_s or 0.0, self._options.pause_limit_s)
                await asyncio.sleep(max(wait, asked))

    async def _take(self, request: Request) -> Charge:
        prompt = request.prompt
        characters = len(prompt.text) + sum(len(one.content) for one in prompt.messages)
        await self._requests.take(1)
        return await self._tokens.take(
            characters / _CHARACTERS_PER_TOKEN + request.params.max_new_tokens
        )

    async def _send(self, body: dict[str, Any]) -> Reply | Trouble:
        try:
            async with asyncio.timeout(self._options.timeout_s):
                raw = await self._client.chat.completions.with_raw_response.create(**body)
        except openai.APIStatusError as error:
            return read_error(error.status_code, error.response.headers, error.response.text)
        except (TimeoutError, openai.APITimeoutError) as error:
            # No connection at all says something about the endpoint, a slow answer about the request.
            connecting = type(error.__cause__).__name__ == "ConnectTimeout"
            return Trouble(
                kind=Kind.DOWN if connecting else Kind.BROKEN,
                message=f"no answer in {self._options.timeout_s:g} s",
            )
        except openai.APIConnectionError as error:
            return Trouble(kind=Kind.DOWN, message=f"no connection: {error.__cause__ or error}")
        return read_reply(raw.http_response.text)

    def _note(self, outcome: Reply | Trouble, failures: int) -> None:
        """What an outcome says about the endpoint, for everybody else."""
        if isinstance(outcome, Reply):
            self._gate.answered()
        elif outcome.kind is Kind.DOWN:
            self._gate.failed(self._clean(outcome.message))
        elif outcome.kind is Kind.BUSY:
            wait = backoff_s(
                failures + 1, self._options.retry_base_s, self._options.retry_longest_s
            )
            self._gate.answered()
            self._gate.hold(max(wait, outcome.retry_after_s or 0.0), self._clean(outcome.message))
        elif outcome.kind is not Kind.BROKEN:
            self._gate.answered()

    def _advice(self, message: str) -> str:
        options = self._options
        return (
            f"{options.base_url} will not answer: {message}. Check the key (environment variable "
            f"{options.key_variable}), base_url, the model's name ({self._dialect.model}) and the account; "
            "nothing was counted as a failure, run again to go on"
        )

    def _cost(self, usage: Usage) -> Usage:
        price_in, price_out = self._options.input_price, self._options.output_price
        if price_in is None or price_out is None or not usage.prompt_tokens:
            return usage
        cost = (usage.prompt_tokens * price_in + usage.completion_tokens * price_out) / 1e6
        return replace(usage, cost_usd=cost)

    def _clean(self, text: str) -> str:
        return text.replace(self._key.get_secret_value(), "[key]") if self._key else text

    async def end(self) -> None:
        """Stops everything under way."""
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._client.close()
        await asyncio.get_running_loop().shutdown_default_executor()


def _completion(reply: Reply, request: Request) -> Completion:
    return Completion(
        prompt_ids=(),
        token_ids=(),
        steps=(),
        logprobs=(),
        text=reply.text,
        finish_reason=reply.finish_reason,
        forwards=0,
        seed=request.params.seed,
    )


def _sum(one: Usage, other: Usage) -> Usage:
    return Usage(
        prompt_tokens=one.prompt_tokens + other.prompt_tokens,
        completion_tokens=one.completion_tokens + other.completion_tokens,
    )
