"""The committed rows in plain dicts, their indexes, and the draft in which a transaction keeps its own writes.

Rows are frozen, so nothing is ever copied. Which rows count as an open task's account is kept up to date with every
commit: `unaccounted` holds the tasks that would hang silently, and is empty while the engine is right.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Generic, TypeVar, assert_never

from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token, is_request
from allswell.domain.lease.model import Agent, AgentRecord, LeaseRow
from allswell.domain.mesh.request import awaited_requests
from allswell.domain.notify.delivery import Delivery
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.rules.rule import AwaitedRequest
from allswell.domain.run.run import Fanout, Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import OPEN, Attempt, Lane, ReadyTask, State, Task, WaitState
from allswell.store.clock import DISTANCE, SETTLING, ClockMoveWrites, ClockReading, StoreClock, settling_of
from allswell.store.memory.locks import Key, LockTable, Turn, a_turn
from allswell.store.port import Hearer, LockKind, RowChanges, RowConflict
from allswell.timing.clock import Clock

K = TypeVar("K")
V = TypeVar("V")
Sorted = TypeVar("Sorted", tuple[int, TaskId], tuple[Millis, str], TaskId)
Numbered = tuple[int, Fanout]
"""A spread with its place in the order in which they were made."""


class Layer(Generic[K, V]):
    """One table as a transaction sees it: its own writes (None: dropped) before what is committed."""

    __slots__ = ("below", "name", "own")

    def __init__(self, name: str, below: dict[K, V]) -> None:
        self.name = name
        self.below = below
        self.own: dict[K, V | None] = {}

    def get(self, key: K) -> V | None:
        """The row, or None."""
        own = self.own
        return own[key] if own and key in own else self.below.get(key)

    def put(self, key: K, row: V | None) -> None:
        """Write or, with None, drop a row."""
        self.own[key] = row

    def copy(self, keys: Iterable[K], into: dict[K, V]) -> None:
        """Read these rows; those that do not exist are left out."""
        own, below = self.own, self.below
        for key in keys:
            row = own[key] if own and key in own else below.get(key)
            if row is not None:
                into[key] = row

    def made(self) -> Iterator[tuple[K, V]]:
        """What this transaction wrote and did not drop."""
        for key, row in self.own.items():
            if row is not None:
                yield key, row

    def seen(self, keys: Iterable[K]) -> Iterator[K]:
        """Of these committed keys, those that this transaction has not written."""
        return (key for key in keys if key not in self.own) if self.own else iter(keys)


class Tables:
    """Everything that is committed."""

    def __init__(self) -> None:
        self.runs: dict[RunId, Run] = {}
        self.services: dict[str, ServiceRow] = {}
        self.agents: dict[AgentId, Agent] = {}
        self.health: dict[str, AgentRecord] = {}
        self.questions: dict[QuestionId, Question] = {}
        self.tasks: dict[TaskId, Task] = {}
        self.payloads: dict[TaskId, str] = {}
        self.results: dict[TaskId, str] = {}
        self.ready: dict[TaskId, ReadyTask] = {}
        self.timers: dict[str, Millis] = {}
        self.waits: dict[TaskId, tuple[WaitState, ...]] = {}
        self.bars: dict[TaskId, frozenset[AgentId]] = {}
        self.expenses: dict[TaskId, tuple[ExpenseRow, ...]] = {}
        self.leases: dict[TaskId, LeaseRow] = {}
        self.attempts: dict[tuple[TaskId, Token], Attempt] = {}
        self.spreads: dict[str, Numbered] = {}

        self.lane_order: dict[int, list[tuple[int, TaskId]]] = {}
        self.timer_order: list[tuple[Millis, str]] = []
        self.lease_order: list[TaskId] = []
        self.waiting: dict[str, dict[TaskId, None]] = {}
        """Who waits for each target."""
        self.open_tasks: dict[TaskId, None] = {}
        self.open_by_run: dict[RunId, dict[TaskId, None]] = {}
        self.open_questions: dict[TaskId, dict[QuestionId, None]] = {}
        self.claimed: dict[CommandId, dict[TaskId, None]] = {}
        self.attempts_of: dict[TaskId, list[Token]] = {}
        self.unaccounted: dict[TaskId, None] = {}

    def asking(self) -> list[AwaitedRequest]:
        """Which agents wait for an answer of which."""
        requests = (self.tasks[id_] for id_ in self.open_tasks if is_request(id_))
        leases = self.leases
        return awaited_requests(requests, lambda ids: {id_: leases[id_].token for id_ in ids if id_ in leases})

    def apply(self, draft: Draft) -> None:
        """Make a transaction's writes everybody's."""
        self._apply_tasks(draft)
        for task, ready in draft.ready.own.items():
            old = self.ready.get(task)
            if old is not None:
                _unsort(self.lane_order[old.lane], (old.rank, task))
            if ready is not None:
                insort(self.lane_order.setdefault(ready.lane, []), (ready.rank, task))
            _set(self.ready, task, ready)
        for owner, due in draft.timers.own.items():
            was = self.timers.get(owner)
            if was is not None:
                _unsort(self.timer_order, (was, owner))
            if due is not None:
                insort(self.timer_order, (due, owner))
            _set(self.timers, owner, due)
        for task, waits in draft.waits.own.items():
            for wait in self.waits.get(task, ()):
                _leave(self.waiting, wait.target, task)
            for wait in waits or ():
                _join(self.waiting, wait.target, task)
            _set(self.waits, task, waits)
        self._apply_leases(draft)
        _overwrite(self.runs, draft.runs)
        _overwrite(self.services, draft.services)
        _overwrite(self.agents, draft.agents)
        _overwrite(self.health, draft.health)
        _overwrite(self.bars, draft.bars)
        _overwrite(self.expenses, draft.expenses)
        _overwrite(self.payloads, draft.payloads)
        _overwrite(self.results, draft.results)
        _overwrite(self.spreads, draft.spreads)
        for task in self._affected(draft):
            if self.is_accounted(task):
                self.unaccounted.pop(task, None)
            else:
                self.unaccounted[task] = None

    def _apply_tasks(self, draft: Draft) -> None:
        for id_, task in draft.tasks.made():
            self.tasks[id_] = task
            if task.state == OPEN:
                self.open_tasks[id_] = None
            else:
                self.open_tasks.pop(id_, None)
            if task.run is not None:
                (_join if task.state == OPEN else _leave)(self.open_by_run, task.run, id_)
        for asked, question in draft.questions.made():
            self.questions[asked] = question
            if question.task is None:
                continue
            (_join if question.closed_at is None else _leave)(self.open_questions, question.task, asked)

    def _apply_leases(self, draft: Draft) -> None:
        for task, lease in draft.leases.own.items():
            old = self.leases.get(task)
            if old is not None:
                _leave(self.claimed, old.command, task)
            if lease is not None:
                _join(self.claimed, lease.command, task)
            if old is None and lease is not None:
                insort(self.lease_order, task)
            elif old is not None and lease is None:
                _unsort(self.lease_order, task)
            _set(self.leases, task, lease)
        for key, attempt in draft.attempts.made():
            if key not in self.attempts:
                insort(self.attempts_of.setdefault(key[0], []), key[1])
            self.attempts[key] = attempt

    def _affected(self, draft: Draft) -> dict[TaskId, None]:
        """The tasks whose account these writes may have changed."""
        found: dict[TaskId, None] = {}
        for task in (*draft.tasks.own, *draft.ready.own, *draft.waits.own, *draft.leases.own):
            found[task] = None
        for owner in draft.timers.own:
            if owner in self.tasks:
                found[TaskId(owner)] = None
        for target in (*draft.tasks.own, *draft.questions.own, *draft.spreads.own):
            found.update(self.waiting.get(target, {}))
        for spread in draft.spreads.own:
            found.update(self.open_by_run.get(RunId(spread), {}))
        return found

    def is_accounted(self, id_: TaskId) -> bool:
        """Whether this task has ended, or something will happen to it without anyone's further doing."""
        task = self.tasks.get(id_)
        if task is None or task.state != OPEN or id_ in self.ready:
            return True
        if task.run is not None and task.run in self.spreads:
            return True
        if id_ in self.leases:
            return id_ in self.timers
        waits = self.waits.get(id_)
        if not waits:
            return id_ in self.timers
        return any(self._is_alive(wait) for wait in waits)

    def _is_alive(self, wait: WaitState) -> bool:
        if wait.kind == "question":
            question = self.questions.get(QuestionId(wait.target))
            return question is not None and question.closed_at is None
        return wait.target in self.open_tasks or wait.target in self.spreads

    def stands(self, id_: TaskId) -> str:
        """The derived state of a task, for views; one that stands nowhere is shown as delayed."""
        task = self.tasks[id_]
        if task.state != OPEN:
            return task.state
        if id_ in self.leases:
            return State.HELD
        if id_ in self.waits:
            return State.WAITING
        return State.READY if id_ in self.ready else State.DELAYED


