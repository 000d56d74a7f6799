"""What sinks have to deliver: taken in once, kept until it is made, listed in its order."""

from __future__ import annotations

import asyncio

from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.notify.delivery import Delivery, DeliveryFilter, memory_key
from allswell.domain.rules.event import Position
from tests.support.conformance import rows
from tests.support.conformance.place import AT, Case, Place

ALL = DeliveryFilter()


def _delivery(number: int, sink: str = "web", target: str = "", *, xid: int = 5) -> Delivery:
    place = (xid, number, 0)
    return Delivery(sink, f"msg_{sink}_{number}", target, place, Millis(AT), f'{{"text": "{rows.TEXT}"}}')


async def deliveries_come_back_unchanged(place: Place) -> None:
    """With all that is known of them, as they were taken in and as they were revised."""
    async with place.two_stores() as (first, second):
        new = _delivery(rows.BIG, target="ö")
        assert await first.enlist("web", Position(), Position(5, rows.BIG), [new])
        assert await second.view_deliveries(ALL) == [new]
        tried = replace(new, tries=2, next_at=Millis(AT + 5), failing_since=Millis(AT), reason=rows.TEXT)
        await second.revise([tried])
        assert await first.view_deliveries(ALL) == [tried]
        await first.revise([replace(tried, given_up=True)])
        assert await first.view_deliveries(ALL) == [replace(tried, given_up=True)]
        await first.revise([], [tried])
        assert await second.view_deliveries(ALL) == []


async def an_event_is_taken_in_once(place: Place) -> None:
    """Whoever believes the cursor to be elsewhere changes nothing, however often the same is tried."""
    async with place.two_stores() as (first, second):
        assert await first.enlist("web", Position(), Position(5, 2), [_delivery(1), _delivery(2)])
        await first.revise([], [_delivery(1)])
        assert not await second.enlist("web", Position(), Position(5, 2), [_delivery(1), _delivery(2)])
        assert not await second.enlist("web", Position(5, 1), Position(5, 3), [_delivery(3)])
        assert await second.cursor("web") == Position(5, 2)
        assert await second.enlist("web", Position(5, 2), Position(6, 1), [])
        assert await first.cursor("web") == Position(6, 1)
        assert await first.view_deliveries(ALL) == [_delivery(2)]


async def of_two_who_take_in_at_once_one_does(place: Place) -> None:
    """Two processes that follow in one name make each delivery once."""
    async with place.two_stores() as (first, second):
        took = await asyncio.gather(
            *(store.enlist("web", Position(), Position(5, 1), [_delivery(1)]) for store in (first, second))
        )
        assert sorted(took) == [False, True]
        assert await first.view_deliveries(ALL) == [_delivery(1)]


async def deliveries_are_listed_in_their_order(place: Place) -> None:
    """Of one sink or of all, of one target, given up or not, and no more than was asked for."""
    early, late = _delivery(9, xid=4), _delivery(2, target="b")
    given_up = replace(_delivery(3), given_up=True)
    other = _delivery(1, "chat")
    async with place.store() as store:
        await store.enlist("web", Position(), Position(5, 3), [late, given_up, early])
        await store.enlist("chat", Position(), Position(5, 1), [other])
        for which, expected in (
            (ALL, [other, early, late, given_up]),
            (DeliveryFilter(limit=2), [other, early]),
            (DeliveryFilter("web"), [early, late, given_up]),
            (DeliveryFilter("web", ""), [early, given_up]),
            (DeliveryFilter("web", "", given_up=False), [early]),
            (DeliveryFilter(given_up=True), [given_up]),
            (DeliveryFilter("nobody"), []),
        ):
            assert await store.view_deliveries(which) == expected


async def what_was_dropped_stays_away(place: Place) -> None:
    """A word that comes late about a delivery that is gone does not bring it back."""
    async with place.store() as store:
        await store.enlist("web", Position(), Position(5, 1), [_delivery(1)])
        await store.revise([], [_delivery(1)])
        await store.revise([replace(_delivery(1), tries=1)], [_delivery(7)])
        assert await store.view_deliveries(ALL) == []


async def a_followers_memory_is_kept_with_its_cursor(place: Place) -> None:
    """Both or neither; where there is nothing new to remember, it stays as it was."""
    key = memory_key("web")
    async with place.two_stores() as (first, second):
        assert await first.enlist("web", Position(), Position(5, 1), [], rows.TEXT)
        assert await second.get(key) == rows.TEXT
        assert not await second.enlist("web", Position(), Position(5, 2), [], "of another")
        assert await second.enlist("web", Position(5, 1), Position(5, 2), [])
        assert await first.get(key) == rows.TEXT
        assert await first.enlist("web", Position(5, 2), Position(5, 3), [], "new")
        assert await second.get(key) == "new"


async def a_follower_is_forgotten_with_all_that_is_kept_of_it(place: Place) -> None:
    """And nobody else is, however alike the names are."""
    async with place.two_stores() as (first, second):
        for follower, sink in (("sink.web", "web"), ("sink.web2", "web2")):
            await first.enlist(follower, Position(), Position(5, 1), [_delivery(1, sink)], "memory")
            await first.put(follower, "a duty")
        await second.forget("sink.web", "web")
        assert await first.cursor("sink.web") == Position()
        assert await first.cursor("sink.web2") == Position(5, 1)
        assert await first.view_deliveries(ALL) == [_delivery(1, "web2")]
        assert await first.view_kept("sink.") == {"sink.web2": "a duty", memory_key("sink.web2"): "memory"}
        await second.forget("nobody", "nobody")


CASES: tuple[Case, ...] = (
    deliveries_come_back_unchanged,
    an_event_is_taken_in_once,
    of_two_who_take_in_at_once_one_does,
    deliveries_are_listed_in_their_order,
    what_was_dropped_stays_away,
    a_followers_memory_is_kept_with_its_cursor,
    a_follower_is_forgotten_with_all_that_is_kept_of_it,
)
