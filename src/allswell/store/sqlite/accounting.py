"""How many tasks stand where, and whether every open one is accounted for, without looking at each of them.

A million open tasks are counted in a fraction of a second by the rows that show where they stand: leases, waits, places
in line, timers. Each open task has one of them, and which ones go together is known, so where the sums add up nobody is
missing. Only where they do not, the invariant is asked of every task (`view_unaccounted`).
"""

from __future__ import annotations

import sqlite3

from allswell.domain.names import TaskId
from allswell.domain.task import State
from allswell.store.sqlite.schema import SQL


def counts(connection: sqlite3.Connection) -> dict[str, int]:
    """How many tasks stand where."""
    connection.execute("BEGIN")
    try:
        found = dict(connection.execute(SQL["view_counts_bad"]).fetchall())
        found |= {state: count for state, count in _open(connection).items() if count}
        (total,) = connection.execute(SQL["view_count_all"]).fetchone()
    finally:
        connection.execute("ROLLBACK")
    if done := total - sum(found.values()):
        found[State.DONE.value] = done
    return found


def unaccounted(connection: sqlite3.Connection, limit: int) -> list[TaskId]:
    """Open tasks that nothing will ever move again."""
    connection.execute("BEGIN")
    try:
        if _adds_up(connection):
            return []
        return [TaskId(row[0]) for row in connection.execute(SQL["view_unaccounted"], (limit,)).fetchall()]
    finally:
        connection.execute("ROLLBACK")


def _open(connection: sqlite3.Connection) -> dict[str, int]:
    """How many open tasks stand where; one that stands nowhere counts as delayed."""
    unended, held, waiting, ready = connection.execute(SQL["view_counts_open"]).fetchone()
    delayed = unended - held - waiting - ready
    return {
        State.HELD.value: held,
        State.WAITING.value: waiting,
        State.READY.value: ready,
        State.DELAYED.value: delayed,
    }


def _adds_up(connection: sqlite3.Connection) -> bool:
    """Whether as many tasks have a timer alone as are delayed, every lease has one, and nobody waits in vain."""
    standing = _open(connection)

    def count(name: str) -> int:
        (found,) = connection.execute(SQL[name]).fetchone()
        return int(found)

    timers = count("count_timers")
    fewer = "count_timers_of_ready" if timers < standing[State.READY.value] else "count_ready_with_timers"
    alone = timers - count("count_timers_of_leases") - count("count_timers_of_waits") - count(fewer)
    return alone == standing[State.DELAYED.value] and not count("find_untimed") and not count("find_in_vain")
