"""The sweeper's loop: look at the agenda, handle what is due, sleep until the next thing could be.

A store that cannot be reached is waited for. A timer whose handling fails unexpectedly is set aside for a while and
reported, so that one bad row delays no other.

Before any limit is enforced the clocks are checked: `mind_the_clock` runs before every look of the sweeper and every
batch of the engine. After the machine slept, every lease gets one more window (ADR 9). After its wall clock was set,
whatever runs is moved with it, so that it has the time left that it had (ADR 33). How far the clocks were apart is kept
in the store, so that a process which was not there before notices it too.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial

import msgspec

from allswell.domain.duration import show
from allswell.domain.ids import AgentId, Millis, RunId, TaskId
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
from allswell.domain.lease.expiry import OneMoreWindow, Tick
from allswell.domain.rules.command import Command
from allswell.domain.rules.event import Event
from allswell.domain.run.lifecycle import TickRun
from allswell.domain.task.fanout import working_off
from allswell.engine.timings import Timings
from allswell.engine.unit_of_work import BatchPlan, BatchResult, CommitEffects, Work, cases_of, commit, perform
from allswell.engine.wakeup import Signal, either
from allswell.errors import AllswellError, Unavailable
from allswell.store.clock import (
    DISTANCE,
    ClockMoveWrites,
    ClockReading,
    DueTimer,
    OwnClock,
    SetBack,
    settling_of,
)
from allswell.store.port import CommitUnknown, LockKind, RowChanges, RowRequest, Store, Transaction, Wakeup
from allswell.timing.clock import Clock, MachineClocks

# What happens by itself: timers that fall due, and consequences that are worked off in chunks.
#
# Any number of sweepers may run, in any number of processes; none is leader. What one finds is a hint: it becomes a
# command like any other (`Tick`, `TellDependents`, …), and the core decides it on rows that are locked and read again.
# It passes over what another has, and re-arms a timer that was found too early.

CHUNK = 500
"""The most rows that one transaction of a sweeper touches."""


async def find_spreads(tx: Transaction) -> Sequence[str]:
    """Which consequences are waiting."""
    return await tx.find_spreads(CHUNK)


async def tick(tx: Transaction, dues: Sequence[DueTimer]) -> BatchResult:
    """Let time pass for these timers' owners; whether each was handled is its answer."""
    if not dues:
        return BatchResult([], CommitEffects())
    commands: list[Command] = [
        TickRun(RunId(due.owner)) if _is_run(due) else Tick(TaskId(due.owner), due.agent) for due in dues
    ]
    return await _perform(tx, commands)


def _is_run(due: DueTimer) -> bool:
    return due.owner.startswith("r_")


async def spread(tx: Transaction, id_: str) -> BatchResult:
    """Work off one chunk of a consequence; the answer is whether there was anything to do."""
    locked = await tx.lock(LockKind.SPREAD, [id_], skip=True)
    if not locked:
        return BatchResult([False], CommitEffects())
    row = (await tx.read(RowRequest(spreads=locked))).spreads[id_]
    return await _perform(tx, [working_off(row, CHUNK)])


async def wake_up(tx: Transaction, after: str, slept: int) -> BatchResult:
    """Give a chunk of leases one more window after the machine slept; the answer is where the walk goes on."""
    return await _perform(tx, [OneMoreWindow(after, slept, CHUNK)])


async def _perform(tx: Transaction, commands: Sequence[Command]) -> BatchResult:
    """What happens by itself makes no tasks, and leaves nothing to chance."""
    return await perform(tx, BatchPlan(commands), {}, lambda: 0.0)


log = logging.getLogger(__name__)
_OWN_STEPS_MOST = 200
"""Consequences that a claim works off, each a chunk, before it looks for what they have freed."""
_SLEPT = "clock_slept"
"""Under which word it is kept how long a machine has slept since it was started."""


