"""Counting what the journal tells, for `/metrics`: read once from where the last server left off, then as it grows.

The numbers are those of the journal (`domain/tally.py`), so two servers tell the same, and a restart loses nothing:
every minute, and at the end, the tally is kept among the watch's own words. Of two servers, the one that is further
keeps its.
"""

from __future__ import annotations

import asyncio
import contextlib

import msgspec

from allswell.domain.tally import KeptTally, Tally
from allswell.engine.signal import either
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Unavailable

WORD = "metrics.tally"
_CHUNK = 1_000
_KEEP_SECONDS = 60.0
_AGAIN = 1.0
_LOOK = 2.0
"""Seconds between two looks at a journal that says nothing new."""


class Counting:
    """The tally of a server."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self.tally: Tally | None = None
        """None until the journal was read to its end: numbers that are on their way would look like a storm."""

    async def count(self) -> None:
        """Read along, until cancelled; then what was counted is kept."""
        loop = asyncio.get_running_loop()
        tally: Tally | None = None
        kept_at = loop.time()
        try:
            while True:
                try:
                    if tally is None:
                        tally = Tally(await self._recalled())
                    news = self._watch.on_event()
                    entries = await self._watch.views.journal(tally.position, _CHUNK)
                    for entry in entries:
                        tally.take(entry.position, entry.at, entry.event)
                    if len(entries) == _CHUNK:
                        continue
                    self.tally = tally
                    if loop.time() - kept_at > _KEEP_SECONDS:
                        kept_at = loop.time()
                        await self._keep(tally)
                except Unavailable:
                    await asyncio.sleep(_AGAIN)
                    continue
                await either(news, _LOOK)
        finally:
            if tally is not None:
                with contextlib.suppress(AllswellError, TimeoutError):
                    async with asyncio.timeout(_AGAIN):
                        await self._keep(tally)

    async def _recalled(self) -> KeptTally | None:
        return _read(await self._watch.recall(WORD))

    async def _keep(self, tally: Tally) -> None:
        before = await self._watch.recall(WORD)
        other = _read(before)
        if other is None or other.position < tally.position:
            await self._watch.swap(WORD, before, msgspec.json.encode(tally.kept()).decode())


def _read(word: str | None) -> KeptTally | None:
    try:
        return None if word is None else msgspec.json.decode(word, type=KeptTally)
    except msgspec.DecodeError:
        return None  # of another version: it is counted anew
