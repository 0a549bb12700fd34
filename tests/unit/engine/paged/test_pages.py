"""Pages: shared prefixes, copies where a prefix ends inside a page, room made by forgetting."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from dice.engine.paged.pages import Pages


def tokens(count, start=0):
    return tuple(range(start, start + count))


def test_whole_pages_of_a_prefix_are_shared_and_the_last_is_copied():
    pages = Pages(20, 16)
    first = pages.grant(tokens(40), 70)
    assert first.cached == 0
    assert len(first.pages) == 5
    pages.remember(tokens(40), first.pages)
    second = pages.grant(tokens(40), 64)
    assert second.cached == 40
    assert second.pages[:2] == first.pages[:2]
    assert second.copy == (first.pages[2], second.pages[2])
    assert set(second.pages[2:]).isdisjoint(first.pages)
    other = pages.grant(tokens(40, start=1), 64)
    assert other.cached == 0
    assert set(other.pages).isdisjoint({*first.pages, *second.pages})


def test_a_prefix_outlives_its_first_owner_until_room_is_needed():
    pages = Pages(6, 16)
    first = pages.grant(tokens(32), 48)
    pages.remember(tokens(32), first.pages)
    pages.release(first.pages)
    assert pages.grant(tokens(16, start=9), 64) is not None
    assert pages.grant(tokens(32), 48) is None


def test_too_few_pages_take_nothing():
    pages = Pages(4, 16)
    assert pages.grant((), 64) is None
    assert len(pages.grant((), 48).pages) == 3


def test_forgotten_prefixes_are_not_shared():
    pages = Pages(20, 16)
    first = pages.grant(tokens(32), 48)
    pages.remember(tokens(32), first.pages)
    pages.forget()
    assert pages.grant(tokens(32), 48).cached == 0


def test_growing_forgets_only_prefixes_that_free_something():
    pages = Pages(6, 16)
    running = pages.grant(tokens(32), 32)
    pages.remember(tokens(32), running.pages)
    ended = pages.grant(tokens(16, start=9), 16)
    pages.remember(tokens(16, start=9), ended.pages)
    pages.release(ended.pages)
    assert len(pages.take(3)) == 3
    assert pages.take(1) is None
    assert pages.grant(tokens(32), 32).cached == 32
    assert pages.grant(tokens(16, start=9), 16) is None


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 5), st.booleans()), max_size=40))
def test_nothing_is_lost_or_given_twice(actions):
    count, size = 12, 16
    pages, running = Pages(count, size), []
    for kind, length, remember in actions:
        if running and kind == 3:
            pages.release(running.pop(0).pages)
            continue
        prefix = tokens(8 * length, start=kind)
        grant = pages.grant(prefix, 8 * length + 20)
        if grant is None:
            continue
        if remember and (more := pages.take(1)):
            assert set(more).isdisjoint(grant.pages)
            grant = replace(grant, pages=(*grant.pages, *more))
        own = grant.pages[len(prefix) // size if grant.cached else 0 :]
        for other in running:
            assert set(own).isdisjoint(other.pages)
        assert 0 not in grant.pages
        running.append(grant)
        if remember:
            pages.remember(prefix, grant.pages)
    for grant in running:
        pages.release(grant.pages)
    pages.forget()
    assert len(pages.grant((), (count - 1) * size).pages) == count - 1
