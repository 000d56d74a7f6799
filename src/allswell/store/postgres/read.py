"""Reading rows: each kind that is wanted is one statement, all of them one round trip.

A lock is such a statement too: it gives each row as it is once it is locked. What a task has in other tables (ready,
timer, waits) changes only under its lock and is read by a later statement, never joined into the locking one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import itemgetter

import msgspec

from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import AgentId, RunId, TaskId, Token
from allswell.domain.lease.model import Agent, LeaseRow
from allswell.domain.run.run import Run
from allswell.domain.task.model import OPEN, Attempt, ReadyTask, WaitState
from allswell.store.port import FIELDS, LockKind, RowRequest, Rows
from allswell.store.postgres.connection_thread import SQL
from allswell.store.postgres.pipeline import Row, ServerAnswer, Statement
from allswell.store.postgres.values import (
    LEASE_COLUMNS,
    TASK_COLUMNS,
    first_attempt_of,
    health_of,
    integers,
    question_of,
    service_of,
    spread_of,
    task_of,
    texts,
)

# What a claim is to be picked from.


class Pick(msgspec.Struct, frozen=True):
    """What `Transaction.pick` is asked for."""

    lanes: tuple[int, ...]
    count: int
    agent: AgentId | None
    outside: tuple[RunId, ...] = ()


Fill = Callable[[Rows, ServerAnswer], None]


class RowPlaces:
    """Where rows were when this transaction locked them. Until it changes them itself, nobody else does."""

    def __init__(self) -> None:
        self.ready: dict[TaskId, str] = {}
        self.leases: dict[TaskId, str] = {}
        self.timed: set[TaskId] = set()
        """Leases that have their timers with them, so that there is none by itself."""

    def clear(self) -> None:
        """Forget them."""
        self.ready.clear()
        self.leases.clear()
        self.timed.clear()


class RowReader:
    """What is wanted as statements, and their answers as rows."""

    def __init__(self, wanted: RowRequest, without: Iterable[LockKind] = ()) -> None:
        """`without` what is locked, and so read, by statements of its own."""
        self.statements: list[Statement] = []
        self._fills: list[Fill] = []
        left_out = {f"{kind}s" for kind in without}
        for field, name, fill in _BY_ID:
            ids = getattr(wanted, field)
            if ids and field not in left_out:
                self._add(fill, name, texts(ids))
        if wanted.attempts:
            tasks, tokens = zip(*wanted.attempts, strict=True)
            if first := [task for task, token in wanted.attempts if token == 1]:
                self._add(_fill_first_attempts, "read_first_attempts", texts(first))
            self._add(_fill_attempts, "read_attempts", texts(tasks), integers(tokens))

    def _add(self, fill: Fill, name: str, *values: str) -> None:
        self.statements.append((SQL[name], values))
        self._fills.append(fill)

    def fill(self, rows: Rows, answers: Sequence[ServerAnswer]) -> Rows:
        """The rows, with these added."""
        for answer, fill in zip(answers, self._fills, strict=True):
            fill(rows, answer)
        return rows


def locking(kind: LockKind, ids: Sequence[str], *, skip: bool = False, shared: bool = False) -> Statement:
    """The statement that locks rows in the order of their ids, and reads them."""
    how = f"FOR {'SHARE' if shared else 'UPDATE'}{' SKIP LOCKED' if skip else ''}"
    return f"{SQL[_LOCKED_BY[kind][0]]} ORDER BY 1 {how}", (texts(ids),)


def fill_locked(rows: Rows, kind: LockKind, answer: ServerAnswer, places: RowPlaces) -> None:
    """The rows that a lock has given."""
    if kind is LockKind.LEASE:
        _fill_locked_leases(rows, answer, places)
    else:
        _LOCKED_BY[kind][1](rows, answer)


def loose(rows: Rows) -> list[TaskId]:
    """Open tasks of which it is not known yet where they stand: all but those whose lease came with its timer."""
    leases, timers = rows.leases, rows.timers
    return [id_ for id_, task in rows.tasks.items() if task.state == OPEN and not (id_ in leases and id_ in timers)]


def picking(pick: Pick, width: int) -> Statement:
    """The statement that picks, looking at so many rows of each lane."""
    if not is_merged(pick):
        return SQL["pick_from_lane"], (pick.lanes[0], pick.count, pick.agent)
    lanes = integers(pick.lanes)
    if pick.outside:
        return SQL["pick_outside"], (lanes, width, pick.count, pick.agent or "", texts(pick.outside))
    if pick.agent is not None:
        return SQL["pick_allowed"], (lanes, width, pick.count, pick.agent)
    return SQL["pick"], (lanes, width, pick.count)


def is_merged(pick: Pick) -> bool:
    """Whether what several lanes offer is merged, of each only so much as is looked at."""
    return bool(pick.outside) or pick.agent is None or len(pick.lanes) > 1


def fill_picked(rows: Rows, answer: ServerAnswer, places: RowPlaces) -> Rows:
    """The rows of a pick, the best first."""
    tasks, ready, payloads, found = rows.tasks, rows.ready, rows.payloads, places.ready
    for row in answer.fetchall():
        id_ = row[0]
        task = tasks[id_] = task_of(row)
        payload, place, due, barred = row[TASK_COLUMNS:]
        payloads[id_] = payload
        ready[id_] = ReadyTask(id_, task.lane, task.rank)
        found[id_] = place
        if due is not None:
            rows.timers[id_] = due
        if barred:
            rows.bars[id_] = {*barred}
    return rows


def covers(rows: Rows, with_bars: bool, wanted: RowRequest) -> bool:  # noqa: FBT001 - it is half of a pair
    """Whether rows that were read of picked tasks are all that is wanted."""
    return (
        not any((wanted.spreads, wanted.runs, wanted.services, wanted.agents, wanted.health, wanted.questions))
        and not any((wanted.leases, wanted.attempts, wanted.awaited, wanted.expenses))
        and all(id_ in rows.tasks for id_ in wanted.tasks)
        and all(id_ in rows.payloads for id_ in wanted.payloads)
        and (with_bars or not wanted.bars)
        and all(id_ in rows.tasks for id_ in wanted.bars)
    )


def among(rows: Rows, wanted: RowRequest) -> Rows:
    """Of rows that were read ahead, what is wanted and no more."""
    if len(wanted.tasks) == len(wanted.payloads) == len(rows.tasks) and not rows.bars:
        return rows
    tasks, payloads, bars = {*wanted.tasks}, {*wanted.payloads}, {*wanted.bars}
    return Rows(
        tasks={id_: row for id_, row in rows.tasks.items() if id_ in tasks},
        ready={id_: row for id_, row in rows.ready.items() if id_ in tasks},
        timers={id_: due for id_, due in rows.timers.items() if id_ in tasks},
        payloads={id_: payload for id_, payload in rows.payloads.items() if id_ in payloads},
        bars={id_: barred for id_, barred in rows.bars.items() if id_ in bars},
    )


def fill_places(rows: Rows, answer: ServerAnswer) -> None:
    """Where tasks stand."""
    for id_, lane, rank, due in answer.fetchall():
        if lane is not None:
            rows.ready[id_] = ReadyTask(id_, lane, rank)
        if due is not None:
            rows.timers[id_] = due


def fill_waits(rows: Rows, answer: ServerAnswer) -> None:
    """What tasks wait for."""
    for row in answer.fetchall():
        rows.waits.setdefault(row[0], []).append(WaitState(*row))


def _fill_leases(rows: Rows, answer: ServerAnswer) -> None:
    rows.leases = {row[0]: LeaseRow(*row[:LEASE_COLUMNS]) for row in answer.fetchall()}


def _fill_locked_leases(rows: Rows, answer: ServerAnswer, places: RowPlaces) -> None:
    leases, timers, found = rows.leases, rows.timers, places.leases
    for row in answer.fetchall():
        id_ = row[0]
        leases[id_] = LeaseRow(*row[:LEASE_COLUMNS])
        due, found[id_] = row[LEASE_COLUMNS:]
        if due is not None:
            timers[id_] = due
            places.timed.add(id_)


def _fill_first_attempts(rows: Rows, answer: ServerAnswer) -> None:
    rows.attempts = {(row[0], Token(1)): first_attempt_of(row) for row in answer.fetchall()}


def _fill_attempts(rows: Rows, answer: ServerAnswer) -> None:
    rows.attempts |= {(row[0], row[1]): Attempt(*row) for row in answer.fetchall()}


def _fill_awaited(rows: Rows, answer: ServerAnswer) -> None:
    rows.awaited = {row[0] for row in answer.fetchall()}


def _fill_bars(rows: Rows, answer: ServerAnswer) -> None:
    for task, agent in answer.fetchall():
        rows.bars.setdefault(task, set()).add(agent)


def _fill_expenses(rows: Rows, answer: ServerAnswer) -> None:
    for row in answer.fetchall():
        rows.expenses.setdefault(row[0], []).append(ExpenseRow(*row))


def _fill_health(rows: Rows, answer: ServerAnswer) -> None:
    rows.health = health_of(answer.fetchall())


def _by_first(field: str, made_of: Callable[[Row], object]) -> Fill:
    """Rows by what stands in their first column, into this field."""

    def fill(rows: Rows, answer: ServerAnswer) -> None:
        setattr(rows, field, {row[0]: made_of(row) for row in answer.fetchall()})

    return fill


_LOCKED_BY: Mapping[LockKind, tuple[str, Fill]] = {
    LockKind.SPREAD: ("read_spreads", _by_first("spreads", spread_of)),
    LockKind.RUN: ("read_runs", _by_first("runs", lambda row: Run(*row))),
    LockKind.SERVICE: ("read_services", _by_first("services", service_of)),
    LockKind.AGENT: ("read_agents", _by_first("agents", lambda row: Agent(*row))),
    LockKind.HEALTH: ("read_health", _fill_health),
    LockKind.QUESTION: ("read_questions", _by_first("questions", question_of)),
    LockKind.TASK: ("read_tasks", _by_first("tasks", task_of)),
    LockKind.LEASE: ("read_leases", _fill_leases),
}
"""What reads a kind, and locks it."""
_BY_ID: tuple[tuple[str, str, Fill], ...] = (
    *((FIELDS[kind][0], name, fill) for kind, (name, fill) in _LOCKED_BY.items()),
    ("tasks", "read_places", fill_places),
    ("tasks", "read_waits", fill_waits),
    ("awaited", "read_awaited", _fill_awaited),
    ("payloads", "read_payloads", _by_first("payloads", itemgetter(1))),
    ("bars", "read_bars", _fill_bars),
    ("expenses", "read_expenses", _fill_expenses),
)
"""Which field of `RowRequest` is served by which statement."""
