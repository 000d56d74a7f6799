"""The port that every store implements: a transaction of awaits.

A store loads and locks rows and writes rows back. It decides nothing: no rule is written a second time in SQL.
Each call of a `Transaction` is one statement (or one round trip of several) with its own view of what was committed,
so the races of a real database can happen in the memory store too, and the simulator can find them.

The protocol, which the memory store enforces with `Bug` (each rule answers a failure that was seen):

1.  Lock first, read later. What a decision reads is locked by `lock` and read by a later call, never joined into the
    locking statement: after a wait for a lock, a join returns the old row of the other table.
2.  Locks are taken in the order of `LOCK_ORDER`, at most one `lock` call per kind, the ids sorted. `pick` comes last
    and never waits; after it only what it returned may be read and written.
3.  `now` is read after the locks: a clock read before a wait for a lock is stale by that wait.
4.  A row is written only under its lock. A task's lock covers its `ready`, timer, `wait` and `bar` rows, its attempts
    and its questions, a service's lock the questions about it; a lease also has a lock of its own, so that check-ins
    need not touch the task. A wait row is written under the lock of the task it belongs to and appears only under the
    lock of the one it targets (so that whether a task is awaited is exact under its lock). New rows need no lock.
5.  `find_*` look without locks, and what they return is a hint: it is locked and read again before it is used.
6.  Whether a commit whose answer was lost took place is asked of the store, never guessed.

`transact` runs one unit of work and commits it. The work must await nothing but the transaction's own methods: a
store may run it in a thread of its own, where there is no event loop (SQLite does).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping, Sequence
from enum import StrEnum
from typing import Any, Protocol, TypeVar, runtime_checkable

import msgspec

from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.model import Agent, AgentRecord, LeaseRow
from allswell.domain.question import Question
from allswell.domain.rules.event import Event, Position
from allswell.domain.rules.rule import AwaitedRequest
from allswell.domain.run.run import Fanout, Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.aggregate import TaskAggregate
from allswell.domain.task.model import Attempt, Exclusion, FinishedTask, Lane, ReadyTask, Task, WaitState
from allswell.errors import AllswellError, Bug
from allswell.store.clock import ClockMoveWrites, DueTimer
from allswell.store.views import Outbox, RunHints

# Wake-up calls between processes on one store: what they say, and what they promise (nothing but speed).
#
# A call says "it is worth looking now". It carries no facts: who hears one looks at the store, and finds there whatever
# is true. So a call may be lost, come twice, late, out of order, or about something that another process has handled
# meanwhile, and no work is ever lost with it: every waiting process also looks again by itself (`engine/timings.py`).
# That polling is the truth; calls only make it quick.
#
# What follows from that for a store (`Calls`, a part of its port):
#
# - Sending is off the write path. A call is sent after the commit it is about, by a thread of its own or, where none
#   was sent for a while, right behind the commit (docs/adr/0028). On PostgreSQL a transaction that notifies locks the
#   whole cluster while it commits; a deciding transaction never notifies.
# - Sending never waits and never fails. Calls that pile up are merged into one; a receiver that is slow, gone or full
#   is skipped.
# - A process gets no call about what it did itself.
# - A receiver that may have missed something (it has just begun to listen, or was cut off) is called once, with
#   `LOOK_AGAIN`.
# - A store that has no way to reach other processes does nothing at all.


class Wakeup(msgspec.Struct, frozen=True, array_like=True):
    """What others may want to look at now."""

    ready: bool = False
    """A task can be claimed that could not before."""
    journal: bool = False
    """The journal has grown."""
    spreads: bool = False
    """A consequence waits for a sweeper."""
    due: int | None = None
    """A timer was set for this moment, earlier perhaps than a sweeper knows of."""

    def __bool__(self) -> bool:
        return self != NOTHING

    @property
    def urgent(self) -> bool:
        """Whether work waits for it; a process that only reads along can be woken a little later."""
        return self.ready or self.spreads or self.due is not None

    def merged(self, other: Wakeup) -> Wakeup:
        """Both in one."""
        if self is NOTHING or other is NOTHING:  # nearly always
            return other if self is NOTHING else self
        moments = [due for due in (self.due, other.due) if due is not None]
        return Wakeup(
            self.ready or other.ready,
            self.journal or other.journal,
            self.spreads or other.spreads,
            min(moments, default=None),
        )


NOTHING = Wakeup()
LOOK_AGAIN = Wakeup(ready=True, journal=True, spreads=True)
"""Something may have been missed."""

Hearer = Callable[[Wakeup], None]


class Calls(Protocol):
    """The part of a store by which processes wake each other."""

    def announce(self, call: Wakeup) -> None:
        """Tell other processes that it is worth looking; never waits or fails, and may be lost."""
        ...

    def hear(self, hearer: Hearer) -> None:
        """Call `hearer` in the running loop with what other processes tell, until the store is closed."""
        ...


class WakeupSender(Protocol):
    """The part of a unit of work that wakes others."""

    call: Wakeup
    """The wake-up calls that go out when this is committed: as by `Calls.announce`, only sooner."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Wakeup).decode


