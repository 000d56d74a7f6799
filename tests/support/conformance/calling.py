"""Wake-up calls: they reach the others and nobody else, carry what was said, and never get in anybody's way."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from allswell.store.port import LOOK_AGAIN, NOTHING, Store, Wakeup
from tests.support.conformance.place import PATIENCE, Case, Place


class _Heard:
    """What one store has heard, all of it and as one."""

    def __init__(self, store: Store) -> None:
        self.calls: list[Wakeup] = []
        store.hear(self.calls.append)

    @property
    def all(self) -> Wakeup:
        together = NOTHING
        for call in self.calls:
            together = together.merged(call)
        return together


async def _until(store: Store, happened: Callable[[], bool]) -> None:
    for _ in range(PATIENCE):
        if happened():
            return
        await store.view_agenda()  # a store with threads gets time by this, one without by the next line
        await asyncio.sleep(0)
    raise AssertionError("the call did not come")


async def _listening(store: Store) -> _Heard:
    """Hear, and be sure that it has begun; what that brought is forgotten."""
    heard = _Heard(store)
    await _until(store, lambda: heard.all == LOOK_AGAIN)
    heard.calls.clear()
    return heard


async def who_begins_to_hear_looks_again(place: Place) -> None:
    """Something may have been told just before: so the first call says that all may have changed."""
    place.needs_calls()
    async with place.store() as store:
        heard = _Heard(store)
        await _until(store, lambda: bool(heard.calls))
        assert heard.calls == [LOOK_AGAIN]


async def a_call_reaches_the_others_as_it_was_said(place: Place) -> None:
    """Every part of it, and every other store."""
    place.needs_calls()
    async with place.two_stores() as (first, second), place.store() as third:
        ears = [await _listening(store) for store in (second, third)]
        for call in (Wakeup(ready=True), Wakeup(journal=True), Wakeup(spreads=True, due=1_700_000_000_123)):
            first.announce(call)
            for store, heard in zip((second, third), ears, strict=True):
                await _until(store, lambda heard=heard, call=call: heard.all == call)  # type: ignore[misc]
                heard.calls.clear()


async def nobody_is_told_of_its_own_doings(place: Place) -> None:
    """A store that tells and hears hears only the others."""
    place.needs_calls()
    async with place.two_stores() as (first, second):
        mine, yours = await _listening(first), await _listening(second)
        first.announce(Wakeup(ready=True))
        await _until(second, lambda: yours.all.ready)
        second.announce(Wakeup(spreads=True))
        await _until(first, lambda: mine.all.spreads)
        assert mine.all == Wakeup(spreads=True)
        assert yours.all == Wakeup(ready=True)


async def a_flood_of_calls_is_heard_and_does_no_harm(place: Place) -> None:
    """Ten thousand calls at once: the last is heard like the first, and telling them takes no time worth naming.

    One who could not keep up may be told to look at everything.
    """
    place.needs_calls()
    async with place.two_stores() as (first, second):
        heard = await _listening(second)
        for _ in range(10_000):
            first.announce(Wakeup(ready=True))
        first.announce(Wakeup(spreads=True))
        await _until(second, lambda: heard.all.ready and heard.all.spreads)
        assert heard.all in (Wakeup(ready=True, spreads=True), LOOK_AGAIN)


async def telling_is_never_in_the_way(place: Place) -> None:
    """With nobody there, nothing to say, before it is open or after it was closed: it returns, and that is all."""
    store = place.connect()
    store.announce(Wakeup(ready=True))
    await store.open()
    store.announce(NOTHING)
    store.announce(Wakeup(ready=True, journal=True, due=1))
    await store.view_agenda()
    await store.close()
    store.announce(Wakeup(ready=True))
    store.hear(lambda _: None)
    await store.close()


async def a_closed_store_hears_nothing(place: Place) -> None:
    """Closing ends the hearing, also while a call is on its way."""
    place.needs_calls()
    async with place.store() as first, place.store() as third:
        second = place.connect()
        await second.open()
        heard, other = await _listening(second), await _listening(third)
        first.announce(Wakeup(ready=True))
        await second.close()
        heard.calls.clear()
        first.announce(Wakeup(spreads=True))
        await _until(third, lambda: other.all.spreads)
        assert heard.calls == []


async def a_store_that_is_opened_again_hears_again(place: Place) -> None:
    """Calls are part of an open store, not of its first life."""
    place.needs_calls()
    async with place.store() as first:
        second = place.connect()
        for _ in range(2):
            await second.open()
            heard = await _listening(second)
            first.announce(Wakeup(ready=True))
            await _until(second, lambda heard=heard: heard.all.ready)  # type: ignore[misc]
            await second.close()


CASES: tuple[Case, ...] = (
    who_begins_to_hear_looks_again,
    a_call_reaches_the_others_as_it_was_said,
    nobody_is_told_of_its_own_doings,
    a_flood_of_calls_is_heard_and_does_no_harm,
    telling_is_never_in_the_way,
    a_closed_store_hears_nothing,
    a_store_that_is_opened_again_hears_again,
)
