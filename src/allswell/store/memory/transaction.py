"""A transaction on the memory store: each method is one statement with a view of its own.

Every statement first gives way to the event loop, so that transactions interleave where a database's would. Between
two statements anything may be committed by others; what a statement returns is what was committed at that moment,
with this transaction's own writes before it. After an error the transaction is spoiled, as on PostgreSQL: nothing
but rolling back is left.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from heapq import merge, nsmallest
from itertools import islice, takewhile
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.rules.rule import AwaitedRequest
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import OPEN, Lane, WaitState
from allswell.errors import Bug
from allswell.store.clock import ClockMoveWrites, ClockReading, DueTimer
from allswell.store.memory.locks import Key, Owner, Row
from allswell.store.memory.tables import Database, Draft, Layer, LockRequest
from allswell.store.port import (
    LOCK_ORDER,
    NOTHING,
    Lock,
    LockKind,
    RowChanges,
    RowConflict,
    RowRequest,
    Rows,
    lock_and_read_in_turn,
)

if TYPE_CHECKING:
    from allswell.store.memory.store import MemoryStore


# Entering changes into a transaction's draft, with the checks that a real table makes.
#
# A new row's key is locked first, as a unique index does it: whoever makes the same row at the same time waits until
# the first has ended, and then either makes it or finds it taken.

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")
P = ParamSpec("P")


def insertions(changes: RowChanges) -> Iterator[tuple[Row, bool]]:
    """The keys that these changes make, each with whether it must be new."""
    for run in changes.new_runs:
        yield (LockKind.RUN, run.id), True
    for service in changes.new_services:
        yield (LockKind.SERVICE, service.id), True
    for agent in changes.new_agents:
        yield (LockKind.AGENT, agent.id), agent.id not in changes.drop_agents
    for agent in changes.agents:
        yield (LockKind.AGENT, agent.id), False
    for dropped in changes.drop_agents:
        yield (LockKind.AGENT, dropped), False
    yield from (((LockKind.HEALTH, name), True) for name, _ in changes.new_health)
    for question in changes.new_questions:
        yield (LockKind.QUESTION, question.id), True
    for task, _ in changes.new_tasks:
        yield (LockKind.TASK, task.id), True
    for made in changes.recorded:
        yield (LockKind.TASK, made.task.id), True
    if changes.new_leases:
        ended = {task for task, _ in changes.drop_leases}
        for lease in changes.new_leases:
            yield (LockKind.LEASE, lease.task), lease.task not in ended
    for spread in changes.new_spreads:
        yield (LockKind.SPREAD, spread.id), spread.id not in changes.drop_spreads


def enter(changes: RowChanges, draft: Draft, base: Database, xid: int) -> list[Entry]:
    """Write into the draft; the journal's new entries are returned."""
    _enter_around(changes, draft, base)
    _enter_tasks(changes, draft)
    _enter_leases(changes, draft)
    _enter_places(changes, draft)
    _enter_waits(changes, draft)
    _enter_expenses(changes, draft)
    return [Entry(Position(xid, base.next_event_id()), changes.at, event) for event in changes.events]


def _enter_around(changes: RowChanges, draft: Draft, base: Database) -> None:
    for run in changes.new_runs:
        _insert(draft.runs, run.id, run)
    for run in changes.runs:
        _update(draft.runs, run.id, run)
    for service in changes.new_services:
        _insert(draft.services, service.id, service)
    for service in changes.services:
        _update(draft.services, service.id, service)
    for id_ in changes.drop_agents:
        _drop(draft, draft.agents, LockKind.AGENT, id_)
    for agent in changes.new_agents:
        _insert(draft.agents, agent.id, agent)
    for agent in changes.agents:
        draft.agents.put(agent.id, agent)
    for name, record in changes.new_health:
        _insert(draft.health, name, record)
    for name, record in changes.health:
        _update(draft.health, name, record)
    for dropped in changes.drop_spreads:
        _drop(draft, draft.spreads, LockKind.SPREAD, dropped)
    for spread in changes.new_spreads:
        _insert(draft.spreads, spread.id, (base.next_spread(), spread))