def encode(call: Wakeup) -> bytes:
    """A call as it travels; far below the 8,000 bytes of a PostgreSQL notification."""
    return _encode(call)


def decode(data: bytes) -> Wakeup:
    """A call as it arrived; what cannot be read, from a newer version or a stranger, is a reason to look too."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return LOOK_AGAIN


# What the watch keeps about itself, beside all work: words under keys, seen by every process on one store.
#
# Few and small: how far the clocks are apart, which supervisor has which name. They can be listed by the views.


class KeyValue(Protocol):
    """The part of a store that keeps words about the watch itself; `Views.get` reads them."""

    async def put(self, key: str, value: str) -> None:
        """Keep something under a key, whatever was there."""
        ...

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more."""
        ...


T = TypeVar("T")


class LockKind(StrEnum):
    """What can be locked, in the order in which it is."""

    SPREAD = "spread"
    RUN = "run"
    SERVICE = "service"
    AGENT = "agent"
    HEALTH = "health"
    QUESTION = "question"
    TASK = "task"
    LEASE = "lease"


LOCK_ORDER: tuple[LockKind, ...] = tuple(LockKind)


class Lock(msgspec.Struct, frozen=True):
    """Rows of one kind to lock, sorted by id."""

    kind: LockKind
    ids: Sequence[str]
    shared: bool = False
    skip: bool = False  # only those free at once; of tasks, and then their leases follow them
    fresh: bool = False
    """These ids are new: rows have them only if this unit of work was committed before and is now repeated.

    A unit with such a lock locks nothing else. A remote store need not look for the rows, and may use the last clock
    reading that it has; a repetition then fails with `RowConflict`. If the answer to such a commit is lost, the store
    may raise `Unavailable`: the caller repeats the unit, and so learns whether the first one was committed."""


class RowRequest(msgspec.Struct):
    """What to read, all of it locked before. Ids that do not exist are simply missing from the answer."""

    spreads: Sequence[str] = ()
    runs: Sequence[RunId] = ()
    services: Sequence[str] = ()
    agents: Sequence[AgentId] = ()
    questions: Sequence[QuestionId] = ()
    tasks: Sequence[TaskId] = ()  # with their ready, timer and wait rows
    leases: Sequence[TaskId] = ()
    attempts: Sequence[tuple[TaskId, Token]] = ()  # that have ended (their task is locked)
    awaited: Sequence[TaskId] = ()  # which of these have other tasks waiting for them (they are locked)
    payloads: Sequence[TaskId] = ()
    bars: Sequence[TaskId] = ()
    expenses: Sequence[TaskId] = ()  # what the attempts at these have cost
    health: Sequence[str] = ()  # agents, by their names in the settings
    whole: bool = False  # a store that has all rows of a task in memory may give them in `cases` instead


class Rows(msgspec.Struct):
    """What was read."""

    spreads: dict[str, Fanout] = msgspec.field(default_factory=dict)
    runs: dict[RunId, Run] = msgspec.field(default_factory=dict)
    services: dict[str, ServiceRow] = msgspec.field(default_factory=dict)
    agents: dict[AgentId, Agent] = msgspec.field(default_factory=dict)
    health: dict[str, AgentRecord] = msgspec.field(default_factory=dict)
    questions: dict[QuestionId, Question] = msgspec.field(default_factory=dict)
    tasks: dict[TaskId, Task] = msgspec.field(default_factory=dict)
    ready: dict[TaskId, ReadyTask] = msgspec.field(default_factory=dict)
    timers: dict[str, Millis] = msgspec.field(default_factory=dict)
    waits: dict[TaskId, list[WaitState]] = msgspec.field(default_factory=dict)  # sorted by kind and target
    leases: dict[TaskId, LeaseRow] = msgspec.field(default_factory=dict)
    attempts: dict[tuple[TaskId, Token], Attempt] = msgspec.field(default_factory=dict)
    awaited: set[TaskId] = msgspec.field(default_factory=set)
    payloads: dict[TaskId, str] = msgspec.field(default_factory=dict)
    bars: dict[TaskId, set[AgentId]] = msgspec.field(default_factory=dict)
    expenses: dict[TaskId, list[ExpenseRow]] = msgspec.field(default_factory=dict)  # by token
    cases: dict[TaskId, TaskAggregate] = msgspec.field(
        default_factory=dict
    )  # then their rows are in none of the others


