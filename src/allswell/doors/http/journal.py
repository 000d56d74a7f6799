"""The journal for any number of followers, read once: each follower looks at the same last entries in memory.

A thousand pages that are left open would otherwise ask the store a thousand times for every event. Who is further
behind than what is kept here reads from the store until it has caught up.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from allswell.domain.journal import Entry, Position
from allswell.engine.journal_end import journal_end
from allswell.engine.signal import Signal, either
from allswell.engine.watch import Watch
from allswell.errors import Unavailable

if TYPE_CHECKING:
    from allswell.store.views import Views

_KEPT = 2_000
"""So many entries at least, and up to twice as many."""
_CHUNK = 500
_AGAIN = 1.0
"""Seconds until a store that was away is asked again."""


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
