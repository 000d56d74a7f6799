"""Following the journal: every event once, in order, from where one left off.

A follower with a name has a durable cursor. Its handler is called with events in order; the cursor moves on when it has
returned, so an event is delivered at least once: after a crash the last few may come again, with the same positions. A
handler that fails is called again with the same events after a pause; it holds up nobody but itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

from allswell.domain.journal import Entry, Position
from allswell.engine.backend import Backend
from allswell.engine.signal import either
from allswell.errors import Unavailable

CHUNK = 500
log = logging.getLogger(__name__)


async def events(engine: Backend, after: Position, *, follow: bool) -> AsyncIterator[Entry]:
    """The journal after a position; with `follow`, for ever."""
    if follow:
        engine.hear()
    while True:
        news = engine.journal.listen()
        try:
            entries = await engine.store.journal(after, CHUNK)
        except Unavailable:
            if not follow:
                raise
            entries = []
        for entry in entries:
            yield entry
            after = entry.position
        if len(entries) == CHUNK:
            continue
        if not follow:
            return
        await either(news, engine.pace.follow_poll * (0.75 + engine.draw() / 2))


async def follow(engine: Backend, name: str, handler: Callable[[Sequence[Entry]], Awaitable[None]]) -> None:
    """Hand the journal to `handler`, chunk by chunk, until cancelled; progress is kept under `name`."""
    engine.hear()
    pause = engine.pace.retry_first
    after: Position | None = None
    while True:
        news = engine.journal.listen()
        try:
            if after is None:
                after = await engine.store.cursor(name)
            entries = await engine.store.journal(after, CHUNK)
            if entries:
                await handler(entries)
                await engine.store.advance(name, entries[-1].position)
                after = entries[-1].position
                pause = engine.pace.retry_first
                continue
            wait = engine.pace.follow_poll * (0.75 + engine.draw() / 2)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a follower that fails is nobody else's trouble
            log.warning("follower %s failed and will try again in %.2f s: %r", name, pause, error)
            wait = pause
            pause = min(pause * 2, engine.pace.retry_most)
        await either(news, wait)
