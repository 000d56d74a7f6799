"""The journal: a page at a time, or followed as it grows (Server-Sent Events).

A follower that lost its connection says with `Last-Event-ID` where it was, as browsers do by themselves, and misses
nothing. A line of comment comes whenever nothing else did for a while, so that both sides notice a dead connection.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.responses import Response, StreamingResponse

from allswell.domain.event import KINDS
from allswell.domain.journal import Entry, Position
from allswell.doors.http.call import Call
from allswell.doors.http.route import Route
from allswell.doors.http.tasks import Limit
from allswell.doors.shapes.event import EventShape
from allswell.errors import Refused, Unavailable

PULSE = 15.0
"""Seconds without anything, after which a line of comment is sent."""
STREAM = "text/event-stream"
_CHUNK = 500
_AGAIN = 1.0


class EventsShape(Struct, frozen=True):
    """Events in the journal's order; `next` is what to give as `after` for the next page, null at the end."""

    events: list[EventShape]
    next: str | None


class EventsAsked(Struct, frozen=True, forbid_unknown_fields=True):
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
    text = f"{cursor[:40]!r} is no place in the journal; give the `next` of a page"
    return Refused("bad_cursor", text, where="after")


async def list_events(call: Call, asked: EventsAsked) -> EventsShape | Response:
    """What has happened, a page at a time from the beginning; or, accepted as text/event-stream, as it happens."""
    for kind in asked.kind:
        if kind not in KINDS:
            raise Refused("bad_kind", f"{kind!r} is no kind of event", where="kind")
    fits = _fits(asked)
    if STREAM in (call.header("Accept") or ""):
        return await _followed(call, call.header("Last-Event-ID") or asked.after, fits)
    after, found = position_of(asked.after), list[EventShape]()
    while entries := await call.views.journal(after, _CHUNK):
        for entry in entries:
            after = entry.position
            if fits(entry):
                found.append(EventShape.of(entry))
                if len(found) == asked.limit:
                    return EventsShape(found, cursor_of(after))
    return EventsShape(found, None)


def _fits(asked: EventsAsked) -> Callable[[Entry], bool]:
    wanted = {"task": asked.task_id, "run": asked.run_id, "agent": asked.agent_id}
    named = [(field, value) for field, value in wanted.items() if value is not None]

    def fits(entry: Entry) -> bool:
        event = entry.event
        return (not asked.kind or event.kind in asked.kind) and all(
            getattr(event, field) == value for field, value in named
        )

    return fits


async def _followed(call: Call, cursor: str, fits: Callable[[Entry], bool]) -> Response:
    journal = call.house.journal
    await call.views.journal(Position(), 1)  # whoever may not look is told so before anything is answered
    after = position_of(cursor) if cursor else await journal.end()
    return StreamingResponse(_lines(call, after, fits), media_type=STREAM, headers={"X-Accel-Buffering": "no"})


async def _lines(call: Call, after: Position, fits: Callable[[Entry], bool]) -> AsyncIterator[bytes]:
    yield b": here\n\n"
    closing = asyncio.ensure_future(call.house.closing.wait())
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


async def _until(
    entries: AsyncIterator[list[Entry]], closing: asyncio.Future[Literal[True]]
) -> AsyncIterator[list[Entry]]:
    """What comes, until the server stops."""
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
        % (cursor_of(one.position).encode(), one.event.kind.encode(), msgspec.json.encode(EventShape.of(one)))
        for one in entries
        if fits(one)
    ]
    return b"".join(told) or b": still here\n\n"


ROUTES = (Route("GET", "/events", list_events, EventsAsked, (EventsShape,), also=(STREAM,)),)