def _enter_tasks(changes: RowChanges, draft: Draft) -> None:
    for question in changes.new_questions:
        _insert(draft.questions, question.id, question)
    for question in changes.questions:
        _update(draft.questions, question.id, question)
    for task, payload in changes.new_tasks:
        _insert(draft.tasks, task.id, task)
        draft.payloads.put(task.id, payload)
    for made in changes.recorded:
        _insert(draft.tasks, made.task.id, made.task)
        draft.payloads.put(made.task.id, made.payload)
        draft.results.put(made.task.id, made.result)
        _insert(draft.attempts, (made.task.id, made.attempt.token), made.attempt)
    for task in changes.moved.tasks if changes.moved is not None else ():
        _update(draft.tasks, task.id, task)
    for task, result in changes.tasks:
        _update(draft.tasks, task.id, task)
        if result is not None:
            draft.results.put(task.id, result)


def _enter_leases(changes: RowChanges, draft: Draft) -> None:
    for held, token in changes.drop_leases:
        _fence(draft, held, token)
        _drop(draft, draft.leases, LockKind.LEASE, held)
    moved = [] if changes.moved is None else changes.moved.leases
    for lease in (*changes.leases, *moved):
        _fence(draft, lease.task, lease.token)
        draft.leases.put(lease.task, lease)
    for lease in changes.new_leases:
        _insert(draft.leases, lease.task, lease)
    for attempt in changes.new_attempts:
        _insert(draft.attempts, (attempt.task, attempt.token), attempt)
    for attempt in changes.late_attempts:
        key = (attempt.task, attempt.token)
        known = draft.attempts.get(key)
        if known is None:
            raise Bug(f"attempt {key} does not exist, so nothing can be late on it")
        draft.attempts.put(key, replace(known, late=attempt.late, afterwards=attempt.afterwards))


def _enter_places(changes: RowChanges, draft: Draft) -> None:
    for dropped in changes.drop_ready:
        if draft.ready.get(dropped.task) != dropped:
            raise Bug(f"task {dropped.task} is not ready at that rank, so it cannot be taken from the pool")
        draft.ready.put(dropped.task, None)
    for ready in changes.new_ready:
        _insert(draft.ready, ready.task, ready)
    for owner in changes.drop_timers:
        draft.timers.put(owner, None)
    for owner, due in changes.timers:
        draft.timers.put(owner, due)
    for bar in changes.drop_bars:
        draft.bars.put(bar.task, (draft.bars.get(bar.task) or frozenset()) - {bar.agent})
    for bar in changes.new_bars:
        barred = draft.bars.get(bar.task) or frozenset()
        if bar.agent in barred:
            raise Bug(f"agent {bar.agent} is barred from task {bar.task} already")
        draft.bars.put(bar.task, barred | {bar.agent})


def _enter_expenses(changes: RowChanges, draft: Draft) -> None:
    for row in changes.expenses:
        others = [one for one in draft.expenses.get(row.task) or () if one.token != row.token]
        draft.expenses.put(row.task, tuple(sorted([*others, row], key=lambda one: one.token)))


def _enter_waits(changes: RowChanges, draft: Draft) -> None:
    changed: dict[TaskId, dict[WaitState, None]] = {}
    for wait in (*changes.drop_waits, *changes.new_waits):
        if wait.task not in changed:
            changed[wait.task] = dict.fromkeys(draft.waits.get(wait.task) or ())
    for wait in changes.drop_waits:
        changed[wait.task].pop(wait, None)
    for wait in changes.new_waits:
        if wait in changed[wait.task]:
            raise Bug(f"task {wait.task} waits for {wait.target} already")
        changed[wait.task][wait] = None
    for task, waits in changed.items():
        draft.put_waits(task, tuple(sorted(waits)))


def _insert(layer: Layer[K, V], key: K, row: V) -> None:
    """Make a row whose absence is certain: its key is locked, and whoever was quicker has been found."""
    if layer.get(key) is not None:
        raise Bug(f"{layer.name} {key} exists already")
    layer.put(key, row)


def _update(layer: Layer[K, V], key: K, row: V) -> None:
    if layer.get(key) is None:
        raise Bug(f"{layer.name} {key} does not exist, so it cannot be changed")
    layer.put(key, row)


def _drop(draft: Draft, layer: Layer[K, V], kind: LockKind, key: K) -> None:
    layer.put(key, None)
    draft.dropped[(kind, str(key))] = None