class Draft:
    """What one transaction has written, over what is committed at each moment."""

    def __init__(self, tables: Tables) -> None:
        self.tables = tables
        self.runs = Layer("run", tables.runs)
        self.services = Layer("service", tables.services)
        self.agents = Layer("agent", tables.agents)
        self.health = Layer("health", tables.health)
        self.questions = Layer("question", tables.questions)
        self.tasks = Layer("task", tables.tasks)
        self.payloads = Layer("payload", tables.payloads)
        self.results = Layer("result", tables.results)
        self.ready = Layer("ready row", tables.ready)
        self.timers = Layer("timer", tables.timers)
        self.waits = Layer("wait", tables.waits)
        self.bars = Layer("bar", tables.bars)
        self.expenses = Layer("expense", tables.expenses)
        self.leases = Layer("lease", tables.leases)
        self.attempts = Layer("attempt", tables.attempts)
        self.spreads = Layer("spread", tables.spreads)
        self.targets: dict[str, dict[TaskId, None]] = {}
        """For each target, whose own drafted waits may name it."""
        self.dropped: dict[tuple[LockKind, str], None] = {}
        """Lockable rows that were dropped, even if they were made anew afterwards."""

    def exists(self, kind: LockKind, id_: str) -> bool:
        """Whether there is such a row, as this transaction sees it."""
        match kind:
            case LockKind.SPREAD:
                return self.spreads.get(id_) is not None
            case LockKind.RUN:
                return self.runs.get(RunId(id_)) is not None
            case LockKind.SERVICE:
                return self.services.get(id_) is not None
            case LockKind.AGENT:
                return self.agents.get(AgentId(id_)) is not None
            case LockKind.HEALTH:
                return self.health.get(id_) is not None
            case LockKind.QUESTION:
                return self.questions.get(QuestionId(id_)) is not None
            case LockKind.TASK:
                return self.tasks.get(TaskId(id_)) is not None
            case LockKind.LEASE:
                return self.leases.get(TaskId(id_)) is not None
            case _:
                assert_never(kind)

    def put_waits(self, task: TaskId, waits: tuple[WaitState, ...]) -> None:
        """Replace a task's wait rows."""
        self.waits.put(task, waits or None)
        for wait in waits:
            _join(self.targets, wait.target, task)

    def waiting_for(self, target: str) -> Iterator[TaskId]:
        """Who waits for this target, as this transaction sees it; each once."""
        yield from self.waits.seen(self.tables.waiting.get(target, ()))
        for task in self.targets.get(target, ()):
            if any(wait.target == target for wait in self.waits.own.get(task) or ()):
                yield task