class RowChanges(msgspec.Struct):
    """What to write; each list is one multi-row statement.

    `new_*` rows must not exist (`RowConflict` if another transaction made them first), the others must.
    """

    new_runs: list[Run] = msgspec.field(default_factory=list)
    runs: list[Run] = msgspec.field(default_factory=list)
    new_services: list[ServiceRow] = msgspec.field(default_factory=list)
    services: list[ServiceRow] = msgspec.field(default_factory=list)
    new_agents: list[Agent] = msgspec.field(default_factory=list)
    """Of agents that had no record: two processes that count an agent's first missed request must not both write 1."""
    agents: list[Agent] = msgspec.field(default_factory=list)  # put
    drop_agents: list[AgentId] = msgspec.field(default_factory=list)
    new_health: list[tuple[str, AgentRecord]] = msgspec.field(default_factory=list)
    health: list[tuple[str, AgentRecord]] = msgspec.field(default_factory=list)
    new_questions: list[Question] = msgspec.field(default_factory=list)
    questions: list[Question] = msgspec.field(default_factory=list)
    new_tasks: list[tuple[Task, str]] = msgspec.field(default_factory=list)  # with the payload, JSON text
    recorded: list[FinishedTask] = msgspec.field(default_factory=list)  # finished as they are made
    tasks: list[tuple[Task, str | None]] = msgspec.field(default_factory=list)  # state, end, record; result if set
    new_ready: list[ReadyTask] = msgspec.field(default_factory=list)
    """Lane and rank are the task's own, so that a store can find the row from the task."""
    drop_ready: list[ReadyTask] = msgspec.field(default_factory=list)
    timers: list[tuple[str, Millis]] = msgspec.field(default_factory=list)  # put; of a task or a run
    drop_timers: list[str] = msgspec.field(default_factory=list)
    new_waits: list[WaitState] = msgspec.field(default_factory=list)
    drop_waits: list[WaitState] = msgspec.field(default_factory=list)
    new_bars: list[Exclusion] = msgspec.field(default_factory=list)
    drop_bars: list[Exclusion] = msgspec.field(default_factory=list)
    new_leases: list[LeaseRow] = msgspec.field(default_factory=list)
    leases: list[LeaseRow] = msgspec.field(default_factory=list)
    """Where task and token still match, else it is a `Bug`; `deadline` can change, and all from `judged` on."""
    drop_leases: list[tuple[TaskId, Token]] = msgspec.field(default_factory=list)
    new_attempts: list[Attempt] = msgspec.field(default_factory=list)
    late_attempts: list[Attempt] = msgspec.field(default_factory=list)  # only `late` and `afterwards` change
    expenses: list[ExpenseRow] = msgspec.field(default_factory=list)  # put; their tasks are locked
    new_spreads: list[Fanout] = msgspec.field(default_factory=list)
    drop_spreads: list[str] = msgspec.field(default_factory=list)
    events: list[Event] = msgspec.field(default_factory=list)
    at: Millis = Millis(0)  # the `now` of the decisions, stamped on the events
    cases: dict[TaskId, TaskAggregate] = msgspec.field(default_factory=dict)
    """Every task that was touched, as it is after these changes; a store may keep them in memory to save a read."""
    moved: ClockMoveWrites | None = None  # on a store that goes by this machine's clock

    def kept_with_task(self) -> dict[TaskId, Attempt]:
        """First attempts that end as their task's row is written anyway: a store may keep them there (ADR 10)."""
        if not self.new_attempts:
            return {}
        written = {task.id for task, _ in self.tasks}
        return {
            ended.task: ended
            for ended in self.new_attempts
            if ended.token == 1 and ended.late is None and ended.afterwards is None and ended.task in written
        }