def _fence(draft: Draft, task: TaskId, token: int) -> None:
    current = draft.leases.get(task)
    if current is None or current.token != token:
        stands = "nobody holds it" if current is None else f"its token is {current.token}"
        raise Bug(f"a write with token {token} on task {task}: {stands}")


# The protocol of `store/port.py`, held against a transaction: whoever breaks it gets a `Bug` that says how.
#
# A real database would let most of this pass, and the harm would show much later: a decision on a stale row, a deadlock
# once in a thousand batches, a task that nobody wakes. Here it shows at once, so the simulator finds it.

# Under names of their own: every look-up of a member in an enum's class costs as much as a call.
_SPREAD, _RUN, _SERVICE, _AGENT, _HEALTH, _QUESTION, _TASK, _LEASE = LOCK_ORDER


class Rules:
    """What one transaction has done so far, as far as it decides what it may do next."""

    def __init__(self, owner: Owner, draft: Draft) -> None:
        self._held = owner.held
        self._draft = draft
        self._asked: dict[Key, bool] = {}
        """Every id that was to be locked, with whether exclusively: what does not exist cannot be held."""
        self._last: LockKind | None = None
        self._claimed = ""
        self._picked = False
        self._now_is_stale = False
        self._now_was_read = False

    def check_lock(self, kind: LockKind, ids: Sequence[str], *, exclusive: bool, skip: bool) -> None:
        """One call per kind, in the order, and none after a pick."""
        if self._picked:
            raise Bug(f"lock({kind}) after pick: nothing may wait after it")
        last = self._last
        if last is not None and LOCK_ORDER.index(kind) <= LOCK_ORDER.index(last):
            again = "a second time" if kind is last else f"after {last}"
            raise Bug(f"lock({kind}) {again}: the order of locks is {', '.join(LOCK_ORDER)}, each once")
        self._last = kind
        self._now_is_stale = self._now_was_read
        if not skip:
            self._asked.update(dict.fromkeys(((kind, id_) for id_ in ids), exclusive))

    def check_claimed(self, command: str) -> None:
        """Claims are looked up before anything is locked, in their order: their names are locks too."""
        if self._last is not None or self._picked or command < self._claimed:
            raise Bug(f"find_claimed({command}) after a lock, or out of order: two of them could wait in a circle")
        self._claimed = command

    def check_asking(self) -> None:
        """Who asks whom is looked up before anything is locked, and before all claims: it is a lock too."""
        if self._last is not None or self._picked or self._claimed:
            raise Bug("find_asking after a lock or a claim: two of them could wait in a circle")

    def note_now(self) -> None:
        """The clock was read."""
        self._now_was_read = True
        self._now_is_stale = False

    def note_pick(self) -> None:
        """Claimable tasks were picked."""
        self._picked = True

    def check_read(self, wanted: RowRequest) -> None:
        """What is read was locked before."""
        draft, held = self._draft, self._held
        for kind, ids in (
            (_SPREAD, wanted.spreads),
            (_RUN, wanted.runs),
            (_SERVICE, wanted.services),
            (_AGENT, wanted.agents),
            (_HEALTH, wanted.health),
            (_TASK, wanted.tasks),
            (_TASK, wanted.awaited),
            (_TASK, wanted.payloads),
            (_TASK, wanted.bars),
            (_TASK, wanted.expenses),
            (_TASK, [task for task, _ in wanted.attempts]),
        ):
            for id_ in ids:
                if (kind, id_) not in held:
                    self._must_be_locked(kind, id_, exists=draft.exists(kind, id_))
        for question in wanted.questions:
            row = draft.questions.get(question)
            if row is None or _cover(row) not in self._held:
                self._must_be_locked(_QUESTION, question, exists=row is not None)
        for task in wanted.leases:
            exists = draft.leases.get(task) is not None
            if exists or (_TASK, task) not in self._held:
                self._must_be_locked(_LEASE, task, exists=exists)

    def _must_be_locked(self, kind: LockKind, id_: str, *, exists: bool) -> None:
        if (kind, id_) in self._held or (not exists and (kind, id_) in self._asked):
            return
        why = "is not locked"
        if (kind, id_) in self._asked:
            why = "was not among those that lock returned"
        raise Bug(f"a transaction reads {kind} {id_}, which {why}")

    def check_put(self, changes: RowChanges) -> None:
        """What is made or replaced was to be locked, so that whoever has it is waited for in the order of locks."""
        for kind, ids in (
            (_SERVICE, [service.id for service in changes.new_services]),
            (_AGENT, [agent.id for agent in (*changes.new_agents, *changes.agents)]),
            (_AGENT, changes.drop_agents),
            (_HEALTH, [name for name, _ in changes.new_health]),
        ):
            for id_ in ids:
                if not self._asked.get((kind, id_), False):
                    self._must_be_alone((kind, id_))

    def check_write(self, changes: RowChanges) -> None:
        """What is written is held alone; new rows are held by their making."""
        moved = changes.moved or ClockMoveWrites((None, ""))
        if self._now_is_stale:
            raise Bug("write after a lock that came after now: the time of the decision is stale")
        for kind, ids in (
            (_RUN, [run.id for run in changes.runs]),
            (_SERVICE, [service.id for service in changes.services]),
            (_HEALTH, [name for name, _ in changes.health]),
            (_TASK, [task.id for task in (*moved.tasks, *(task for task, _ in changes.tasks))]),
            (_LEASE, [lease.task for lease in (*moved.leases, *changes.leases)]),
            (_LEASE, [task for task, _ in changes.drop_leases]),
            (_SPREAD, changes.drop_spreads),
        ):
            for id_ in ids:
                self._must_be_alone((kind, id_))
        for question in changes.questions:
            if not self._is_alone(_cover(question)):
                self._must_be_alone((_QUESTION, question.id))
        for question in changes.new_questions:
            self._must_be_alone(_cover(question))
        for task in _covered(changes):
            self._must_be_alone((_TASK, task))
        for owner in (*(owner for owner, _ in changes.timers), *changes.drop_timers):
            if not self._is_alone((_RUN, owner)):
                self._must_be_alone((_TASK, owner))
        for wait in changes.new_waits:
            kind = _QUESTION if wait.kind == "question" else _TASK
            if (kind, wait.target) not in self._held:
                raise Bug(f"task {wait.task} would wait for {wait.target}, which is not locked")

    def _is_alone(self, key: Key) -> bool:
        return self._held.get(key, False)

    def _must_be_alone(self, key: Key) -> None:
        if not self._is_alone(key):
            how = "held only as shared" if key in self._held else "not locked"
            raise Bug(f"a transaction writes {key[0]} {key[1]}, which is {how}")


