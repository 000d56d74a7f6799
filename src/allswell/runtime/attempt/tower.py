"""What the attempts of one process share, so that two hundred of them cost little more than twenty.

Evidence is gathered for all of them together: one thread hears what they print (`evidence.Room`), one walk through
/proc looks at every tree whose turn it is, and a folder in which several work is looked at once for all of them. Who
shares a folder with whom is known here, too (`neighbours`).
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping
from typing import NamedTuple

from allswell.domain.evidence import Process
from allswell.runtime.attempt.flight import Flight
from allswell.runtime.attempt.neighbours import Neighbours, WorkPlace, beside
from allswell.runtime.evidence import Room, WorkLook, look_at
from allswell.runtime.evidence.work import Prints

_ON_THE_SECOND = 2.0
"""Seconds between two looks, from which on they are taken on the full second, together with those of others."""
_KEPT = 60.0
"""Seconds after which nobody wants a look any more."""

_NOTES = 1.0
"""Seconds for which it is believed who else is at work on this machine."""

Tree = Mapping[tuple[int, int], Process]


class FolderSeen(NamedTuple):
    """A folder at one moment."""

    prints: Prints
    took: float
    """Seconds that the look took: whoever looks often should mind it."""


class Tower:
    """Looks for many; made on the loop that they live on."""

    def __init__(self) -> None:
        self.room = Room()
        self._loop = asyncio.get_running_loop()
        self._wanted: list[tuple[int, asyncio.Future[Tree]]] = []
        self._walking: asyncio.Task[None] | None = None
        self._folders: dict[object, tuple[float, asyncio.Future[FolderSeen]]] = {}
        """The last look at each folder, with the moment at which it began."""
        self._neighbours = Neighbours()
        self._notes: dict[object, tuple[float, asyncio.Future[dict[str, Flight]]]] = {}
        """Who else was at work, by the folder of the notes, with the moment at which that was read."""

    def close(self) -> None:
        """Nobody is watched from here any more."""
        self.room.close()

    async def pause(self, seconds: float) -> None:
        """Sleep for about so long, until a moment at which others look, too."""
        now = self._loop.time()
        await asyncio.sleep(seconds if seconds < _ON_THE_SECOND else math.floor(now + seconds) - now)

    async def look_at(self, reaper: int) -> Tree:
        """A process tree; all that are wanted at the same moment are read by one call of a thread."""
        wanted: asyncio.Future[Tree] = self._loop.create_future()
        self._wanted.append((reaper, wanted))
        if self._walking is None or self._walking.done():
            self._walking = self._loop.create_task(self._walk())
        return await wanted

    async def _walk(self) -> None:
        while self._wanted:
            turn, self._wanted = self._wanted, []
            reading = self._loop.run_in_executor(None, _read_all, [reaper for reaper, _ in turn])
            await asyncio.wait([reading])
            for number, (_, wanted) in enumerate(turn):
                if wanted.done():
                    continue  # its attempt has ended meanwhile
                error = reading.exception()
                if error is None:
                    wanted.set_result(reading.result()[number])
                else:
                    wanted.set_exception(error)

    async def look_at_work(self, look: WorkLook, *, since: float) -> FolderSeen:
        """A folder as it was at some moment after `since`, on the loop's clock."""
        began, seen = self._folders.get(look.about, (-math.inf, None))
        if seen is None or began < since:
            began = self._loop.time()
            self._folders = {about: kept for about, kept in self._folders.items() if kept[0] > began - _KEPT}
            seen = self._loop.run_in_executor(None, _timed, look)
            self._folders[look.about] = (began, seen)
        return await asyncio.shield(seen)  # others may wait for the same

    def come(self, place: WorkPlace) -> None:
        """An attempt begins."""
        self._neighbours.come(place)

    def leave(self, place: WorkPlace) -> None:
        """An attempt has ended."""
        now = self._loop.time()
        self._neighbours.leave(place, now, forget=now - _KEPT)

    async def neighbour(self, place: WorkPlace, tree: Tree, *, since: float) -> str | None:
        """Who works in the same folder as an attempt, or has since then, if anybody."""
        here = self._neighbours.of(place, since)
        if here is not None:
            return here
        began, notes = self._notes.get(place.notes, (-math.inf, None))
        if notes is None or self._loop.time() - began > _NOTES:
            notes = self._loop.run_in_executor(None, self._neighbours.elsewhere, place.notes)
            self._notes[place.notes] = (self._loop.time(), notes)
        return beside(place, await asyncio.shield(notes), [pid for pid, _ in tree])


def _read_all(reapers: list[int]) -> list[Tree]:
    return [look_at(reaper) for reaper in reapers]


def _timed(look: WorkLook) -> FolderSeen:
    began = time.monotonic()
    return FolderSeen(look.look(), time.monotonic() - began)