class CommitUnknown(AllswellError):
    """The connection was lost during commit; `ticket` is what `Store.outcome` is asked with."""

    def __init__(self, ticket: str) -> None:
        super().__init__("the answer to a commit was lost")
        self.ticket = ticket


class RowConflict(AllswellError):
    """Another transaction made the same new row first; roll back and decide again on what is there now."""


class Transaction(WakeupSender, RunHints, Protocol):
    """One unit of work on the store."""

    async def lock(
        self, kind: LockKind, ids: Sequence[str], *, skip: bool = False, shared: bool = False
    ) -> Sequence[str]:
        """Lock rows (sorted by id) and return the ids that exist; with `skip`, only those free at once."""
        ...

    async def now(self) -> Millis:
        """The store's clock, read now.

        It never goes back, except after the store was moved to a clock that was set (`engine/sweeper.py`); until that
        is done, reading it raises `SetBack`.
        """
        ...

    async def lock_and_read(self, locks: Sequence[Lock], wanted: RowRequest) -> tuple[Millis, Rows]:
        """Lock in this order, then read the clock, then, by later statements, what was wanted and could be locked.

        As `lock`, `now` and `read` one after the other; a store far away needs one round trip for it.
        """
        ...

    async def read(self, wanted: RowRequest) -> Rows:
        """Rows as committed now, or as written by this transaction."""
        ...

    async def write(self, changes: RowChanges) -> None:
        """Write every table once."""
        ...

    async def lanes(self) -> tuple[Sequence[Lane], dict[str, ServiceRow]]:
        """All lanes, and the services that something is or was held against. Both change rarely; read without locks."""
        ...

    async def pick(
        self, lanes: Sequence[int], count: int, agent: AgentId | None, outside: Sequence[RunId] = ()
    ) -> Sequence[TaskId]:
        """Lock up to `count` claimable tasks of these lanes, best rank first, skipping locked ones.

        With an agent, tasks that it is barred from are left out, and so are all tasks of the runs in `outside`.
        """
        ...

    async def find_due(self, now: Millis, limit: int) -> Sequence[DueTimer]:
        """Timers that have fallen due, the oldest first; of one moment's, those of tasks before those of runs."""
        ...

    async def find_spreads(self, limit: int) -> Sequence[str]:
        """Consequences still to be worked off, the oldest first."""
        ...

    async def find_waiting(self, target: str, limit: int) -> Sequence[TaskId]:
        """Tasks that wait for this task."""
        ...

    async def find_open(self, run: RunId, limit: int) -> Sequence[TaskId]:
        """Open tasks of a run."""
        ...

    async def find_questions(self, task: TaskId) -> Sequence[QuestionId]:
        """Open questions about a task."""
        ...

    async def find_claimed(self, command: CommandId) -> Sequence[TaskId]:
        """Tasks whose current lease this claim command made.

        The next caller that asks for the same one waits for the end of this transaction: a claim that comes by two
        processes at once is granted once. Asked before anything is locked, and in the order of the commands.
        """
        ...

    async def find_target(self, task: TaskId) -> Sequence[str]:
        """A task's role and its holder, if it has one; None, if there is no such task."""
        ...

    async def find_asking(self) -> Sequence[AwaitedRequest]:
        """Which agents wait for an answer of which (`awaited_requests` of every open one).

        The next caller waits for the end of this transaction, so that two requests which would close a circle together
        see each other. Asked before anything is locked, and before `find_claimed`.
        """
        ...

    async def find_leases(self, after: str, limit: int) -> Sequence[TaskId]:
        """Live leases by task id, for a walk over all of them."""
        ...


class Store(Outbox, Calls, KeyValue, Protocol):
    """A place where a watch lives."""

    url: str
    shared_clock: bool
    """Whether `now` is a server's clock: then jumps of this machine's clock do not matter to others."""
    max_parallel: int  # how many units of work at once pay

    async def open(self) -> None:
        """Connect, and bring the schema up to date or refuse."""
        ...

    async def close(self) -> None:
        """Let everything go; safe to call twice."""
        ...

    async def transact(self, work: Callable[[Transaction], Coroutine[Any, Any, T]], *, durable: bool = True) -> T:
        """Run `work` in one transaction and commit; roll back if it raises.

        Without `durable` a power failure may undo the last moments (check-ins). Raises `Unavailable` if nothing was
        committed, `CommitUnknown` if that cannot be known.
        """
        ...

    async def outcome(self, ticket: str) -> bool:
        """Whether the transaction of a lost commit answer took place; waits until that is certain."""
        ...

    async def intern_lanes(self, wanted: Sequence[tuple[str, tuple[str, ...]]]) -> list[int]:
        """The lane of each (role, services), made if it is new."""
        ...

    async def advance(self, follower: str, position: Position) -> None:
        """Note durably where a follower has got to; never backwards."""
        ...