def _cover(question: Question) -> Key:
    """The lock that covers a question: that of what it is about."""
    if question.message is not None:
        return (_QUESTION, str(question.id))
    service = question.service
    return (_TASK, str(question.task)) if service is None else (_SERVICE, service)


def _covered(changes: RowChanges) -> Iterable[str]:
    """The tasks whose own lock covers what is written."""
    yield from (ready.task for ready in changes.new_ready)
    yield from (ready.task for ready in changes.drop_ready)
    yield from (wait.task for wait in changes.new_waits)
    yield from (wait.task for wait in changes.drop_waits)
    yield from (bar.task for bar in (*changes.new_bars, *changes.drop_bars))
    yield from (row.task for row in changes.expenses)
    yield from (lease.task for lease in changes.new_leases)
    yield from (task for task, _ in changes.drop_leases)
    yield from (attempt.task for attempt in changes.new_attempts)
    yield from (attempt.task for attempt in changes.late_attempts)


_MADE_UNSEEN = (LockKind.RUN, LockKind.SERVICE, LockKind.TASK, LockKind.AGENT, LockKind.HEALTH)
"""What no lock can stand for before it is made, so that another transaction may be quicker."""


def _statement(
    method: Callable[Concatenate[MemoryTransaction, P], Coroutine[Any, Any, T]],
) -> Callable[Concatenate[MemoryTransaction, P], Coroutine[Any, Any, T]]:
    """A statement of a transaction: others get their turn first; it says that one is at work, and that it failed."""

    async def statement(self: MemoryTransaction, /, *args: P.args, **kwargs: P.kwargs) -> T:
        if self.spoiled is not None:
            raise self.spoiled
        self.inside = True
        try:
            await self.store.give_way(method.__name__)
            return await method(self, *args, **kwargs)
        except BaseException as error:
            self.spoiled = error
            raise
        finally:
            self.inside = False

    return statement


