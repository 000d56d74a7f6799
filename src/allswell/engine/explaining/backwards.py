"""The journal read from its end: the newest events first, a page at a time, with a bound on how far one look goes.

The journal itself is read forward only (engine/journal_end.py). A page is found by looking at one piece of it after the
other, each before the last; where hardly anything fits, a page says how far it has got, and the next one goes on there.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from allswell.domain.journal import Entry, Position
from allswell.engine.journal_end import first_number, numbering
from allswell.store.views import Views

LOOKED_AT = 6_000
"""Events that one look goes through."""
_PIECE, _PIECE_MOST = 8, 1 << 20
_FEW, _MANY = 256, 2_048
"""A piece is a number of events, or of transactions that have one event or thousands: the next one is made to fit."""
_CHUNK = 1_000


class BackwardPage(msgspec.Struct, frozen=True):
    """Events, the newest first; `before` is where to go on, None at the beginning of the journal."""

    entries: list[Entry]
    before: int | None
    looked_at: int


async def look_back(
    views: Views, fits: Callable[[Entry], bool], most: int, before: int | None = None, *, bound: int = LOOKED_AT
) -> BackwardPage:
    """The last events that fit, before a place that an earlier page named."""
    at = await numbering(views)
    end = before if before is not None else await first_number(views, at, lambda found: not found)
    found: list[Entry] = []
    looked, piece = 0, _PIECE
    while end > 0 and len(found) < most and looked < bound:
        begin = max(end - piece, 0)
        entries = await _between(views, at(begin), at(end))
        looked += len(entries)
        fitting = [entry for entry in reversed(entries) if fits(entry)]
        room = most - len(found)
        found += fitting[:room]
        if len(fitting) > room:
            last = fitting[room - 1].position
            whole = last.xid or last.id  # where one transaction has several, none of them is told twice or left out
            same = [entry for entry in fitting[room:] if last.xid and entry.position.xid == last.xid]
            found += same
            return BackwardPage(found, whole - (0 if last.xid else 1), looked)
        if len(entries) < _FEW:
            piece = min(piece * 2, _PIECE_MOST)
        elif len(entries) > _MANY:
            piece = max(piece // 4, 1)
        end = begin
    return BackwardPage(found, end or None, looked)


async def _between(views: Views, after: Position, upto: Position) -> list[Entry]:
    found: list[Entry] = []
    while entries := await views.journal(after, _CHUNK):
        found += [entry for entry in entries if entry.position <= upto]
        if len(entries) < _CHUNK or entries[-1].position > upto:
            break
        after = entries[-1].position
    return found
