"""The journal: a page at a time, or followed as it grows (Server-Sent Events).

A follower that lost its connection says with `Last-Event-ID` where it was, as browsers do by themselves, and misses
nothing. A line of comment comes whenever nothing else did for a while, so that both sides notice a dead connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from bisect import bisect_right
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from allswell.domain.rules.event import KINDS, Entry, Position
from allswell.engine.status.journal import about, entries_after, journal_end
from allswell.engine.wakeup import Signal, either
from allswell.engine.watch import Watch
from allswell.errors import Refused, Unavailable
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import Route
from allswell.interfaces.http.tasks import Limit
from allswell.timing.moment import to_json
from allswell.views.delivery import EventShape

if TYPE_CHECKING:
    from allswell.store.views import Views


PULSE = 15.0
"""Seconds without anything, after which a line of comment is sent."""
STREAM = "text/event-stream"
_CHUNK = 500
_AGAIN = 1.0
"""Seconds until a store that was away is asked again."""


class EventsShape(Struct, frozen=True):
    """Events in the journal's order; `next` is what to give as `after` for the next page, null at the end."""

    events: list[EventShape]
    next: str | None


class EventsParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Which events; a stream that is told no place begins with what comes next."""

    kind: tuple[str, ...] = ()
    task_id: str | None = None
    run_id: str | None = None
    agent_id: str | None = None
    after: Annotated[str, Meta(description="Where the last page ended: its `next`.")] = ""
    limit: Limit = 100


def cursor_of(position: Position) -> str:
    """A place in the journal, as callers are told it."""
    return f"{position.xid}.{position.id}"


def position_of(cursor: str) -> Position:
    """The place that a caller names; the beginning, if it names none."""
    if not cursor:
        return Position()
    xid, dot, id_ = cursor.partition(".")
    if not dot or not (cursor.isascii() and xid.isdigit() and id_.isdigit()) or len(cursor) > 38:
        raise _no_place(cursor)
    place = Position(int(xid), int(id_))
    if max(place.xid, place.id) >= 1 << 62:
        raise _no_place(cursor)
    return place


def _no_place(cursor: str) -> Refused:
    text = f"{cursor[:40]!r} is not a place in the journal; give the `next` of a page"
    return Refused("bad_cursor", text, where="after")


async def list_events(call: RequestContext, asked: EventsParams) -> EventsShape | Response:
    """What has happened, a page at a time from the beginning; or, accepted as text/event-stream, as it happens."""
    for kind in asked.kind:
        if kind not in KINDS:
            raise Refused("bad_kind", f"{kind!r} is not a kind of event", where="kind")
    fits = about(asked.kind, task=asked.task_id, run=asked.run_id, agent=asked.agent_id)
    if STREAM in (call.header("Accept") or ""):
        return await _followed(call, call.header("Last-Event-ID") or asked.after, fits)
    found: list[EventShape] = []
    async for entry in entries_after(call.views, position_of(asked.after)):
        if fits(entry):
            found.append(EventShape.of(entry))
            if len(found) == asked.limit:
                return EventsShape(found, cursor_of(entry.position))
    return EventsShape(found, None)


async def _followed(call: RequestContext, cursor: str, fits: Callable[[Entry], bool]) -> Response:
    journal = call.house.journal
    await call.views.journal(Position(), 1)  # whoever may not look is told so before anything is answered
    after = position_of(cursor) if cursor else await journal.end()
    return StreamingResponse(_lines(call, after, fits), media_type=STREAM, headers={"X-Accel-Buffering": "no"})


async def _lines(call: RequestContext, after: Position, fits: Callable[[Entry], bool]) -> AsyncIterator[bytes]:
    yield b": here\n\n"
    closing = asyncio.ensure_future(until_closed(call))
    try:
        while not closing.done():
            entries = call.house.journal.follow(after, call.views, PULSE)
            with contextlib.suppress(Unavailable):  # its followers wait for the store to come back
                async for some in _until(entries, closing):
                    yield _told(some, fits)
                    after = some[-1].position if some else after
            if not closing.done():
                await asyncio.wait([closing], timeout=_AGAIN)
    finally:
        closing.cancel()


async def until_closed(call: RequestContext) -> None:
    """Until the server stops, or the key of the call was revoked or has run out."""
    stopping = asyncio.ensure_future(call.house.closing.wait())
    keyless = asyncio.ensure_future(call.house.gate.until_over(call.key))
    try:
        await asyncio.wait([stopping, keyless], return_when=asyncio.FIRST_COMPLETED)
    finally:
        stopping.cancel()
        keyless.cancel()
        with contextlib.suppress(Refused, asyncio.CancelledError):  # the follower is told why when it comes again
            await keyless


async def _until(entries: AsyncIterator[list[Entry]], closing: asyncio.Future[None]) -> AsyncIterator[list[Entry]]:
    """What comes, until the stream is to end."""
    while True:
        following = asyncio.ensure_future(_next(entries))
        waiting: list[asyncio.Future[Any]] = [following, closing]
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not following.done():
            following.cancel()
            return
        yield following.result()


async def _next(entries: AsyncIterator[list[Entry]]) -> list[Entry]:
    return await anext(entries)


def _told(entries: list[Entry], fits: Callable[[Entry], bool]) -> bytes:
    told = [
        b"id: %s\nevent: %s\ndata: %s\n\n"
        % (cursor_of(one.position).encode(), one.event.kind.encode(), to_json(EventShape.of(one)))
        for one in entries
        if fits(one)
    ]
    return b"".join(told) or b": still here\n\n"


ROUTES = (Route("GET", "/events", list_events, EventsParams, (EventsShape,), also=(STREAM,)),)


# The journal for any number of followers, read once: each follower looks at the same last entries in memory.
#
# A thousand pages that are left open would otherwise ask the store a thousand times for every event. Who is further
# behind than what is kept here reads from the store until it has caught up.

_KEPT = 2_000
"""So many entries at least, and up to twice as many."""


class Journal:
    """The end of the journal, as this server has seen it."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._begun = asyncio.Event()
        self._since = Position()
        """What comes after this is kept, or was."""
        self._last: list[Entry] = []
        self._news = Signal()

    async def read(self) -> None:
        """Read along, for ever."""
        while True:
            try:
                after = self._last[-1].position if self._last else await journal_end(self._watch.views)
                if not self._begun.is_set():
                    self._since = after
                    self._begun.set()
                async for entry in self._watch.events(after=after, follow=True):
                    self._last.append(entry)
                    if len(self._last) == 2 * _KEPT:
                        self._since = self._last[_KEPT - 1].position
                        del self._last[:_KEPT]
                    self._news.fire()
            except Unavailable:
                await asyncio.sleep(_AGAIN)

    async def end(self) -> Position:
        """Behind the last entry that was seen."""
        await self._begun.wait()
        return self._last[-1].position if self._last else self._since

    async def follow(self, after: Position, views: Views, pulse: float) -> AsyncIterator[list[Entry]]:
        """Entries after a position as they come; an empty list whenever there was nothing for `pulse` seconds.

        `views` are the follower's own: what its key does not show, it does not get here either.
        """
        await views.journal(after, 1)  # it may look at all
        await self._begun.wait()
        while True:
            news = self._news.listen()
            if after < self._since:
                found = await views.journal(after, _CHUNK)
            else:
                place = bisect_right(self._last, after, key=lambda entry: entry.position)
                found = self._last[place : place + _CHUNK]
            if found:
                after = found[-1].position
                yield found
            else:
                if after < self._since:
                    after = self._since
                    continue
                await either(news, pulse)
                if not news.rung:
                    yield []
