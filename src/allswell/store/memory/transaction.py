"""A transaction on the memory store: each method is one statement with a view of its own.

Every statement first gives way to the event loop, so that transactions interleave where a database's would. Between
two statements anything may be committed by others; what a statement returns is what was committed at that moment,
with this transaction's own writes before it. After an error the transaction is spoiled, as on PostgreSQL: nothing
but rolling back is left.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_right
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from heapq import merge, nsmallest
from itertools import islice
from typing import TYPE_CHECKING

from allswell.domain.names import AgentId, CommandId, Millis, QuestionId, RunId, TaskId
from allswell.domain.service import ServiceRow
from allswell.domain.task import OPEN, Lane
from allswell.errors import Bug
from allswell.store.memory.database import Looking
from allswell.store.memory.locks import Key, Owner
from allswell.store.memory.rules import Rules
from allswell.store.memory.tables import Draft
from allswell.store.memory.writing import enter, insertions
from allswell.store.port import Changes, Conflict, Due, Entry, Kind, Lock, Rows, Wanted
from allswell.store.taking import take_in_turn

if TYPE_CHECKING:
    from allswell.store.memory.store import MemoryStore

_MADE_UNSEEN = (Kind.RUN, Kind.SERVICE, Kind.TASK, Kind.AGENT)
"""What no lock can stand for before it is made, so that another transaction may be quicker."""


class MemoryTransaction:
    """One unit of work on the memory store."""

    def __init__(self, store: MemoryStore) -> None:
        self._store = store
        self._base = store.database
        self.number = next(self._base.numbers)
        self.draft = Draft(self._base.tables)
        self.owner = Owner(f"transaction {self.number}")
        self.entries: list[Entry] = []
        self.written: list[Changes] = []
        self.xid: int | None = None
        self.inside = False
        """Whether one of the methods below is at work."""
        self.spoiled: BaseException | None = None
        self._rules = Rules(self.owner, self.draft) if store.strict else None

    @asynccontextmanager
    async def _statement(self, name: str) -> AsyncIterator[None]:
        if self.spoiled is not None:
            raise self.spoiled
        self.inside = True
        try:
            await self._store.give_way(name)
            yield
        except BaseException as error:
            self.spoiled = error
            raise
        finally:
            self.inside = False

    async def lock(self, kind: Kind, ids: Sequence[str], *, skip: bool = False, shared: bool = False) -> Sequence[str]:
        """Lock rows (sorted by id) and return the ids that exist; with `skip`, only those free at once."""
        async with self._statement("lock"):
            wanted = sorted(dict.fromkeys(ids))
            if not wanted:
                return []
            if self._rules is not None:
                self._rules.check_lock(kind, wanted, exclusive=not shared, skip=skip)
            seen = [id_ for id_ in wanted if self.draft.exists(kind, id_)]
            looking = Looking(kind, seen)
            self._base.looking[looking] = None
            try:
                return [
                    id_ for id_ in seen if await self._lock_one(looking, kind, id_, skip=skip, exclusive=not shared)
                ]
            finally:
                del self._base.looking[looking]

    async def _lock_one(self, looking: Looking, kind: Kind, id_: str, *, skip: bool, exclusive: bool) -> bool:
        key = (kind, id_)
        locks = self._base.locks
        if not locks.try_acquire(self.owner, key, exclusive=exclusive):
            if skip:
                return False
            await locks.acquire(self.owner, key, exclusive=exclusive)
        if key in looking.gone:
            locks.release(self.owner, key)
            return False
        return True

    async def now(self) -> Millis:
        """The store's clock, read now; never less than it was before."""
        async with self._statement("now"):
            if self._rules is not None:
                self._rules.note_now()
            return self._base.now()

    async def take(self, locks: Sequence[Lock], wanted: Wanted) -> tuple[Millis, Rows]:
        """Lock, read the clock, and read what was locked."""
        return await take_in_turn(self, locks, wanted)

    async def read(self, wanted: Wanted) -> Rows:
        """Rows as committed now, or as written by this transaction."""
        async with self._statement("read"):
            if self._rules is not None:
                self._rules.check_read(wanted)
            return self._read(wanted)

    def _read(self, wanted: Wanted) -> Rows:
        draft = self.draft
        rows = Rows()
        for spread in wanted.spreads:
            if (numbered := draft.spreads.get(spread)) is not None:
                rows.spreads[spread] = numbered[1]
        draft.runs.copy(wanted.runs, rows.runs)
        draft.services.copy(wanted.services, rows.services)
        draft.agents.copy(wanted.agents, rows.agents)
        draft.questions.copy(wanted.questions, rows.questions)
        draft.tasks.copy(wanted.tasks, rows.tasks)
        draft.ready.copy(wanted.tasks, rows.ready)
        draft.timers.copy(wanted.tasks, rows.timers)
        draft.leases.copy(wanted.leases, rows.leases)
        draft.attempts.copy(wanted.attempts, rows.attempts)
        draft.payloads.copy(wanted.payloads, rows.payloads)
        for task in wanted.tasks:
            if waits := draft.waits.get(task):
                rows.waits[task] = list(waits)
        for task in wanted.bars:
            if barred := draft.bars.get(task):
                rows.bars[task] = set(barred)
        rows.awaited.update(task for task in wanted.awaited if any(True for _ in draft.waiting_for(task)))
        return rows

    async def write(self, changes: Changes) -> None:
        """Write every table once."""
        async with self._statement("write"):
            if self.xid is None:
                self.xid = self._base.begin()
            if self._rules is not None:
                self._rules.check_put(changes)
            for key, must_be_new in insertions(changes):
                if must_be_new and key in self.owner.held and self.draft.exists(*key):
                    raise Bug(f"{key[0]} {key[1]} exists already, and this transaction knew it")
                await self._base.locks.acquire(self.owner, key, exclusive=True)
                if must_be_new and key[0] in _MADE_UNSEEN and self.draft.exists(*key):
                    # At once, as a unique index does: with the later keys still unlocked.
                    raise Conflict(f"{key[0]} {key[1]} exists already: another transaction made it first")
            if self._rules is not None:
                self._rules.check_write(changes)
            self.entries += enter(changes, self.draft, self._base, self.xid)
            self.written.append(changes)

    async def lanes(self) -> tuple[Sequence[Lane], dict[str, ServiceRow]]:
        """All lanes, and the services that something is or was held against."""
        async with self._statement("lanes"):
            services = {**self._base.tables.services, **dict(self.draft.services.made())}
            return list(self._base.lanes.values()), services

    async def pick(
        self, lanes: Sequence[int], count: int, agent: AgentId | None, outside: Sequence[RunId] = ()
    ) -> Sequence[TaskId]:
        """Lock up to `count` claimable tasks of these lanes, best rank first, skipping locked ones.

        As in a database, looking and locking are two moments: someone else may have been quicker in between.
        """
        async with self._statement("pick"):
            if self._rules is not None:
                self._rules.note_pick()
            seen = list(islice(self._claimable(lanes, agent, outside), 2 * count))
            if self._rules is not None:
                await asyncio.sleep(0)
            free = (task for task in seen if self._try_lock(task))
            return list(islice(free, count))

    def _claimable(self, lanes: Sequence[int], agent: AgentId | None, outside: Sequence[RunId]) -> Iterator[TaskId]:
        ready, bars = self.draft.ready, self.draft.bars
        order = self._base.tables.lane_order
        committed = merge(*(order.get(lane, ()) for lane in dict.fromkeys(lanes)))
        own = sorted((row.rank, task) for task, row in ready.made() if row.lane in lanes)
        for _, task in merge((entry for entry in committed if entry[1] not in ready.own), own):
            if agent is not None and agent in (bars.get(task) or ()):
                continue
            row = self.draft.tasks.get(task) if outside else None
            if row is None or row.run not in outside:
                yield task

    def _try_lock(self, task: TaskId) -> bool:
        return self._base.locks.try_acquire(self.owner, (Kind.TASK, task), exclusive=True)

    async def find_due(self, now: Millis, limit: int) -> Sequence[Due]:
        """Timers that have fallen due, the oldest first."""
        async with self._statement("find_due"):
            timers = self.draft.timers
            committed = (entry for entry in self._base.tables.timer_order if entry[1] not in timers.own)
            own = sorted((due, owner) for owner, due in timers.made())
            found: list[Due] = []
            for due, owner in merge(committed, own):
                if due > now or len(found) >= limit:
                    break
                lease = self.draft.leases.get(TaskId(owner))
                found.append(Due(owner, None if lease is None else lease.agent))
            return found

    async def find_spreads(self, limit: int) -> Sequence[str]:
        """Consequences still to be worked off, the oldest first."""
        async with self._statement("find_spreads"):
            spreads = self.draft.spreads
            numbered = [(spreads.below[id_][0], id_) for id_ in spreads.seen(spreads.below)]
            numbered += [(number, id_) for id_, (number, _) in spreads.made()]
            return [id_ for _, id_ in nsmallest(limit, numbered)]

    async def find_waiting(self, target: str, limit: int) -> Sequence[TaskId]:
        """Tasks that wait for this task."""
        async with self._statement("find_waiting"):
            return list(islice(self.draft.waiting_for(target), limit))

    async def find_open(self, run: RunId, limit: int) -> Sequence[TaskId]:
        """Open tasks of a run."""
        async with self._statement("find_open"):
            tasks = self.draft.tasks
            found = list(islice(tasks.seen(self._base.tables.open_by_run.get(run, ())), limit))
            found += [id_ for id_, task in tasks.made() if task.run == run and task.state == OPEN]
            return found[:limit]

    async def find_questions(self, task: TaskId) -> Sequence[QuestionId]:
        """Open questions about a task."""
        async with self._statement("find_questions"):
            questions = self.draft.questions
            found = list(questions.seen(self._base.tables.open_questions.get(task, ())))
            return found + [id_ for id_, row in questions.made() if row.task == task and row.closed_at is None]

    async def find_claimed(self, command: CommandId) -> Sequence[TaskId]:
        """Tasks whose current lease this claim command made; others who ask for it wait."""
        async with self._statement("find_claimed"):
            if self._rules is not None:
                self._rules.check_claimed(command)
            locks = self._base.locks
            key: Key = ("claim", command)
            if not locks.try_acquire(self.owner, key, exclusive=True):
                await locks.acquire(self.owner, key, exclusive=True)
            leases = self.draft.leases
            found = list(leases.seen(self._base.tables.claimed.get(command, ())))
            return found + [task for task, lease in leases.made() if lease.command == command]

    async def find_leases(self, after: str, limit: int) -> Sequence[TaskId]:
        """Live leases by task id, for a walk over all of them."""
        async with self._statement("find_leases"):
            leases = self.draft.leases
            order = self._base.tables.lease_order
            committed = leases.seen(islice(order, bisect_right(order, TaskId(after)), None))
            own = sorted(task for task, _ in leases.made() if task > after)
            return list(islice(merge(committed, own), limit))