class Sweeper:
    """One process's share of the sweeping; any number may run on one store."""

    def __init__(
        self,
        store: Store,
        *,
        clock: Clock,
        pace: Timings,
        rng: Callable[[], float],
        tell: Callable[[CommitEffects], None],
        call: Callable[[CommitEffects], Wakeup],
        machine: str | None,
    ) -> None:
        self._store = store
        self._pace = pace
        self._rng = rng
        self._tell = tell
        self._call = call
        self._machine = machine
        """Whose clocks these are; without it, nothing is kept in the store, nor compared with it."""
        self.clocks = MachineClocks(clock, tolerated=pace.clock_jump, of_server=store.shared_clock)
        self._count = 0
        """How often the store had been settled by then."""
        self._minding = asyncio.Lock()
        self._agenda = Signal()
        self._next_look: float | None = None
        self._caused = 0
        """How many commits of this process had consequences for others."""
        self._spread = 0
        """How many of them are known to be worked off."""
        self._set_aside: dict[str, float] = {}
        """Owners of timers and spreads that broke, each with when it is tried again (on the loop's clock)."""

    @property
    def troubles(self) -> Sequence[str]:
        """What could not be handled and is set aside; for those who look after the watch."""
        return list(self._set_aside)

    def hear(self, news: CommitEffects) -> None:
        """Wake up if something was committed that cannot wait for the next look."""
        if news.spreads or (news.due is not None and (self._next_look is None or news.due < self._next_look)):
            self._agenda.fire()

    def owe(self, news: CommitEffects) -> None:
        """Take note of a commit of this process: what follows from it, its own next claim shall find."""
        if news.spreads:
            self._caused += 1

    @property
    def owes(self) -> bool:
        """Whether consequences of what this process has committed may still wait to be worked off."""
        return self._spread < self._caused

    async def work_off(self) -> None:
        """Work off what follows from this process's own commits, in so many steps at most; the rest is the loop's."""
        steps = 0
        while self.owes and steps < _OWN_STEPS_MOST:
            caused = self._caused
            waiting = await self._store.transact(find_spreads, durable=False)
            waiting = [id_ for id_ in waiting if id_ not in self._set_aside][: _OWN_STEPS_MOST - steps]
            if not waiting:
                self._spread = caused
                return
            steps += len(waiting)
            worked = [await self._spread_one(id_) for id_ in waiting]
            if not any(worked):  # another process handles it
                await asyncio.sleep(self._pace.sweep_busy * (0.5 + self._rng()))

    async def _spread_one(self, id_: str) -> bool:
        return await self._guarded(id_, lambda tx: spread(tx, id_))

    async def work(self) -> None:
        """Enforce time limits until cancelled."""
        pause = self._pace.retry_first
        while True:
            news = self._agenda.listen()
            try:
                sleep = await self.sweep()
                pause = self._pace.retry_first
            except SetBack:
                sleep = 0.0  # the clock was set in this very moment; the next look sees to it
            except (Unavailable, CommitUnknown):  # unknown can only be the end of a look, which has changed nothing
                sleep = pause * (0.5 + self._rng() / 2)
                pause = min(pause * 2, self._pace.retry_most)
            except Exception:
                log.exception("a look at the agenda failed; the next is in %g s", self._pace.retry_most)
                sleep = self._pace.retry_most
            if sleep > 0:
                await either(news, sleep)

    async def sweep(self) -> float:
        """One look at the agenda, and one round of work if there is any; how long to sleep until the next, in s."""
        if self.clocks.jumped:
            await self.mind_the_clock()
        agenda = await self._store.view_agenda()
        if agenda.stands:
            await self.settle()
            return 0.0
        due = agenda.next_due
        if not agenda.spreads and (due is None or due > agenda.now):
            most = self._pace.sweep_most * (0.75 + self._rng() / 4)
            sleep = most if due is None else min(most, (due - agenda.now) / 1000)
            self._next_look = agenda.now + sleep * 1000
            return sleep
        loop_now = asyncio.get_running_loop().time()
        self._set_aside = {owner: until for owner, until in self._set_aside.items() if until > loop_now}
        worked, spreads = await self._look_and_tick(agenda.now)
        for id_ in spreads:
            if id_ not in self._set_aside:
                worked = await self._spread_one(id_) or worked
        return 0.0 if worked else self._pace.sweep_busy * (0.5 + self._rng())

    async def _look_and_tick(self, now: Millis) -> tuple[bool, Sequence[str]]:
        """Handle the timers that are due, and find the consequences that wait, in one transaction.

        If that breaks as a whole, timers are handled one by one, so that only the sick one is set aside.
        """
        dues: Sequence[DueTimer] = ()
        spreads: Sequence[str] = ()

        async def look_and_tick(tx: Transaction) -> BatchResult:
            nonlocal dues, spreads
            due_now = [due for due in await tx.find_due(now, CHUNK) if due.owner not in self._set_aside]
            dues = sorted(due_now, key=lambda due: (_is_run(due), due.owner))
            spreads = await tx.find_spreads(CHUNK)
            return await tick(tx, dues)

        try:
            performed = await commit(self._store, look_and_tick, clocks=self.clocks, call=self._call)
        except (Unavailable, CommitUnknown, SetBack):
            raise
        except Exception:
            if not dues:
                raise
            log.exception("handling %d timers together failed; trying them one by one", len(dues))
            each = [await self._guarded(due.owner, partial(tick, dues=[due])) for due in dues]
            return any(each), spreads
        return self._handled([due.owner for due in dues], performed), spreads

    async def _guarded(self, owner: str, work: Work) -> bool:
        """Have it done; what breaks is logged and set aside, and delays no other."""
        try:
            performed = await commit(self._store, work, clocks=self.clocks, call=self._call)
        except (Unavailable, CommitUnknown, SetBack):
            raise
        except Exception as error:  # noqa: BLE001 - as above
            self._put_aside(owner, error)
            return True
        return self._handled([owner], performed)

    def _handled(self, owners: Sequence[str], performed: BatchResult) -> bool:
        """Set aside what could not be decided; whether there was anything to do."""
        self._tell(performed.news)
        for owner, answer in zip(owners, performed.answers, strict=True):
            if isinstance(answer, AllswellError):
                self._put_aside(owner, answer)
        return any(performed.answers)

    def _put_aside(self, owner: str, error: Exception) -> None:
        log.error("%s cannot be handled and is set aside for %g s", owner, self._pace.set_aside, exc_info=error)
        self._set_aside[owner] = asyncio.get_running_loop().time() + self._pace.set_aside

    # --- when the clocks have come apart ----------------------------------------------------------------------------

    async def look_back(self) -> None:
        """Take up where the last process on this machine left: a jump since then is found like one of our own time."""
        if self._store.shared_clock or self._machine is None:
            return
        ahead, slept = self.clocks.distances()
        self.clocks.ahead = await self._take_up(DISTANCE, ahead)
        self.clocks.slept = await self._take_up(_SLEPT, slept)

    async def _take_up(self, word: str, apart: int) -> int:
        """What was noted, or what is so now if nothing was; a clock that only drifts is noted anew."""
        kept = distance_on(self._machine, await self._store.get(word))
        if kept is None or (not self.clocks.far(apart, kept) and abs(kept - apart) * 2 > self._pace.clock_jump * 1000):
            await self._note(word, apart)
            return apart
        return kept

    async def mind_the_clock(self) -> None:
        """Have what runs moved with a wall that was set, and give who slept one more window, each once."""
        if self.clocks.far(self.clocks.distances()[0], self.clocks.ahead):
            await self.settle()
        async with self._minding:
            _, slept = self.clocks.distances()
            if not self.clocks.far(slept, self.clocks.slept):
                return
            kept = distance_on(self._machine, await self._store.get(_SLEPT))
            if kept is None or self.clocks.far(slept, kept):
                await self._give_one_more_window(slept - self.clocks.slept)
                await self._note(_SLEPT, slept)
            self.clocks.slept = slept

    async def settle(self) -> None:
        """Settle the store on the wall as it is, or go on with what another process has begun; ADR 33."""
        async with self._minding:
            apart, _ = self.clocks.distances()
            while True:
                seen = ClockReadings(self._machine, self.clocks.ahead, apart, self._count)
                performed = await commit(self._store, lambda tx, seen=seen: step(tx, seen), call=self._call)  # type: ignore[misc]
                self._tell(performed.news)
                done = performed.answers[0]
                if isinstance(done, SettlingStep) and not done.more:
                    break
            if done.by:
                way = "forward" if done.by > 0 else "back"
                log.warning(
                    "this machine's clock was set %s by %s, or the store was written ahead of it; "
                    "what runs goes on with the time it had left",
                    way,
                    show(abs(done.by)),
                )
            elif self.clocks.far(apart, self.clocks.ahead):
                await self._note(DISTANCE, apart)
            self.clocks.ahead, self._count = apart, done.count

    async def _note(self, word: str, apart: int) -> None:
        if self._machine is not None:
            await self._store.put(word, distance_note(self._machine, apart))

    async def _give_one_more_window(self, jumped: int) -> None:
        after: object = ""
        while isinstance(after, str):
            start = after
            performed = await commit(
                self._store,
                lambda tx, start=start: wake_up(tx, start, jumped),  # type: ignore[misc]
                call=self._call,
            )
            self._tell(performed.news)
            after = performed.answers[0]
            if isinstance(after, AllswellError):
                raise after


# Settling a store on the wall clock as it is, after that was set: one chunk of the walk at a time (docs/adr/0033).
#
#     begin     write by how much every moment is off, and that settling has begun: from now on no time is given out
#     a chunk   move the rows of the next owners of timers, and write how far that has got, in one transaction
#     the end   move the services, write to the journal and that settling is over: time goes on
#
# Any process may do any of these steps, after any other. Two that do the same one at once meet in the word that says
# how far it has got: one of them finds it changed and decides again.


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
        before = seen.before  # no process has noted it, or settled since this process looked
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