def _set(table: dict[K, V], key: K, row: V | None) -> None:
    if row is None:
        table.pop(key, None)
    else:
        table[key] = row


def _overwrite(table: dict[K, V], layer: Layer[K, V]) -> None:
    for key, row in layer.own.items():
        _set(table, key, row)


def _unsort(order: list[Sorted], entry: Sorted) -> None:
    del order[bisect_left(order, entry)]


def _join(index: dict[K, dict[V, None]], key: K, member: V) -> None:
    index.setdefault(key, {})[member] = None


def _leave(index: dict[K, dict[V, None]], key: K, member: V) -> None:
    members = index.get(key)
    if members is not None:
        members.pop(member, None)
        if not members:
            del index[key]


# What all connections of one memory store share: the rows, the locks, the clock, and the journal.
#
# A transaction gets its number (xid) with its first write, and events get theirs when they are written, not when they
# are committed; so events can appear out of order, as they do with a sequence. The journal shows only what is older
# than every transaction that still runs.

OnCommit = Callable[[list[RowChanges]], None]


class LockRequest:
    """A locking statement on its way: what it asks for, and which of those rows were dropped meanwhile.

    A row that was dropped and made anew while the statement waited is another row: it is not the one that was asked
    for, and the statement neither locks nor returns it.
    """

    def __init__(self, kind: LockKind, ids: Sequence[str]) -> None:
        self.wanted: dict[Key, None] = dict.fromkeys((kind, id_) for id_ in ids)
        self.gone: dict[Key, None] = {}


