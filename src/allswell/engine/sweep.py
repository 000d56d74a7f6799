"""What happens by itself: timers that fall due, and consequences that are worked off in chunks.

Any number of sweepers may run, in any number of processes; none is leader. What one finds is a hint: it becomes a
command like any other (`Tick`, `TellDependents`, …), and the core decides it on rows that are locked and read again. It
passes over what another has, and re-arms a timer that was found too early.
"""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.command import Command
from allswell.domain.ending import TickRun
from allswell.domain.names import RunId, TaskId
from allswell.domain.spreading import working_off
from allswell.domain.tick import OneMoreWindow, Tick
from allswell.engine.batch import Performed, Plan, perform
from allswell.engine.book import News
from allswell.store.own_clock import Due
from allswell.store.port import Kind, Transaction, Wanted

CHUNK = 500
"""The most rows that one transaction of a sweeper touches."""


async def look(tx: Transaction) -> tuple[Sequence[Due], Sequence[str]]:
    """What has fallen due, those of tasks first, and which consequences are waiting. Only hints: nothing is locked."""
    now = await tx.now()
    dues = sorted(await tx.find_due(now, CHUNK), key=lambda due: (_is_run(due), due.owner))
    return dues, await tx.find_spreads(CHUNK)


async def find_spreads(tx: Transaction) -> Sequence[str]:
    """Which consequences are waiting."""
    return await tx.find_spreads(CHUNK)


async def tick(tx: Transaction, dues: Sequence[Due]) -> Performed:
    """Let time pass for these timers' owners; whether each was handled is its answer."""
    commands: list[Command] = [
        TickRun(RunId(due.owner)) if _is_run(due) else Tick(TaskId(due.owner), due.agent) for due in dues
    ]
    return await _perform(tx, commands)


def _is_run(due: Due) -> bool:
    return due.owner.startswith("r_")


async def spread(tx: Transaction, id_: str) -> Performed:
    """Work off one chunk of a consequence; the answer is whether there was anything to do."""
    locked = await tx.lock(Kind.SPREAD, [id_], skip=True)
    if not locked:
        return Performed([False], News())
    row = (await tx.read(Wanted(spreads=locked))).spreads[id_]
    return await _perform(tx, [working_off(row, CHUNK)])


async def wake_up(tx: Transaction, after: str, slept: int) -> Performed:
    """Give a chunk of leases one more window after the machine slept; the answer is where the walk goes on."""
    return await _perform(tx, [OneMoreWindow(after, slept, CHUNK)])


async def _perform(tx: Transaction, commands: Sequence[Command]) -> Performed:
    """What happens by itself makes no tasks, and leaves nothing to chance."""
    return await perform(tx, Plan(commands), {}, lambda: 0.0)