class MemoryTransaction:
    """One unit of work on the memory store."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._base = store.database
        self.number = next(self._base.numbers)
        self.draft = Draft(self._base.tables)
        self.owner = Owner(f"transaction {self.number}")
        self.entries: list[Entry] = []
        self.written: list[RowChanges] = []
        self.xid: int | None = None
        self.inside = False
        """Whether one of the methods below is at work."""
        self.spoiled: BaseException | None = None
        self.call = NOTHING
        self._rules = Rules(self.owner, self.draft) if store.strict else None

    @_statement
    async def lock(
        self, kind: LockKind, ids: Sequence[str], *, skip: bool = False, shared: bool = False
    ) -> Sequence[str]:
        """Lock rows (sorted by id) and return the ids that exist; with `skip`, only those free at once."""
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

    async def _wait_for(self, kind: LockKind, ids: Sequence[str], *, exclusive: bool) -> list[str]:
        """Lock rows of which the first is another's; those that are dropped meanwhile are left out."""
        locks = self._base.locks
        looking = LockRequest(kind, ids)
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

    @_statement
    async def now(self) -> Millis:
        """The store's clock, read now; never less than it was before."""
        if self._rules is not None:
            self._rules.note_now()
        return self._base.now()

    @_statement
    async def clocks(self) -> ClockReading:
        """The clocks, whatever they say."""
        if self._rules is not None:
            self._rules.note_now()
        return self._base.clocks()

    @_statement
    async def find_timers(self, after: str, limit: int) -> Sequence[DueTimer]:
        """All timers by owner, for a walk over them."""
        owners = nsmallest(limit, (owner for owner in self._base.tables.timers if owner > after))
        held = {owner: self.draft.leases.get(TaskId(owner)) for owner in owners}
        return [DueTimer(owner, None if lease is None else lease.agent) for owner, lease in held.items()]

    async def lock_and_read(self, locks: Sequence[Lock], wanted: RowRequest) -> tuple[Millis, Rows]:
        """Lock, read the clock, and read what was locked."""
        return await lock_and_read_in_turn(self, locks, wanted)

    @_statement
    async def read(self, wanted: RowRequest) -> Rows:
        """Rows as committed now, or as written by this transaction."""
        if self._rules is not None:
            self._rules.check_read(wanted)
        return self._read(wanted)

    def _read(self, wanted: RowRequest) -> Rows:
        draft = self.draft
        rows = Rows()
        for spread in wanted.spreads:
            if (numbered := draft.spreads.get(spread)) is not None:
                rows.spreads[spread] = numbered[1]
        draft.runs.copy(wanted.runs, rows.runs)
        draft.services.copy(wanted.services, rows.services)
        draft.agents.copy(wanted.agents, rows.agents)
        draft.health.copy(wanted.health, rows.health)
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

    @_statement
    async def write(self, changes: RowChanges) -> None:
        """Write every table once."""
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
                raise RowConflict(f"{key[0]} {key[1]} exists already: another transaction made it first")
        if self._rules is not None:
            self._rules.check_write(changes)
        self.entries += enter(changes, self.draft, self._base, self.xid)
        self.written.append(changes)

    @_statement
    async def lanes(self) -> tuple[Sequence[Lane], dict[str, ServiceRow]]:
        """All lanes, and the services that something is or was held against."""
        services = {**self._base.tables.services, **dict(self.draft.services.made())}
        return list(self._base.lanes.values()), services

    @_statement
    async def pick(
        self, lanes: Sequence[int], count: int, agent: AgentId | None, outside: Sequence[RunId] = ()
    ) -> Sequence[TaskId]:
        """Lock up to `count` claimable tasks of these lanes, best rank first, skipping locked ones.

        As in a database, looking and locking are two moments: someone else may have been quicker in between.
        """
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
        return self._base.locks.try_acquire(self.owner, (LockKind.TASK, task), exclusive=True)

    @_statement
    async def find_due(self, now: Millis, limit: int) -> Sequence[DueTimer]:
        """Timers that have fallen due, the oldest first."""
        timers = self.draft.timers
        order: Iterable[tuple[Millis, str]] = self._base.tables.timer_order
        if timers.own:
            own = sorted((due, owner) for owner, due in timers.made())
            order = merge((entry for entry in order if entry[1] not in timers.own), own)
        due_now = list(takewhile(lambda entry: entry[0] <= now, order))
        due_now.sort(key=lambda entry: (entry[0], entry[1].startswith("r_")))
        found: list[DueTimer] = []
        for _, owner in due_now[:limit]:
            lease = self.draft.leases.get(TaskId(owner))
            found.append(DueTimer(owner, None if lease is None else lease.agent))
        return found

    @_statement
    async def find_spreads(self, limit: int) -> Sequence[str]:
        """Consequences still to be worked off, the oldest first."""
        spreads = self.draft.spreads
        numbered = [(spreads.below[id_][0], id_) for id_ in spreads.seen(spreads.below)]
        numbered += [(number, id_) for id_, (number, _) in spreads.made()]
        return [id_ for _, id_ in nsmallest(limit, numbered)]

    @_statement
    async def find_waiting(self, target: str, limit: int) -> Sequence[TaskId]:
        """Tasks that wait for this task."""
        return list(islice(self.draft.waiting_for(target), limit))

    @_statement
    async def find_open(self, run: RunId, limit: int) -> Sequence[TaskId]:
        """Open tasks of a run."""
        tasks = self.draft.tasks
        found = list(islice(tasks.seen(self._base.tables.open_by_run.get(run, ())), limit))
        found += [id_ for id_, task in tasks.made() if task.run == run and task.state == OPEN]
        return found[:limit]

    @_statement
    async def runs(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        """Runs as they are committed, or as written by this transaction."""
        found: dict[RunId, Run] = {}
        self.draft.runs.copy(ids, found)
        return found

    @_statement
    async def find_runs(self, tasks: Sequence[TaskId]) -> dict[TaskId, RunId]:
        """In which runs these tasks are."""
        rows = ((id_, self.draft.tasks.get(id_)) for id_ in tasks)
        return {id_: row.run for id_, row in rows if row is not None and row.run is not None}

    @_statement
    async def find_held(self, run: RunId, after: str, limit: int) -> Sequence[TaskId]:
        """Tasks of a run that somebody holds, by id."""
        tasks = self.draft.tasks
        mine = [id_ for id_ in self._base.tables.open_by_run.get(run, ()) if id_ > after]
        mine += [id_ for id_, task in tasks.made() if task.run == run and id_ > after and id_ not in mine]
        return [id_ for id_ in sorted(mine) if self.draft.leases.get(id_) is not None][:limit]

    @_statement
    async def find_questions(self, task: TaskId) -> Sequence[QuestionId]:
        """Open questions about a task."""
        questions = self.draft.questions
        found = list(questions.seen(self._base.tables.open_questions.get(task, ())))
        return found + [id_ for id_, row in questions.made() if row.task == task and row.closed_at is None]

    @_statement
    async def find_claimed(self, command: CommandId) -> Sequence[TaskId]:
        """Tasks whose current lease this claim command made; others who ask for it wait."""
        if self._rules is not None:
            self._rules.check_claimed(command)
        locks = self._base.locks
        key: Key = ("claim", command)
        if not locks.try_acquire(self.owner, key, exclusive=True):
            await locks.acquire(self.owner, key, exclusive=True)
        leases = self.draft.leases
        found = list(leases.seen(self._base.tables.claimed.get(command, ())))
        return found + [task for task, lease in leases.made() if lease.command == command]

    @_statement
    async def find_target(self, task: TaskId) -> Sequence[str]:
        """A task's role, and who holds it."""
        found, lease = self.draft.tasks.get(task), self.draft.leases.get(task)
        return [] if found is None else [found.role, *([] if lease is None else [lease.agent])]

    @_statement
    async def find_asking(self) -> Sequence[AwaitedRequest]:
        """Which agents wait for an answer of which; others who ask wait."""
        if self._rules is not None:
            self._rules.check_asking()
        locks = self._base.locks
        key: Key = ("asking", "")
        if not locks.try_acquire(self.owner, key, exclusive=True):
            await locks.acquire(self.owner, key, exclusive=True)
        return self._base.tables.asking()

    @_statement
    async def find_leases(self, after: str, limit: int) -> Sequence[TaskId]:
        """Live leases by task id, for a walk over all of them."""
        leases = self.draft.leases
        order = self._base.tables.lease_order
        committed = leases.seen(islice(order, bisect_right(order, TaskId(after)), None))
        own = sorted(task for task, _ in leases.made() if task > after)
        return list(islice(merge(committed, own), limit))
