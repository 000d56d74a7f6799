"""Taking what a batch names, step by step: where a call costs nothing, or what is locked depends on what was free."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from allswell.domain.names import Millis
from allswell.store.port import Kind, Lock, Rows, Transaction, Wanted

_FIELDS = {
    Kind.SPREAD: ("spreads",),
    Kind.RUN: ("runs",),
    Kind.SERVICE: ("services",),
    Kind.AGENT: ("agents",),
    Kind.QUESTION: ("questions",),
    Kind.TASK: ("tasks", "awaited", "payloads", "bars", "expenses"),
    Kind.LEASE: ("leases",),
}
"""Which fields of `Wanted` name rows under which lock."""


async def take_in_turn(tx: Transaction, locks: Sequence[Lock], wanted: Wanted) -> tuple[Millis, Rows]:
    """Lock kind by kind, read the clock, then the rows that were locked."""
    locked = await lock_in_turn(tx, locks)
    now = await tx.now()
    return now, await tx.read(only_locked(wanted, locked))


async def lock_in_turn(tx: Transaction, locks: Sequence[Lock]) -> dict[Kind, Sequence[str]]:
    """Lock kind by kind; where tasks in other hands are passed over, so are their leases."""
    locked: dict[Kind, Sequence[str]] = {}
    passing_over = False
    for lock in locks:
        ids = lock.ids
        if lock.kind is Kind.LEASE and passing_over:
            free = {*locked[Kind.TASK]}
            ids = [id_ for id_ in ids if id_ in free]
        passing_over = passing_over or lock.skip
        locked[lock.kind] = await tx.lock(lock.kind, ids, skip=lock.skip, shared=lock.shared) if ids else ()
    return locked


def only_locked(wanted: Wanted, locked: Mapping[Kind, Sequence[str]]) -> Wanted:
    """What is wanted, without the rows that do not exist: what appears after the lock must not be read."""
    kept = Wanted()
    for kind, ids_locked in locked.items():
        held = {*ids_locked}
        for field in _FIELDS[kind]:
            if ids := getattr(wanted, field):
                setattr(kept, field, [id_ for id_ in ids if id_ in held])
    return kept
