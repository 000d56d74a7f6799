"""A transaction on the memory store: each method is one statement with a view of its own.

Every statement first gives way to the event loop, so that transactions interleave where a database's would. Between
two statements anything may be committed by others; what a statement returns is what was committed at that moment,
with this transaction's own writes before it. After an error the transaction is spoiled, as on PostgreSQL: nothing
but rolling back is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import islice, takewhile
from typing import TYPE_CHECKING

from allswell.domain.journal import Entry
from allswell.domain.names import AgentId, CommandId, Millis, QuestionId, RunId, TaskId
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import OPEN, Lane
from allswell.errors import Bug
from allswell.store.call import NOTHING
from allswell.store.memory.database import Looking
from allswell.store.memory.locks import Key, Owner
from allswell.store.memory.rules import Rules
from allswell.store.memory.tables import Draft
from allswell.store.memory.writing import enter, insertions
from allswell.store.own_clock import ClockReading, Due
from allswell.store.port import Changes, Conflict, Kind, Lock, Rows, Wanted
from allswell.store.taking import take_in_turn

if TYPE_CHECKING:
    from allswell.store.memory.store import MemoryStore

_MADE_UNSEEN = (Kind.RUN, Kind.SERVICE, Kind.TASK, Kind.AGENT)
"""What no lock can stand for before it is made, so that another transaction may be quicker."""


class _Statement:
    """Stands around each statement of a transaction: says that one is at work, and that it failed if it did."""

    __slots__ = ("_tx",)

    def __init__(self, tx: MemoryTransaction) -> None:
        self._tx = tx

    def __enter__(self) -> None:
        if self._tx.spoiled is not None:
            raise self._tx.spoiled
        self._tx.inside = True

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        self._tx.inside = False
        if error is not None:
            self._tx.spoiled = error


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
        self.call = NOTHING
        self._rules = Rules(self.owner, self.draft) if store.strict else None
        self._statement = _Statement(self)

    async def lock(self, kind: Kind, ids: Sequence[str], *, skip: bool = False, shared: bool = False) -> Sequence[str]:
        """Lock rows (sorted by id) and return the ids that exist; with `skip`, only those free at once."""
        with self._statement:
            await self._store.give_way("lock")
            wanted = sorted(dict.fromkeys(ids))
            if not wanted:
                return []
            if self._rules is not None:
                self._rules.check_lock(kind, wanted, exclusive=not shared, skip=skip)
            seen = [id_ for id_ in wanted if self.draft.exists(kind, id_)]
            try_acquire, owner = self._base.locks.try_acquire, self.owner
            if skip:
                return [id_ for id_ in seen if try_acquire(owner, (kind, id_), exclusive=not shared)]
            for place, id_ in enumerate(seen):
                if not try_acquire(owner, (kind, id_), exclusive=not shared):
                    return seen[:place] + await self._wait_for(kind, seen[place:], exclusive=not shared)
            return seen

    async def _wait_for(self, kind: Kind, ids: Sequence[str], *, exclusive: bool) -> list[str]:
        """Lock rows of which the first is another's; those that are dropped meanwhile are left out."""
        locks = self._base.locks
        looking = Looking(kind, ids)
        self._base.looking[looking] = None
        locked: list[str] = []
        try:
            for id_ in ids:
                key = (kind, id_)
                await locks.acquire(self.owner, key, exclusive=exclusive)
                if key in looking.gone:
                    locks.release(self.owner, key)
                else:
                    locked.append(id_)
        finally:
            del self._base.looking[looking]
        return locked

    async def now(self) -> Millis:
        """The store's clock, read now; never less than it was before."""
        with self._statement:
            await self._store.give_way("now")
            if self._rules is not None:
                self._rules.note_now()
            return self._base.now()

    async def clocks(self) -> ClockReading:
        """The clocks, whatever they say."""
        with self._statement:
            await self._store.give_way("now")
            if self._rules is not None:
                self._rules.note_now()
            return self._base.clocks()

    async def find_timers(self, after: str, limit: int) -> Sequence[Due]:
        """All timers by owner, for a walk over them."""
        with self._statement:
            await self._store.give_way("find_timers")
            owners = nsmallest(limit, (owner for owner in self._base.tables.timers if owner > after))
            held = {owner: self.draft.leases.get(TaskId(owner)) for owner in owners}
            return [Due(owner, None if lease is None else lease.agent) for owner, lease in held.items()]

    async def take(self, locks: Sequence[Lock], wanted: Wanted) -> tuple[Millis, Rows]:
        """Lock, read the clock, and read what was locked."""
        return await take_in_turn(self, locks, wanted)

    async def read(self, wanted: Wanted) -> Rows:
        """Rows as committed now, or as written by this transaction."""
        with self._statement:
            await self._store.give_way("read")
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
        for task in wanted.expenses:
            if told := draft.expenses.get(task):
                rows.expenses[task] = list(told)
        rows.awaited.update(task for task in wanted.awaited if any(True for _ in draft.waiting_for(task)))
        return rows

    async def write(self, changes: Changes) -> None:
        """Write every table once."""
        with self._statement:
            await self._store.give_way("write")
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
        with self._statement:
            await self._store.give_way("lanes")
            services = {**self._base.tables.services, **dict(self.draft.services.made())}
            return list(self._base.lanes.values()), services

    async def pick(
        self, lanes: Sequence[int], count: int, agent: AgentId | None, outside: Sequence[RunId] = ()
    ) -> Sequence[TaskId]:
        """Lock up to `count` claimable tasks of these lanes, best rank first, skipping locked ones.

        As in a database, looking and locking are two moments: someone else may have been quicker in between.
        """
        with self._statement:
            await self._store.give_way("pick")
            if self._rules is not None:
                self._rules.note_pick()
            seen = list(islice(self._claimable(lanes, agent, outside), 2 * count))
            if self._rules is not None and (turn := self._base.turn()) is not None:
                await turn
            free = (task for task in seen if self._try_lock(task))
            return list(islice(free, count))

    def _claimable(self, lanes: Sequence[int], agent: AgentId | None, outside: Sequence[RunId]) -> Iterator[TaskId]:
        ready, bars = self.draft.ready, self.draft.bars
        ranked = self._base.tables.lane_order
        filled = [ranked[lane] for lane in dict.fromkeys(lanes) if ranked.get(lane)]
        order: Iterable[tuple[int, TaskId]] = filled[0] if len(filled) == 1 else merge(*filled)
        if ready.own:
            own = sorted((row.rank, task) for task, row in ready.made() if row.lane in lanes)
            order = merge((entry for entry in order if entry[1] not in ready.own), own)
        for _, task in order:
            if agent is not None and agent in (bars.get(task) or ()):
                continue
            row = self.draft.tasks.get(task) if outside else None
            if row is None or row.run not in outside:
                yield task

    def _try_lock(self, task: TaskId) -> bool:
        return self._base.locks.try_acquire(self.owner, (Kind.TASK, task), exclusive=True)

    async def find_due(self, now: Millis, limit: int) -> Sequence[Due]:
        """Timers that have fallen due, the oldest first."""
        with self._statement:
            await self._store.give_way("find_due")
            timers = self.draft.timers
            order: Iterable[tuple[Millis, str]] = self._base.tables.timer_order
            if timers.own:
                own = sorted((due, owner) for owner, due in timers.made())
                order = merge((entry for entry in order if entry[1] not in timers.own), own)
            due_now = list(takewhile(lambda entry: entry[0] <= now, order))
            due_now.sort(key=lambda entry: (entry[0], entry[1].startswith("r_")))
            found: list[Due] = []
            for _, owner in due_now[:limit]:
                lease = self.draft.leases.get(TaskId(owner))
                found.append(Due(owner, None if lease is None else lease.agent))
            return found

    async def find_spreads(self, limit: int) -> Sequence[str]:
        """Consequences still to be worked off, the oldest first."""
        with self._statement:
            await self._store.give_way("find_spreads")
            spreads = self.draft.spreads
            numbered = [(spreads.below[id_][0], id_) for id_ in spreads.seen(spreads.below)]
            numbered += [(number, id_) for id_, (number, _) in spreads.made()]
            return [id_ for _, id_ in nsmallest(limit, numbered)]

    async def find_waiting(self, target: str, limit: int) -> Sequence[TaskId]:
        """Tasks that wait for this task."""
        with self._statement:
            await self._store.give_way("find_waiting")
            return list(islice(self.draft.waiting_for(target), limit))

    async def find_open(self, run: RunId, limit: int) -> Sequence[TaskId]:
        """Open tasks of a run."""
        with self._statement:
            await self._store.give_way("find_open")
            tasks = self.draft.tasks
            found = list(islice(tasks.seen(self._base.tables.open_by_run.get(run, ())), limit))
            found += [id_ for id_, task in tasks.made() if task.run == run and task.state == OPEN]
            return found[:limit]

    async def runs(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        """Runs as they are committed, or as written by this transaction."""
        with self._statement:
            await self._store.give_way("runs")
            found: dict[RunId, Run] = {}
            self.draft.runs.copy(ids, found)
            return found

    async def find_runs(self, tasks: Sequence[TaskId]) -> dict[TaskId, RunId]:
        """In which runs these tasks are."""
        with self._statement:
            await self._store.give_way("find_runs")
            rows = ((id_, self.draft.tasks.get(id_)) for id_ in tasks)
            return {id_: row.run for id_, row in rows if row is not None and row.run is not None}

    async def find_held(self, run: RunId, after: str, limit: int) -> Sequence[TaskId]:
        """Tasks of a run that somebody holds, by id."""
        with self._statement:
            await self._store.give_way("find_held")
            tasks = self.draft.tasks
            mine = [id_ for id_ in self._base.tables.open_by_run.get(run, ()) if id_ > after]
            mine += [id_ for id_, task in tasks.made() if task.run == run and id_ > after and id_ not in mine]
            return [id_ for id_ in sorted(mine) if self.draft.leases.get(id_) is not None][:limit]

    async def find_questions(self, task: TaskId) -> Sequence[QuestionId]:
        """Open questions about a task."""
        with self._statement:
            await self._store.give_way("find_questions")
            questions = self.draft.questions
            found = list(questions.seen(self._base.tables.open_questions.get(task, ())))
            return found + [id_ for id_, row in questions.made() if row.task == task and row.closed_at is None]

    async def find_claimed(self, command: CommandId) -> Sequence[TaskId]:
        """Tasks whose current lease this claim command made; others who ask for it wait."""
        with self._statement:
            await self._store.give_way("find_claimed")
            if self._rules is not None:
                self._rules.check_claimed(command)
            locks = self._base.locks
            key: Key = ("claim", command)
            if not locks.try_acquire(self.owner, key, exclusive=True):
                await locks.acquire(self.owner, key, exclusive=True)
            leases = self.draft.leases
            found = list(leases.seen(self._base.tables.claimed.get(command, ())))
            return found + [task for task, lease in leases.made() if lease.command == command]

    async def find_target(self, task: TaskId) -> Sequence[str]:
        """A task's role, and who holds it."""
        with self._statement:
            await self._store.give_way("find_target")
            found, lease = self.draft.tasks.get(task), self.draft.leases.get(task)
            return [] if found is None else [found.role, *([] if lease is None else [lease.agent])]

    async def find_asking(self) -> Sequence[str]:
        """Which agents wait for an answer of which; others who ask wait."""
        with self._statement:
            await self._store.give_way("find_asking")
            if self._rules is not None:
                self._rules.check_asking()
            locks = self._base.locks
            key: Key = ("asking", "")
            if not locks.try_acquire(self.owner, key, exclusive=True):
                await locks.acquire(self.owner, key, exclusive=True)
            return self._base.tables.asking()

    async def find_leases(self, after: str, limit: int) -> Sequence[TaskId]:
        """Live leases by task id, for a walk over all of them."""
        with self._statement:
            await self._store.give_way("find_leases")
            leases = self.draft.leases
            order = self._base.tables.lease_order
            committed = leases.seen(islice(order, bisect_right(order, TaskId(after)), None))
            own = sorted(task for task, _ in leases.made() if task > after)
            return list(islice(merge(committed, own), limit))