class Database:
    """One place where rows live; it forgets everything when the process ends."""

    def __init__(self, clock: Clock, turn: Turn = a_turn, *, of_server: bool = False) -> None:
        self.turn = turn
        self.tables = Tables()
        self.locks = LockTable()
        self.lanes: dict[tuple[str, tuple[str, ...]], Lane] = {}
        self.cursors: dict[str, Position] = {}
        self.deliveries: dict[tuple[str, tuple[int, int, int]], Delivery] = {}
        """What sinks still have to deliver, by sink and place."""
        self.kept: dict[str, str] = {}
        """What the watch keeps about itself."""
        self.outcomes: dict[str, bool] = {}
        """How the commits ended whose answers were lost."""
        self.hearers: dict[object, Hearer] = {}
        """By the connection that each belongs to."""
        self.on_commit: OnCommit | None = None
        self.numbers = itertools.count(1)
        self.looking: dict[LockRequest, None] = {}
        self._clock = StoreClock(clock, of_server=of_server)
        self._entries: list[Entry] = []
        self._xids = itertools.count(1)
        self._event_ids = itertools.count(1)
        self._spread_numbers = itertools.count(1)
        self._running: dict[int, None] = {}

    def now(self) -> Millis:
        """The clock, for a unit of work."""
        return self._clock.now(0, settling_of(self.kept.get(SETTLING)))

    def see(self) -> tuple[Millis, int]:
        """The clock for a view, and by how much time stands still."""
        return self._clock.see(0, settling_of(self.kept.get(SETTLING)))

    def clocks(self) -> ClockReading:
        """The clocks, whatever they say."""
        return self._clock.read(0, self.kept.get(SETTLING), self.kept.get(DISTANCE))

    def keep(self, moved: ClockMoveWrites) -> None:
        """Keep how far settling has got."""
        before, after = moved.settling
        if self.kept.get(SETTLING) != before:
            raise RowConflict("another connection has gone on settling the clock")
        self.kept[SETTLING] = after
        if moved.distance is not None:
            self.kept[DISTANCE] = moved.distance

    def begin(self) -> int:
        """The number of a transaction that is about to write."""
        xid = next(self._xids)
        self._running[xid] = None
        return xid

    def end(self, xid: int) -> None:
        """The transaction has committed or was rolled back; the journal need not wait for it."""
        self._running.pop(xid, None)

    def next_event_id(self) -> int:
        """From a sequence: drawn at the time of writing, never given back."""
        return next(self._event_ids)

    def next_spread(self) -> int:
        """The place of a new spread in the order of making."""
        return next(self._spread_numbers)

    def apply(self, draft: Draft, entries: Sequence[Entry]) -> None:
        """Commit: everything becomes visible at once."""
        if draft.dropped:
            for looking in self.looking:
                looking.gone.update(dict.fromkeys(key for key in draft.dropped if key in looking.wanted))
        self.tables.apply(draft)
        for entry in entries:
            if self._entries and entry.position < self._entries[-1].position:
                insort(self._entries, entry, key=_position)
            else:
                self._entries.append(entry)

    def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position that no running transaction can still precede."""
        if not self._entries or self._entries[-1].position <= after:
            return []
        horizon = next(iter(self._running), None)
        found: list[Entry] = []
        for place in range(bisect_right(self._entries, after, key=_position), len(self._entries)):
            entry = self._entries[place]
            if len(found) >= limit or (horizon is not None and entry.position.xid >= horizon):
                break
            found.append(entry)
        return found


def _position(entry: Entry) -> Position:
    return entry.position
