"""What all connections of one memory store share: the rows, the locks, the clock, and the journal.

A transaction gets its number (xid) with its first write, and events get theirs when they are written, not when they
are committed; so events can appear out of order, as they do with a sequence. The journal shows only what is older
than every transaction that still runs.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right, insort
from collections.abc import Callable, Sequence

from allswell.domain.delivery import Delivery
from allswell.domain.journal import Entry, Position
from allswell.domain.names import Millis
from allswell.domain.task import Lane
from allswell.store.call import Hearer
from allswell.store.memory.locks import Key, LockTable
from allswell.store.memory.tables import Draft, Tables
from allswell.store.memory.turn import Turn, a_turn
from allswell.store.own_clock import DISTANCE, SETTLING, ClockReading, Moved, StoreClock, settling_of
from allswell.store.port import Changes, Conflict, Kind
from allswell.timing.clock import Clock

OnCommit = Callable[[list[Changes]], None]


class Looking:
    """A locking statement on its way: what it asks for, and which of those rows were dropped meanwhile.

    A row that was dropped and made anew while the statement waited is another row: it is not the one that was asked
    for, and the statement neither locks nor returns it.
    """

    def __init__(self, kind: Kind, ids: Sequence[str]) -> None:
        self.wanted: dict[Key, None] = dict.fromkeys((kind, id_) for id_ in ids)
        self.gone: dict[Key, None] = {}


class Database:
    """One place where rows live; it forgets everything when the process ends."""

    def __init__(self, clock: Clock, turn: Turn = a_turn, *, of_server: bool = False) -> None:
        self.turn = turn
        self.tables = Tables()
        self.locks = LockTable()
        self.lanes: dict[tuple[str, tuple[str, ...]], Lane] = {}
        self.cursors: dict[str, Position] = {}
        self.deliveries: dict[tuple[str, tuple[int, int, int]], Delivery] = {}
        """What sinks still have to deliver, by sink and place."""
        self.kept: dict[str, str] = {}
        """What the watch keeps about itself."""
        self.outcomes: dict[str, bool] = {}
        """How the commits ended whose answers were lost."""
        self.hearers: dict[object, Hearer] = {}
        """By the connection that each belongs to."""
        self.on_commit: OnCommit | None = None
        self.numbers = itertools.count(1)
        self.looking: dict[Looking, None] = {}
        self._clock = StoreClock(clock, of_server=of_server)
        self._entries: list[Entry] = []
        self._xids = itertools.count(1)
        self._event_ids = itertools.count(1)
        self._spread_numbers = itertools.count(1)
        self._running: dict[int, None] = {}

    def now(self) -> Millis:
        """The clock, for a unit of work."""
        return self._clock.now(0, settling_of(self.kept.get(SETTLING)))

    def see(self) -> tuple[Millis, int]:
        """The clock for a view, and by how much time stands still."""
        return self._clock.see(0, settling_of(self.kept.get(SETTLING)))

    def clocks(self) -> ClockReading:
        """The clocks, whatever they say."""
        return self._clock.read(0, self.kept.get(SETTLING), self.kept.get(DISTANCE))

    def keep(self, moved: Moved) -> None:
        """Keep how far settling has got."""
        before, after = moved.settling
        if self.kept.get(SETTLING) != before:
            raise Conflict("another connection has gone on settling the clock")
        self.kept[SETTLING] = after
        if moved.distance is not None:
            self.kept[DISTANCE] = moved.distance

    def begin(self) -> int:
        """The number of a transaction that is about to write."""
        xid = next(self._xids)
        self._running[xid] = None
        return xid

    def end(self, xid: int) -> None:
        """The transaction has committed or was rolled back; the journal need not wait for it."""
        self._running.pop(xid, None)

    def next_event_id(self) -> int:
        """From a sequence: drawn at the time of writing, never given back."""
        return next(self._event_ids)

    def next_spread(self) -> int:
        """The place of a new spread in the order of making."""
        return next(self._spread_numbers)

    def apply(self, draft: Draft, entries: Sequence[Entry]) -> None:
        """Commit: everything becomes visible at once."""
        if draft.dropped:
            for looking in self.looking:
                looking.gone.update(dict.fromkeys(key for key in draft.dropped if key in looking.wanted))
        self.tables.apply(draft)
        for entry in entries:
            if self._entries and entry.position < self._entries[-1].position:
                insort(self._entries, entry, key=_position)
            else:
                self._entries.append(entry)

    def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position that no running transaction can still precede."""
        if not self._entries or self._entries[-1].position <= after:
            return []
        horizon = next(iter(self._running), None)
        found: list[Entry] = []
        for place in range(bisect_right(self._entries, after, key=_position), len(self._entries)):
            entry = self._entries[place]
            if len(found) >= limit or (horizon is not None and entry.position.xid >= horizon):
                break
            found.append(entry)
        return found


def _position(entry: Entry) -> Position:
    return entry.position
