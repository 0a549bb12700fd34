"""Which pages belong to whom: a free list, counts of users, prefixes that several sequences share.

A sequence is granted what it begins with and takes more as it grows.

A page that a prefix fills wholly is shared; the page in which it ends is copied for every later sequence, since
each goes on writing behind the prefix. Page 0 belongs to nobody: unused entries of page tables point to it.
"""

from collections import OrderedDict
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """Pages for one sequence, in order of position."""

    pages: tuple[int, ...]
    cached: int
    """Positions whose keys and values are there already."""
    copy: tuple[int, int] | None
    """A page to copy before use, and where to."""


class Pages:
    """The pages of one cache. Counts positions in tokens; a prefix is whole blocks of tokens."""

    def __init__(self, count: int, page_size: int) -> None:
        self.page_size = page_size
        self._free = list(reversed(range(1, count)))
        self._users = [0] * count
        self._prefixes: OrderedDict[tuple[int, ...], tuple[int, ...]] = OrderedDict()

    def grant(self, prefix: tuple[int, ...], positions: int) -> Grant | None:
        """Pages for `positions` tokens that begin with `prefix`; None while there are too few."""
        known = self._prefixes.get(prefix, ())
        if known:
            self._prefixes.move_to_end(prefix)
        whole = len(prefix) // self.page_size if known else 0
        needed = -(-positions // self.page_size) - whole
        for page in known:  # not to be evicted meanwhile
            self._users[page] += 1
        own = self.take(needed)
        if own is None:
            self.release(known)
            return None
        self.release(known[whole:])
        return Grant(
            pages=(*known[:whole], *own),
            cached=len(prefix) if known else 0,
            copy=(known[whole], own[0]) if len(known) > whole else None,
        )

    def take(self, needed: int) -> tuple[int, ...] | None:
        """More pages for a sequence that grows; None while there are too few."""
        if not self._make_room(needed):
            return None
        own = tuple(self._free.pop() for _ in range(needed))
        for page in own:
            self._users[page] += 1
        return own

    def remember(self, prefix: tuple[int, ...], pages: tuple[int, ...]) -> None:
        """The first of these pages hold this prefix, until room is needed. Behind it their owner may write."""
        if not prefix or prefix in self._prefixes:
            return
        held = pages[: -(-len(prefix) // self.page_size)]
        self._prefixes[prefix] = held
        for page in held:
            self._users[page] += 1

    def release(self, pages: tuple[int, ...]) -> None:
        """A sequence needs them no longer."""
        for page in pages:
            self._drop(page)

    def forget(self) -> None:
        """Drop all prefixes: the weights have changed."""
        for prefix in list(self._prefixes):
            self._evict(prefix)

    def _make_room(self, needed: int) -> bool:
        """Forget the prefixes used longest ago until there is room; not those that only the running hold."""
        for prefix in list(self._prefixes):
            if len(self._free) >= needed:
                break
            if any(self._users[page] == 1 for page in self._prefixes[prefix]):
                self._evict(prefix)
        return len(self._free) >= needed

    def _evict(self, prefix: tuple[int, ...]) -> None:
        for page in self._prefixes.pop(prefix):
            self._drop(page)

    def _drop(self, page: int) -> None:
        self._users[page] -= 1
        assert self._users[page] >= 0
        if not self._users[page]:
            self._free.append(page)
