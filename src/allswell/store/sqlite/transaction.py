"""One transaction on SQLite. Its methods are async for the port's sake and never really wait.

The write lock is held from `BEGIN IMMEDIATE` on, so there is nothing left to lock: `lock` says which rows exist, and
what was read once stays true until this transaction changes it.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from heapq import merge
from itertools import chain, filterfalse, groupby, islice
from operator import attrgetter, itemgetter

from msgspec.structs import astuple, replace

from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.clock_change import ClockAdjustment
from allswell.domain.lease.model import LeaseRow
from allswell.domain.mesh.request import awaited_requests
from allswell.domain.rules.rule import AwaitedRequest
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, Lane, ReadyTask, WaitState
from allswell.errors import Bug
from allswell.store.clock import DISTANCE, SETTLING, ClockMoveWrites, ClockReading, DueTimer, StoreClock, settling_of
from allswell.store.port import NOTHING, Lock, LockKind, RowChanges, RowConflict, RowRequest, Rows
from allswell.store.sqlite import rows
from allswell.store.sqlite.cache import RowCache
from allswell.store.sqlite.connection import NEWEST, SQL, check_writer
from allswell.store.sqlite.rows import Row, text

# Many rows in few statements.
#
# Python gives the interpreter lock away at every step of a statement, and beside a busy event loop it may wait some
# milliseconds to get it back: a hundred rows must not be a hundred steps. So `VALUES (?, ?)` is widened to as many rows
# as there are, in powers of two, so that few statements need to be prepared. And what is decided together is much
# alike:
# leases that were claimed together and are renewed together differ in nothing but their task. Those whose values are
# all the same are made and changed by one statement, to which their tasks are given as a list.

MOST = 64
"""Rows in one statement; seventeen columns of them stay far below SQLite's limit on parameters."""
FEW = 4
"""So many rows at most are changed one by one, though they are alike: reading a list costs something too."""
_ABSENT = r"NULLIF\(\?, (?:-1|'')\)"
_VALUES = re.compile(rf"VALUES (\((?:[?,\s]|{_ABSENT}|coalesce\({_ABSENT}, '[^']*'\))+\))")
_TASK = re.compile(r"\b(task|id) = \?$")
_TASK_VALUE = re.compile(r"VALUES \((.*), \?\)$", re.DOTALL)
_values_of, _task_of = itemgetter(0), itemgetter(1)


def insert(connection: sqlite3.Connection, name: str, records: list[Row]) -> None:
    """Insert rows by a statement that is written for one."""
    if len(records) == 1:
        connection.execute(SQL[name], records[0])
        return
    start, left = 0, len(records)
    while left:
        size = min(MOST, 1 << (left.bit_length() - 1))
        connection.execute(_widened(name, size), list(chain.from_iterable(records[start : start + size])))
        start += size
        left -= size


def change(connection: sqlite3.Connection, name: str, changes: Sequence[tuple[Row, str]]) -> int:
    """Change or delete rows by a statement that is written for one and ends with its task; how many there were.

    Each is given as the values of all other parameters, and its task.
    """
    if len(changes) == 1:
        ((values, task),) = changes
        return connection.execute(SQL[name], (*values, task)).rowcount
    if len(changes) <= FEW:
        return connection.executemany(SQL[name], [(*values, task) for values, task in changes]).rowcount
    singles, lists = _alike(changes)
    changed = sum([connection.execute(_listed(name), row).rowcount for row in lists])
    if singles:
        changed += connection.executemany(SQL[name], singles).rowcount
    return changed


def insert_alike(connection: sqlite3.Connection, name: str, records: Sequence[tuple[Row, str]]) -> None:
    """Insert rows, given as to `change`, by a statement that is written for one and ends with its task."""
    if len(records) <= FEW:
        insert(connection, name, [(*values, task) for values, task in records])
        return
    singles, lists = _alike(records)
    for row in lists:
        connection.execute(_selected(name), row)
    insert(connection, name, singles)


def _alike(changes: Sequence[tuple[Row, str]]) -> tuple[list[Row], list[Row]]:
    """Rows that go one by one, and rows whose last value is a list of tasks; what is alike was decided in a row."""
    singles: list[Row] = []
    lists: list[Row] = []
    for values, group in groupby(changes, _values_of):
        tasks = [*map(_task_of, group)]
        if len(tasks) <= FEW:
            singles += [(*values, task) for task in tasks]
        else:
            lists.append((*values, text(tasks)))
    return singles, lists