def run_sync(work: Coroutine[Any, Any, T]) -> T:
    """Run a unit of work to its end where there is no event loop; all that it awaits answers at once."""
    try:
        work.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    work.close()
    raise Bug("a unit of work awaited something other than its transaction")


# The short way to record a step of a flow: one commit, and hardly anything around it.
#
# A unit of work locks, reads, decides and writes, each by calls of its own. A recorded step needs one row to decide on,
# the flow's lease, and writes two: that much a store can do at once, on a connection of its own. The core decides here
# as everywhere. Where the lease is at hand (SQLite), it is read under the write lock. Where it is a round trip away
# (PostgreSQL), the core decides on the lease as the caller last saw it, and one statement writes what was decided if
# the row is still that one: it compares, and knows no rule.
#
# What makes it safe is that it may always decline: whatever is not plain (a lease that is not what it was, a row that
# is there already, a connection that breaks) is left to the long way, which says who is refused, and why, and
# recognises a step that was recorded after all.


class Recorded(msgspec.Struct, frozen=True, gc=False):
    """A finished task and its event."""

    made: FinishedTask
    event: Event
    at: Millis


Decide = Callable[[LeaseRow, Millis], Recorded | None]
"""A decision on a flow's lease alone; None where more must be known."""


@runtime_checkable
class FastStepWriter(Protocol):
    """A store that can record a step of a flow in one commit, as described above."""

    async def record(self, believed: LeaseRow, decide: Decide) -> bool:
        """As `record_here`, for an event loop: it waits for a thread of the store's, and for nothing else."""
        ...

    def record_here(self, believed: LeaseRow, decide: Decide, patience: float) -> bool:
        """Whether what was decided is committed, durably; otherwise, and after any error, go the long way.

        For a thread that has no event loop. It is decided on the lease as it is, or on the one that the caller believes
        in, and committed only if that still stands. One that has waited so many seconds for others goes the long way.
        """
        ...


# Taking what a batch names, step by step: where a call costs nothing, or what is locked depends on what was free.

FIELDS = {
    LockKind.SPREAD: ("spreads",),
    LockKind.RUN: ("runs",),
    LockKind.SERVICE: ("services",),
    LockKind.AGENT: ("agents",),
    LockKind.HEALTH: ("health",),
    LockKind.QUESTION: ("questions",),
    LockKind.TASK: ("tasks", "awaited", "payloads", "bars", "expenses"),
    LockKind.LEASE: ("leases",),
}
"""Which fields of `RowRequest` name rows under which lock."""


async def lock_and_read_in_turn(tx: Transaction, locks: Sequence[Lock], wanted: RowRequest) -> tuple[Millis, Rows]:
    """Lock kind by kind, read the clock, then the rows that were locked."""
    locked = await lock_in_turn(tx, locks)
    now = await tx.now()
    return now, await tx.read(only_locked(wanted, locked))


async def lock_in_turn(tx: Transaction, locks: Sequence[Lock]) -> dict[LockKind, Sequence[str]]:
    """Lock kind by kind; where tasks in other hands are passed over, so are their leases."""
    locked: dict[LockKind, Sequence[str]] = {}
    passing_over = False
    for lock in locks:
        ids = lock.ids
        if lock.kind is LockKind.LEASE and passing_over:
            free = {*locked[LockKind.TASK]}
            ids = [id_ for id_ in ids if id_ in free]
        passing_over = passing_over or lock.skip
        locked[lock.kind] = await tx.lock(lock.kind, ids, skip=lock.skip, shared=lock.shared) if ids else ()
    return locked


def only_locked(wanted: RowRequest, locked: Mapping[LockKind, Sequence[str]]) -> RowRequest:
    """What is wanted, without the rows that do not exist: what appears after the lock must not be read."""
    kept = RowRequest()
    for kind, ids_locked in locked.items():
        held = {*ids_locked}
        for field in FIELDS[kind]:
            if ids := getattr(wanted, field):
                setattr(kept, field, [id_ for id_ in ids if id_ in held])
    return kept
