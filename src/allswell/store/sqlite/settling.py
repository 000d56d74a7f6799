"""What settling after a change of the machine's clock reads and writes in SQLite (docs/adr/0033)."""

from __future__ import annotations

import sqlite3
from operator import attrgetter

from allswell.domain.set_back import Settling
from allswell.errors import Bug
from allswell.store.own_clock import DISTANCE, SETTLING, ClockReading, Moved, StoreClock, settling_of
from allswell.store.port import Conflict
from allswell.store.sqlite import rows
from allswell.store.sqlite.schema import SQL

_moments = attrgetter("granted_at", "deadline", "stalled_at", "renewed_at", "checkin_at", "own", "task", "token")


def last_of(connection: sqlite3.Connection) -> tuple[int, int, Settling]:
    """The moment and the number of the newest event, and whether the clock is being settled."""
    at, last, kept = connection.execute(SQL["read_last"]).fetchone()
    return at, last, settling_of(kept)


def clocks(connection: sqlite3.Connection, clock: StoreClock, newest: int) -> ClockReading:
    """The clocks, whatever they say."""
    return clock.read(newest, word(connection, SETTLING), word(connection, DISTANCE))


def word(connection: sqlite3.Connection, key: str) -> str | None:
    """What the watch keeps under a key."""
    found: tuple[str] | None = connection.execute(SQL["read_kept"], (key,)).fetchone()
    return None if found is None else found[0]


def swap(connection: sqlite3.Connection, key: str, before: str | None, after: str) -> bool:
    """Keep something, if what was there is still there."""
    name, values = ("add_kept", (key, after)) if before is None else ("swap_kept", (after, key, before))
    return connection.execute(SQL[name], values).rowcount == 1


def move(connection: sqlite3.Connection, moved: Moved) -> None:
    """Write what has moved, and how far that has got."""
    if not swap(connection, SETTLING, *moved.settling):
        raise Conflict("another process has gone on settling the clock")
    if moved.distance is not None:
        connection.execute(SQL["put_kept"], (DISTANCE, moved.distance))
    for statement, given in (
        ("move_task", [(rows.text(task.spec), task.id) for task in moved.tasks]),
        ("move_lease", list(map(_moments, moved.leases))),
    ):
        if given and connection.executemany(SQL[statement], given).rowcount != len(given):
            raise Bug(f"{statement} was to change {len(given)} rows: one is not as it was read")