@cache
def _listed(name: str) -> str:
    return _TASK.sub(r"\1 IN (SELECT value FROM json_each(?))", SQL[name])


@cache
def _selected(name: str) -> str:
    return _TASK_VALUE.sub(r"SELECT \1, value FROM json_each(?)", SQL[name])


@cache
def _widened(name: str, size: int) -> str:
    return _VALUES.sub(lambda match: f"VALUES {', '.join([match[1]] * size)}", SQL[name])


# What a transaction looks up about runs and requests, without locks; on SQLite there is nothing left to lock.


class RunQueries:
    """The part of a transaction that is about runs, and about who waits for whom."""

    connection: sqlite3.Connection

    async def runs(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        """Runs as they are in this transaction."""
        fetched = self.connection.execute(SQL["read_run"], (rows.text(ids),)).fetchall()
        return {row[0]: Run(*row) for row in fetched}

    async def find_runs(self, tasks: Sequence[TaskId]) -> dict[TaskId, RunId]:
        """In which runs these tasks are."""
        return dict(self.connection.execute(SQL["find_runs"], (rows.text(tasks),)).fetchall())

    async def find_held(self, run: RunId, after: str, limit: int) -> Sequence[TaskId]:
        """Tasks of a run that somebody holds, by id."""
        fetched = self.connection.execute(SQL["find_held"], (run, after, limit)).fetchall()
        return [TaskId(row[0]) for row in fetched]

    async def find_target(self, task: TaskId) -> Sequence[str]:
        """A task's role, and who holds it."""
        fetched = self.connection.execute(SQL["find_target"], (task,)).fetchall()
        return [name for row in fetched for name in row if name is not None]

    async def find_asking(self) -> Sequence[AwaitedRequest]:
        """Which agents wait for an answer of which; nobody else can ask before this is over."""
        fetched = self.connection.execute(SQL["find_asking"]).fetchall()
        return awaited_requests(map(rows.task, fetched), self._tokens_of)

    def _tokens_of(self, tasks: Sequence[TaskId]) -> dict[TaskId, Token]:
        return dict(self.connection.execute(SQL["find_tokens"], (rows.text(tasks),)).fetchall())


# The lanes that a process has read: they are never changed or removed, so each is read once.


class KnownLanes:
    """Lanes already read, and the id of the last of them."""

    def __init__(self) -> None:
        self.lanes: list[Lane] = []
        self.last = 0


# What settling after a change of the machine's clock reads and writes in SQLite (docs/adr/0033).

_moments = attrgetter("granted_at", "deadline", "stalled_at", "renewed_at", "checkin_at", "own", "task", "token")


def last_of(connection: sqlite3.Connection) -> tuple[int, int, ClockAdjustment]:
    """The moment and the number of the newest event, and whether the clock is being settled.

    `Refused` where a later version has brought the store to a schema that this one may not write to.
    """
    at, last, kept, oldest_writer = connection.execute(SQL["read_last"]).fetchone()
    if oldest_writer > NEWEST:
        check_writer(connection)
    return at, last, settling_of(kept)


def clocks(connection: sqlite3.Connection, clock: StoreClock, newest: int) -> ClockReading:
    """The clocks, whatever they say."""
    return clock.read(newest, word(connection, SETTLING), word(connection, DISTANCE))


def word(connection: sqlite3.Connection, key: str) -> str | None:
    """What the watch keeps under a key."""
    fetched: tuple[str] | None = connection.execute(SQL["read_kept"], (key,)).fetchone()
    return None if fetched is None else fetched[0]


def compare_and_set(connection: sqlite3.Connection, key: str, before: str | None, after: str) -> bool:
    """Keep something, if what was there is still there."""
    name, values = ("add_kept", (key, after)) if before is None else ("swap_kept", (after, key, before))
    return connection.execute(SQL[name], values).rowcount == 1


def move(connection: sqlite3.Connection, moved: ClockMoveWrites) -> None:
    """Write what has moved, and how far that has got."""
    if not compare_and_set(connection, SETTLING, *moved.settling):
        raise RowConflict("another process has gone on settling the clock")
    if moved.distance is not None:
        connection.execute(SQL["put_kept"], (DISTANCE, moved.distance))
    for statement, parameters in (
        ("move_task", [(rows.text(task.spec), task.id) for task in moved.tasks]),
        ("move_lease", list(map(_moments, moved.leases))),
    ):
        if parameters and connection.executemany(SQL[statement], parameters).rowcount != len(parameters):
            raise Bug(f"{statement} was to change {len(parameters)} rows: one is not as it was read")


_LOCK = {kind: SQL[f"lock_{kind.value}"] for kind in LockKind}


class SqliteTransaction(RunQueries):
    """A unit of work between `BEGIN IMMEDIATE` and `COMMIT`."""

    def __init__(self, connection: sqlite3.Connection, clock: StoreClock, known: KnownLanes, cache: RowCache) -> None:
        self.connection = connection
        self._cache = cache
        cache.begin(connection.execute("PRAGMA data_version").fetchone()[0])
        if cache.last is None:
            cache.last = last_of(connection)  # and whether this version may still write
        self._clock = clock
        self._known = known
        self._spoiled = False
        self.call = NOTHING

    def check(self) -> None:
        """Refuse to commit after a write that failed halfway, whatever the work made of its error."""
        if self._spoiled:
            raise Bug("a unit of work went on after a write of its had failed")

    async def lock(
        self, kind: LockKind, ids: Sequence[str], *, skip: bool = False, shared: bool = False
    ) -> Sequence[str]:
        """The ids that exist, sorted; nobody else can hold any of them."""
        del skip, shared
        here: list[str] = []
        if kind is LockKind.TASK:
            here, ids = self._cache.tasks(ids)
        elif kind is LockKind.LEASE:
            here, ids = self._cache.leases(ids)
        if ids:
            here += self._column(_LOCK[kind], rows.text(ids))
        return sorted({*here})

    async def now(self) -> Millis:
        """The store's clock."""
        at, _, word = self._newest()
        return self._clock.now(at, word)

    async def clocks(self) -> ClockReading:
        """The clocks, whatever they say."""
        return clocks(self.connection, self._clock, self._newest()[0])

    def _newest(self) -> tuple[int, int, ClockAdjustment]:
        """The moment and the number of the newest event, and whether the clock is being settled."""
        if self._cache.last is None:
            self._cache.last = last_of(self.connection)
        return self._cache.last

    async def lock_and_read(self, locks: Sequence[Lock], wanted: RowRequest) -> tuple[Millis, Rows]:
        """The clock and the rows: with the write lock held, nothing can appear between a lock and a read."""
        now = await self.now()
        if len(locks) == 1 and locks[0].fresh:
            return now, Rows()  # that one is there already shows when it is written
        return now, await self.read(wanted)

    async def read(self, wanted: RowRequest) -> Rows:
        """Rows by id, as they are in this transaction."""
        fetched, cache = Rows(), self._cache
        give = cache.give_cases if wanted.whole else cache.give_tasks
        if missing := give(wanted.tasks, fetched) if wanted.tasks else []:
            self._read_tasks(missing, fetched)
        leases = [*filterfalse(fetched.cases.__contains__, wanted.leases)]
        if leases and (unknown := cache.give_leases(leases, fetched)):
            fetched.leases |= {row[0]: LeaseRow(*row) for row in self._by_id("read_lease", unknown)}
        if missing:
            cache.learn_tasks(missing, leases, fetched)
        self._read_rarer(wanted, fetched)
        return fetched

    def _read_rarer(self, wanted: RowRequest, fetched: Rows) -> None:
        if wanted.attempts:
            self._read_attempts(wanted.attempts, fetched)
        if wanted.awaited:
            self._read_awaited(wanted, fetched)
        if wanted.payloads and (missing := self._cache.give_payloads(wanted.payloads, fetched)):
            fetched.payloads |= dict(self._by_id("read_payload", missing))
        if wanted.bars:
            for task, agent in self._by_id("read_bar", wanted.bars):
                fetched.bars.setdefault(task, set()).add(agent)
        if wanted.expenses:
            fetched.expenses = rows.expenses(self._by_id("read_expense", wanted.expenses))
        self._read_around(wanted, fetched)

    def _read_around(self, wanted: RowRequest, fetched: Rows) -> None:
        if wanted.spreads:
            fetched.spreads = {row[0]: rows.spread(row) for row in self._by_id("read_spread", wanted.spreads)}
        if wanted.runs:
            fetched.runs = {row[0]: Run(*row) for row in self._by_id("read_run", wanted.runs)}
        if wanted.services:
            fetched.services = rows.services(self._by_id("read_service", wanted.services))
        if wanted.agents and (missing_agents := self._cache.give_agents(wanted.agents, fetched)):
            fetched.agents |= {row[0]: rows.agent(row) for row in self._by_id("read_agent", missing_agents)}
            self._cache.learn_agents(missing_agents, fetched)
        if wanted.health:
            fetched.health = rows.health(self._by_id("read_health", wanted.health))
        if wanted.questions:
            fetched.questions = {row[0]: rows.question(row) for row in self._by_id("read_question", wanted.questions)}

    def _read_awaited(self, wanted: RowRequest, fetched: Rows) -> None:
        if unsure := self._cache.unsure(wanted.awaited):
            fetched.awaited |= {row[0] for row in self._by_id("read_awaited", unsure)}
            self._cache.learn_awaited(unsure, fetched)
        if not wanted.whole:
            self._cache.give_awaited(wanted.awaited, fetched)

    def _read_attempts(self, wanted: Sequence[tuple[TaskId, Token]], fetched: Rows) -> None:
        first = [task for task, token in wanted if token == 1]
        for row in self._by_id("read_first_attempt", first) if first else ():
            fetched.attempts[(row[0], Token(1))] = rows.first_attempt(row)
        fetched.attempts |= {row[:2]: Attempt(*row) for row in self._by_id("read_attempt", wanted)}

    def _read_tasks(self, ids: Sequence[TaskId], fetched: Rows) -> None:
        tasks, ready, timers = fetched.tasks, fetched.ready, fetched.timers
        for row in self._by_id("read_task", ids):
            task = tasks[row[0]] = rows.task(row)
            if row[12] is not None:
                ready[task.id] = ReadyTask(task.id, task.lane, task.rank)
            if row[13] is not None:
                timers[task.id] = row[13]
        if there := [task for task in dict.fromkeys(ids) if task in tasks]:
            for row in self._by_id("read_wait", there):
                fetched.waits.setdefault(row[0], []).append(WaitState(*row))

    async def write(self, changes: RowChanges) -> None:
        """Write every table once: what goes first, then what comes."""
        try:
            kept = changes.kept_with_task()
            self._drop(changes)
            self._change(changes, kept)
            self._add(changes, kept)
            self._cache.note(changes)
            if changes.moved is not None:
                move(self.connection, changes.moved)
                self._cache.clear()
        except BaseException:
            self._spoiled = True
            raise

    def _drop(self, changes: RowChanges) -> None:
        if changes.drop_ready:
            self._change_alike("delete_ready", [((ready.lane, ready.rank), ready.task) for ready in changes.drop_ready])
        if changes.drop_leases:
            self._change_alike("delete_lease", [((token,), task) for task, token in changes.drop_leases])
        if changes.drop_timers:
            if apart := self._cache.take_apart(changes.drop_timers):
                self._delete("delete_timer", apart)
            gone = dict(changes.drop_leases)
            if stays := [*filterfalse(gone.__contains__, changes.drop_timers)]:
                self._delete("take_timer", stays)
        if changes.drop_waits:
            self.connection.executemany(SQL["delete_wait"], map(astuple, changes.drop_waits))
        if changes.drop_bars:
            self.connection.executemany(SQL["delete_bar"], map(astuple, changes.drop_bars))
        if changes.drop_agents:
            self._delete("delete_agent", changes.drop_agents)
        if changes.drop_spreads:
            self._delete("delete_spread", changes.drop_spreads)

    def _change(self, changes: RowChanges, kept: Mapping[TaskId, Attempt]) -> None:
        if changes.leases:
            self._change_alike("update_lease", list(map(rows.lease_update, changes.leases)))
        if changes.tasks:
            self._change_alike("update_task", rows.task_updates(changes.tasks, kept))
        if changes.runs:
            self._update("update_run", list(map(rows.run_update, changes.runs)))
        if changes.questions:
            self._update("update_question", list(map(rows.question_update, changes.questions)))
        if changes.late_attempts:
            self._keep_late(changes.late_attempts)
        if changes.timers:
            with_lease = {lease.task for lease in changes.new_leases}
            if alone := [timer for timer in changes.timers if timer[0] not in with_lease]:
                self._delete("take_timer", [owner for owner, _ in alone])
                self._insert("put_timer", alone)
                self._cache.set_apart(alone)
        if changes.services:
            self._update("update_service", [(rows.text(service), service.id) for service in changes.services])
        if changes.expenses:
            self._insert("put_expense", list(map(astuple, changes.expenses)))
        if changes.agents:
            self._insert("put_agent", list(map(astuple, changes.agents)))
        if changes.health:
            self._update("update_health", [(name, rows.text(record)) for name, record in changes.health])

    def _keep_late(self, late_attempts: Sequence[Attempt]) -> None:
        """Note what came late; a first attempt that its task's row keeps gets a row of its own for it."""
        for late in late_attempts:
            if self.connection.execute(SQL["update_late"], rows.late_update(late)).rowcount:
                continue
            fetched = self._by_id("read_first_attempt", [late.task]) if late.token == 1 else []
            if not fetched:
                raise Bug(f"attempt {late.token} of {late.task} does not exist, so nothing can be late on it")
            kept = replace(rows.first_attempt(fetched[0]), late=late.late, afterwards=late.afterwards)
            self._insert("insert_attempt", [rows.new_attempt(kept)])

    def _add(self, changes: RowChanges, kept: Mapping[TaskId, Attempt]) -> None:
        if changes.new_runs or changes.new_services or changes.new_agents or changes.new_health:
            self._add_around(changes)
        if changes.new_tasks:
            new = [rows.new_task(task, payload) for task, payload in changes.new_tasks]
            self._insert_first("insert_task", new, insert_alike)
        if changes.recorded:
            self._insert_first("insert_recorded", list(map(rows.recorded, changes.recorded)))
        if changes.new_ready:
            places = [((ready.lane, ready.rank), ready.task) for ready in changes.new_ready]
            insert_alike(self.connection, "insert_ready", places)
        if changes.new_waits:
            self._insert("insert_wait", list(map(astuple, changes.new_waits)))
        if changes.new_bars:
            self._insert("insert_bar", list(map(astuple, changes.new_bars)))
        if changes.new_leases:
            due: dict[str, int] = dict(changes.timers)
            leases = [rows.new_lease(lease, due.get(lease.task, -1)) for lease in changes.new_leases]
            insert_alike(self.connection, "insert_lease", leases)
        if len(changes.new_attempts) > len(kept):
            others = [rows.new_attempt(ended) for ended in changes.new_attempts if kept.get(ended.task) is not ended]
            self._insert("insert_attempt", others)
        if changes.new_questions:
            self._insert("insert_question", list(map(rows.new_question, changes.new_questions)))
        if changes.new_spreads:
            self._insert("insert_spread", list(map(rows.new_spread, changes.new_spreads)))
        if changes.events:
            _, last, word = self._newest()
            self._insert("insert_events", rows.new_events(changes.events, changes.at, last))
            self._cache.last = (changes.at, last + len(changes.events), word)

    def _add_around(self, changes: RowChanges) -> None:
        if changes.new_runs:
            self._insert_first("insert_run", list(map(astuple, changes.new_runs)))
        if changes.new_services:
            self._insert_first("insert_service", [(new.id, rows.text(new)) for new in changes.new_services])
        if changes.new_agents:
            self._insert_first("insert_agent", list(map(astuple, changes.new_agents)))
        if changes.new_health:
            self._insert_first("insert_health", [(name, rows.text(record)) for name, record in changes.new_health])

    async def lanes(self) -> tuple[Sequence[Lane], dict[str, ServiceRow]]:
        """All lanes, and the services that something is or was held against."""
        known, cache = self._known, self._cache
        if not cache.lanes_known:
            for row in self.connection.execute(SQL["read_lanes"], (known.last,)).fetchall():
                known.lanes.append(rows.lane(row))
                known.last = row[0]
            cache.lanes_known = True
        if cache.services is None:
            cache.services = rows.services(self.connection.execute(SQL["read_services"]).fetchall())
        return known.lanes.copy(), cache.services.copy()

    async def pick(
        self, lanes: Sequence[int], count: int, agent: AgentId | None, outside: Sequence[RunId] = ()
    ) -> Sequence[TaskId]:
        """The best `count` over these lanes: each lane's index is walked only as far as it is needed."""
        if outside:
            runs = rows.text(tuple(outside))
            cursors = [self.connection.execute(SQL["pick_outside"], (lane, agent or "", runs, count)) for lane in lanes]
        elif agent is None:
            cursors = [self.connection.execute(SQL["pick"], (lane, count)) for lane in lanes]
        else:
            cursors = [self.connection.execute(SQL["pick_for"], (lane, agent, count)) for lane in lanes]
        if len(cursors) == 1:
            return [task for _, task in cursors[0].fetchall()]
        try:
            return [task for _, task in islice(merge(*cursors), count)]
        finally:
            for cursor in cursors:
                cursor.close()

    async def find_due(self, now: Millis, limit: int) -> Sequence[DueTimer]:
        """Timers that have fallen due, the oldest first."""
        return [DueTimer(*row) for row in self.connection.execute(SQL["find_due"], (now, limit)).fetchall()]

    async def find_spreads(self, limit: int) -> Sequence[str]:
        """Consequences still to be worked off, the oldest first."""
        return self._column(SQL["find_spreads"], limit)

    async def find_waiting(self, target: str, limit: int) -> Sequence[TaskId]:
        """Tasks that wait for this task."""
        return [TaskId(task) for task in self._column(SQL["find_waiting"], target, limit)]

    async def find_open(self, run: RunId, limit: int) -> Sequence[TaskId]:
        """Open tasks of a run."""
        return [TaskId(task) for task in self._column(SQL["find_open"], run, limit)]

    async def find_questions(self, task: TaskId) -> Sequence[QuestionId]:
        """Open questions about a task."""
        return [QuestionId(question) for question in self._column(SQL["find_questions"], task)]

    async def find_claimed(self, command: CommandId) -> Sequence[TaskId]:
        """Tasks whose current lease this claim command made; nobody else can ask before this is over."""
        return [TaskId(task) for task in self._column(SQL["find_claimed"], command)]

    async def find_timers(self, after: str, limit: int) -> Sequence[DueTimer]:
        """All timers by owner, for a walk over them."""
        return [DueTimer(*row) for row in self.connection.execute(SQL["find_timers"], (after, limit)).fetchall()]

    async def find_leases(self, after: str, limit: int) -> Sequence[TaskId]:
        """Live leases by task id."""
        return [TaskId(task) for task in self._column(SQL["find_leases"], after, limit)]

    def intern_lane(self, role: str, services: tuple[str, ...]) -> int:
        """The number of a lane, made if it is new."""
        key = (role, rows.text(services))
        fetched = self.connection.execute(SQL["find_lane"], key).fetchone()
        if fetched is None:
            self.connection.execute(SQL["insert_lane"], key)
            self._cache.lanes_known = False
            fetched = self.connection.execute(SQL["find_lane"], key).fetchone()
        return int(fetched[0])

    def put(self, key: str, value: str) -> None:
        """Keep something about the watch itself."""
        self.connection.execute(SQL["put_kept"], (key, value))

    def advance(self, follower: str, xid: int, number: int) -> None:
        """Note where a follower has got to."""
        self.connection.execute(SQL["advance"], (follower, xid, number))

    def _by_id(self, statement: str, ids: Sequence[object]) -> list[Row]:
        return self.connection.execute(SQL[statement], (rows.text(ids),)).fetchall()

    def _column(self, statement: str, *values: object) -> list[str]:
        return [row[0] for row in self.connection.execute(statement, values).fetchall()]

    def _delete(self, statement: str, ids: Sequence[str]) -> int:
        return self.connection.execute(SQL[statement], (rows.text(ids),)).rowcount

    def _update(self, statement: str, records: Sequence[Row]) -> None:
        """Change exactly one row for each that is given: the fence, where a token stands in the WHERE."""
        self._check_fence(statement, len(records), self.connection.executemany(SQL[statement], records).rowcount)

    def _change_alike(self, statement: str, changes: Sequence[tuple[Row, str]]) -> None:
        """As `_update`, where many rows are often changed in the same way."""
        self._check_fence(statement, len(changes), change(self.connection, statement, changes))

    def _check_fence(self, statement: str, wanted: int, changed: int) -> None:
        if changed != wanted:
            raise Bug(f"{statement} was to change {wanted} rows and changed {changed}: one is not as it was read")

    def _insert(self, statement: str, records: list[Row]) -> None:
        insert(self.connection, statement, records)

    def _insert_first(
        self,
        statement: str,
        records: list[Row],
        insert: Callable[[sqlite3.Connection, str, list[Row]], None] = insert,
    ) -> None:
        """Rows that no lock could stand for, so that their being there already is nobody's fault."""
        try:
            insert(self.connection, statement, records)
        except sqlite3.IntegrityError as error:
            raise RowConflict(f"{statement}: one of these rows exists already") from error
