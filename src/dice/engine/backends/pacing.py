"""When an endpoint may be asked: rate limits, waits after failures, pauses while it is dead.

Everything here belongs to one event loop.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

from dice.errors import ModelError

MINUTE_S = 60.0
_WORTH_TELLING_S = 30.0


@dataclass(slots=True)
class Charge:
    """What one request took from a limit; `amount` may be corrected once it is known."""

    amount: float
    at: float


class RateLimit:
    """At most `limit` in any minute, first come, first served. `None` limits nothing."""

    def __init__(self, limit: float | None) -> None:
        self._limit = limit
        self._charges: deque[Charge] = deque()
        self._turn = asyncio.Lock()

    async def take(self, amount: float) -> Charge:
        """Waits until there is room; what exceeds the limit by itself waits for a whole minute of it."""
        charge = Charge(amount, 0.0)
        if self._limit is None:
            return charge
        async with self._turn:
            while (wait := self._wait_s(min(amount, self._limit))) > 0:
                await asyncio.sleep(wait)
            charge.at = time.monotonic()
            self._charges.append(charge)
        return charge

    def _wait_s(self, amount: float) -> float:
        assert self._limit is not None
        now = time.monotonic()
        while self._charges and self._charges[0].at + MINUTE_S <= now:
            self._charges.popleft()
        excess = sum(one.amount for one in self._charges) + amount - self._limit
        for one in self._charges:
            if excess <= 0:
                break
            excess -= one.amount
            if excess <= 0:
                return one.at + MINUTE_S - now
        return 0.0


def backoff_s(failures: int, base_s: float, longest_s: float) -> float:
    """The wait after so many failures in a row: exponential, jittered by up to half of it."""
    return min(longest_s, base_s * 2.0 ** min(failures - 1, 30)) * random.uniform(0.5, 1.0)


class Gate:
    """Lets requests through while the endpoint works; once it is dead, one at a time, ever more slowly.

    A request that is let through reports `answered` or `failed` before it leaves its passage.
    """

    def __init__(
        self,
        where: str,
        tell: Callable[[str], None],
        *,
        pause_after: int,
        pause_limit_s: float,
        base_s: float,
        longest_s: float,
    ) -> None:
        self._where, self._tell = where, tell
        self._pause_after, self._pause_limit_s = pause_after, pause_limit_s
        self._base_s, self._longest_s = base_s, longest_s
        self.answers = 0
        """How often the endpoint has answered so far."""
        self._failures = 0
        self._dead_since: float | None = None
        self._probes = 0
        self._hold_until = 0.0
        self._turn = asyncio.Lock()

    @property
    def paused(self) -> bool:
        return self._dead_since is not None

    @asynccontextmanager
    async def passage(self) -> AsyncIterator[None]:
        """The time in which one request may be sent and answered."""
        if self.paused:
            async with self._turn:  # first come, first served, so that every request gets to probe
                if self.paused:
                    wait = min(self._longest_s, self._base_s * 2.0 ** min(self._probes, 30))
                    self._probes += 1
                    await asyncio.sleep(wait)
                    yield
                    return
        while (wait := self._hold_until - time.monotonic()) > 0:
            await asyncio.sleep(wait)
        yield

    def answered(self) -> None:
        """The endpoint works, whatever it said."""
        self.answers += 1
        self._failures = 0
        if self._dead_since is not None:
            lasted = time.monotonic() - self._dead_since
            self._dead_since, self._probes = None, 0
            self._tell(f"{self._where} answers again after {lasted:.0f} s; going on")

    def hold(self, wait_s: float, why: str) -> None:
        """Nothing more is sent for so long: a rate limit is everybody's.

        Raises:
            ModelError: longer than a pause may last.
        """
        if wait_s > self._pause_limit_s:
            raise ModelError(
                f"{self._where} asks to wait {wait_s:.0f} s ({why}), longer than a pause may last "
                "(pause_limit_s); run again then, nothing was counted as a failure"
            )
        until = time.monotonic() + wait_s
        if wait_s >= _WORTH_TELLING_S and until > self._hold_until + 1.0:
            self._tell(f"{self._where} asks to wait {wait_s:.0f} s ({why})")
        self._hold_until = max(self._hold_until, until)

    def failed(self, why: str) -> None:
        """The endpoint cannot be reached or is broken.

        Raises:
            ModelError: it has been so for longer than the limit.
        """
        self._failures += 1
        if self._dead_since is not None:
            lasted = time.monotonic() - self._dead_since
            if lasted > self._pause_limit_s:
                raise ModelError(
                    f"{self._where} has not answered for {lasted:.0f} s ({why}); requests without an answer "
                    "are not failures: run again to go on where this stopped"
                )
            self._tell(f"{self._where} still does not answer after {lasted:.0f} s ({why})")
        elif self._failures >= self._pause_after:
            self._dead_since = time.monotonic()
            self._tell(
                f"{self._where} failed {self._failures} times in a row ({why}): paused, nothing is lost; "
                f"asking again at least every {self._longest_s:.0f} s"
            )
