"""Which pages belong to whom: a free list, counts of users, prefixes that several sequences share.

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
        if not self._make_room(needed):
            self.release(known)
            return None
        own = [self._free.pop() for _ in range(needed)]
        for page in own:
            self._users[page] += 1
        self.release(known[whole:])
        return Grant(
            pages=(*known[:whole], *own),
            cached=len(prefix) if known else 0,
            copy=(known[whole], own[0]) if len(known) > whole else None,
        )

    def remember(self, prefix: tuple[int, ...], pages: tuple[int, ...]) -> None:
        """The first of these pages hold this prefix, until room is needed. Behind it their owner may write."""
        if not prefix or prefix in self._prefixes:
            return
        held = pages[: -(-len(prefix) // self.page_size)]
        self._prefixes[prefix] = held
        for page in held:
            self._users[page] += 1

    def release(self, pages: tuple[int, ...]) -> None:
        """A sequence has ended."""
        for page in pages:
            self._drop(page)

    def forget(self) -> None:
        """Drop all prefixes: the weights have changed."""
        while self._prefixes:
            self._evict()

    def _make_room(self, needed: int) -> bool:
        """Forget the prefixes used longest ago until there is room."""
        while len(self._free) < needed and self._prefixes:
            self._evict()
        return len(self._free) >= needed

    def _evict(self) -> None:
        _, pages = self._prefixes.popitem(last=False)
        for page in pages:
            self._drop(page)

    def _drop(self, page: int) -> None:
        self._users[page] -= 1
        assert self._users[page] >= 0
        if not self._users[page]:
            self._free.append(page)
