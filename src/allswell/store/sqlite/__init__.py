"""A watch in one SQLite file, for one machine: any number of processes, one writer at a time.

The protocol, each rule with the failure it answers:

*   **`BEGIN IMMEDIATE` only, behind a turnstile** (`turnstile.py`). Beside one saturating writer a small commit of
    another process waited 600 ms for SQLite's own lock; with the turnstile it waits for one turn.
*   **One writer connection in one thread** (`writer.py`). A unit of work is a coroutine that never really waits, so
    the thread runs it whole: one hop there and back for a batch. Serial writers make `lock` a mere look-up and the
    journal's order the order of its ids.
*   **`synchronous` per batch**: FULL for decisions, NORMAL for beats. It can be set only between transactions.
*   **Views read on a second connection**, in a thread of its own, and take all rows at once: an open cursor stops
    checkpoints, and the WAL grows without end.
*   **Nothing opens the database files but SQLite.** A process that opens, reads and closes its own database by
    ordinary means drops its POSIX locks; the next process then deleted the WAL, and acknowledged rows were gone after
    a kill -9. Backups are made by the backup API, and a folder we make carries its own `.gitignore`.
*   **A store inherited over fork is refused**, and so is a file system whose locks reach other machines (`paths.py`).
*   **`now` never goes back** (`store/clock.py`), not even across a restart after the clock was set back.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from allswell.store.sqlite.store import SqliteStore

__all__ = ["SqliteStore"]


def __getattr__(name: str) -> object:
    """Import the store when it is first asked for: a reader (`SqliteReader`) starts faster without it."""
    if name == "SqliteStore":
        from allswell.store.sqlite.store import SqliteStore

        return SqliteStore
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
