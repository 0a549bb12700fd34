"""The jobs that wait, and which of them a worker takes next.

Preparing a problem costs about a second, so a worker prefers jobs of the problems that it holds, then
those that nobody holds. A job that was passed over often enough goes first.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any

PATIENCE = 256
"""Later jobs that may overtake one."""


@dataclass(slots=True, kw_only=True)
class Ticket:
    """One submitted job. `key` names its problem."""

    key: str
    job: Any
    future: "Future[Any]"
    number: int = 0
    deaths: int = 0
    """Workers that died on it."""


@dataclass(slots=True)
class JobQueue:
    """Shared by the pool and its workers' threads."""

    limit: int
    _waiting: "OrderedDict[str, deque[Ticket]]" = field(default_factory=OrderedDict)
    _holders: dict[int, tuple[str, ...]] = field(default_factory=dict)
    _changed: threading.Condition = field(default_factory=threading.Condition)
    _count: int = 0
    _last: int = 0
    _closed: bool = False

    def put(self, ticket: Ticket, timeout_s: float | None = None) -> bool:
        """Add a job; waits while `limit` jobs wait. False when that took too long or it is closed."""
        with self._changed:
            room = self._changed.wait_for(
                lambda: self._closed or self._count < self.limit, timeout_s
            )
            if not room or self._closed:
                return False
            self._last += 1
            ticket.number = self._last
            self._add(ticket)
            return True

    def put_back(self, ticket: Ticket) -> None:
        """A job whose worker died: before all others of its problem, whatever the limit."""
        with self._changed:
            self._add(ticket, front=True)

    def take(self, worker: int) -> Ticket | None:
        """The next job for this worker; waits for one. None once closed and empty."""
        with self._changed:
            self._changed.wait_for(lambda: self._count or self._closed)
            if not self._count:
                return None
            queue = self._waiting[self._choose(worker)]
            ticket = queue.popleft()
            if not queue:
                del self._waiting[ticket.key]
            self._holders[worker] = (ticket.key, *self._holders.get(worker, ()))
            self._count -= 1
            self._changed.notify_all()
            return ticket

    def holds(self, worker: int, keys: Collection[str]) -> None:
        """Which problems a worker has prepared."""
        with self._changed:
            self._holders[worker] = tuple(keys)

    def close(self) -> None:
        """Take no more jobs; those that wait are still handed out."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()

    def drain(self, act: Callable[[Ticket], None]) -> None:
        """Empty the queue through `act`."""
        with self._changed:
            tickets = [ticket for queue in self._waiting.values() for ticket in queue]
            self._waiting.clear()
            self._count = 0
            self._changed.notify_all()
        for ticket in tickets:
            act(ticket)

    def _add(self, ticket: Ticket, *, front: bool = False) -> None:
        queue = self._waiting.setdefault(ticket.key, deque())
        if front:
            queue.appendleft(ticket)
        else:
            queue.append(ticket)
        self._count += 1
        self._changed.notify_all()

    def _choose(self, worker: int) -> str:
        oldest = min(self._waiting, key=lambda key: self._waiting[key][0].number)
        if self._last - self._waiting[oldest][0].number > PATIENCE:
            return oldest
        held = self._holders.get(worker, ())
        mine = [key for key in held if key in self._waiting]
        if mine:
            return min(mine, key=lambda key: self._waiting[key][0].number)
        everyone = {key for keys in self._holders.values() for key in keys}
        free = [key for key in self._waiting if key not in everyone]
        if free:
            return min(free, key=lambda key: self._waiting[key][0].number)
        return max(self._waiting, key=lambda key: len(self._waiting[key]))
