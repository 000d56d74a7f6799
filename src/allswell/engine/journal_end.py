"""Places in a journal that has grown long.

The journal is read forward only, from a position. Its positions grow with time, so any place in it is found by halving,
with a few looks, however long it has become.
"""

from __future__ import annotations

from collections.abc import Callable

from allswell.domain.journal import Entry, Position
from allswell.store.views import Views


async def numbering(views: Views) -> Callable[[int], Position]:
    """Positions by one number: a transaction's, where the store has them, else the event's."""
    first = await views.journal(Position(), 1)
    return (lambda number: Position(number, 0)) if first and first[0].position.xid else (lambda n: Position(0, n))


async def first_number(views: Views, at: Callable[[int], Position], late: Callable[[list[Entry]], bool]) -> int:
    """The least number after which the journal goes on in a way that is `late`."""
    low, high = 0, 1
    while not late(await views.journal(at(high), 1)):
        low, high = high, high * 2
    while high - low > 1:
        middle = (low + high) // 2
        if late(await views.journal(at(middle), 1)):
            high = middle
        else:
            low = middle
    return high


async def journal_end(views: Views) -> Position:
    """Behind the last event; the very beginning, if there is none."""
    if not await views.journal(Position(), 1):
        return Position()
    at = await numbering(views)
    return at(await first_number(views, at, lambda entries: not entries))
