"""Settling a store on the wall clock as it is, after that was set: one chunk of the walk at a time (docs/adr/0033).

    begin     say by how much every moment is off, and that settling is under way: from now on nobody is told the time
    a chunk   move the rows of the next owners of timers, and say how far that has got, in one transaction
    the end   move the services, tell the journal, say that it is over: time goes on

Any process may do any of these steps, after any other. Two that do the same one at once meet in the word that says how
far it has got: one of them finds it changed and decides again.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.ids import AgentId, RunId, TaskId
from allswell.domain.lease.clock_change import (
    ClockAdjustment,
    distance_note,
    distance_on,
    moved_agent,
    moved_case,
    moved_run,
    moved_service,
    off_by,
)
from allswell.domain.rules.event import Event
from allswell.engine.plan import BatchResult
from allswell.engine.unit_of_work import CommitEffects, cases_of
from allswell.store.clock import ClockMoveWrites, ClockReading, DueTimer, OwnClock, settling_of
from allswell.store.port import LockKind, RowChanges, RowRequest, Transaction

CHUNK = 500


class ClockReadings(msgspec.Struct, frozen=True):
    """What a process knows of its machine's clocks."""

    machine: str | None
    before: int
    """How far the wall was ahead of the boottime when it last looked."""
    apart: int
    """How far it is now."""
    count: int
    """How often the store had been settled when it last looked."""


class SettlingStep(msgspec.Struct, frozen=True):
    """What a step of settling has come to."""

    count: int
    """How often the store has been settled by now."""
    more: bool = False
    """Whether another step is to follow."""
    by: int = 0
    """What every moment moved by, where this was the last step."""


async def step(tx: Transaction, seen: ClockReadings) -> BatchResult:
    """Do the next step, if there is one; the answer is a `SettlingStep`."""
    if not isinstance(tx, OwnClock):
        return BatchResult([SettlingStep(seen.count)], CommitEffects())
    reading = await tx.clocks()
    settling = settling_of(reading.settling)
    if settling.by is None:
        return await _begin(tx, reading, settling, seen)
    found = await tx.find_timers(settling.after, CHUNK)
    if found:
        return await _move(tx, tx, settling, settling.by, found)
    return await _end(tx, tx, settling, settling.by)


async def _begin(tx: Transaction, reading: ClockReading, settling: ClockAdjustment, seen: ClockReadings) -> BatchResult:
    before = distance_on(seen.machine, reading.distance)
    if before is None and settling.count == seen.count:
        before = seen.before  # nobody has noted it, and nobody has settled since this process looked
    by = off_by(reading.latest, reading.wall, before, seen.apart)
    if by is None:
        return BatchResult([SettlingStep(settling.count)], CommitEffects())
    distance = None if seen.machine is None else distance_note(seen.machine, seen.apart)
    begun = ClockAdjustment(settling.count, by, "", distance)
    await tx.write(RowChanges(moved=ClockMoveWrites((reading.settling, _text(begun))), at=reading.wall))
    return BatchResult([SettlingStep(settling.count, more=True)], CommitEffects())


async def _move(
    tx: Transaction, clock: OwnClock, settling: ClockAdjustment, by: int, found: Sequence[DueTimer]
) -> BatchResult:
    owners = [due.owner for due in found]
    runs = [owner for owner in owners if owner.startswith("r_")]
    tasks = [owner for owner in owners if not owner.startswith("r_")]
    wanted = RowRequest()
    if runs:
        wanted.runs = [RunId(id_) for id_ in await tx.lock(LockKind.RUN, runs)]
    if agents := sorted({due.agent for due in found if due.agent is not None}):
        wanted.agents = [AgentId(id_) for id_ in await tx.lock(LockKind.AGENT, agents)]
    if tasks:
        wanted.tasks = [TaskId(id_) for id_ in await tx.lock(LockKind.TASK, tasks)]
        wanted.leases = [TaskId(id_) for id_ in await tx.lock(LockKind.LEASE, wanted.tasks)]
    reading = await clock.clocks()
    if settling_of(reading.settling) != settling:
        return BatchResult([SettlingStep(settling.count, more=True)], CommitEffects())  # another was quicker
    rows = await tx.read(wanted)
    moved = ClockMoveWrites(
        (reading.settling, _text(ClockAdjustment(settling.count, by, owners[-1], settling.distance)))
    )
    changes = RowChanges(moved=moved, at=reading.wall)
    for run in rows.runs.values():
        changes.runs.append(moved_run(run, by))
        if (limit := changes.runs[-1].limit) is not None:
            changes.timers.append((run.id, limit))
    for id_, case in cases_of(rows).items():
        after = moved_case(case, by)
        if after.task is not case.task:
            moved.tasks.append(after.task)
        if after.lease is not None:
            moved.leases.append(after.lease)
        if after.due is not None and after.due != case.due:
            changes.timers.append((id_, after.due))
    changes.agents += [moved_agent(agent, reading.wall) for agent in rows.agents.values()]
    await tx.write(changes)
    return BatchResult([SettlingStep(settling.count, more=True)], CommitEffects())


async def _end(tx: Transaction, clock: OwnClock, settling: ClockAdjustment, by: int) -> BatchResult:
    _, known = await tx.lanes()
    names = sorted(known)
    wanted = RowRequest(services=await tx.lock(LockKind.SERVICE, names) if names else ())
    reading = await clock.clocks()
    if settling_of(reading.settling) != settling:
        return BatchResult([SettlingStep(settling.count, more=True)], CommitEffects())
    rows = await tx.read(wanted)
    over = ClockAdjustment(settling.count + 1)
    changes = RowChanges(
        services=[moved_service(row, by, reading.wall) for row in rows.services.values()],
        events=[Event("clock_set", data={"by_ms": by})],
        moved=ClockMoveWrites((reading.settling, _text(over)), settling.distance),
        at=reading.wall,
    )
    await tx.write(changes)
    return BatchResult([SettlingStep(over.count, by=by)], CommitEffects(ready=True, events=True, due=int(reading.wall)))


def _text(settling: ClockAdjustment) -> str:
    return msgspec.json.encode(settling).decode()
