"""Reading locked rows: each kind that is wanted is one statement, all of them one round trip."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from allswell.domain.checkin import Agent
from allswell.domain.lease import Lease
from allswell.domain.names import TaskId, Token
from allswell.domain.run import Run
from allswell.domain.task import Attempt, Ready, Wait
from allswell.store.port import Kind, Rows, Wanted
from allswell.store.postgres.connection import Answer, Statement
from allswell.store.postgres.session import SQL
from allswell.store.postgres.values import (
    TASK_COLUMNS,
    first_attempt_of,
    integers,
    question_of,
    service_of,
    spread_of,
    task_of,
    texts,
)

Fill = Callable[[Rows, Answer], None]


class Reading:
    """What is wanted as statements, and their answers as rows."""

    def __init__(self, wanted: Wanted) -> None:
        self.statements: list[Statement] = []
        self._fills: list[Fill] = []
        held = {*wanted.leases}
        together = bool(held) and held.issubset(wanted.tasks)
        for field, name, fill in _BY_ID:
            ids = getattr(wanted, field)
            if not ids or (together and field == "leases"):
                continue
            if together and name == "read_tasks":
                self._add(partial(_fill_held, held), "read_held", texts(ids))
            else:
                self._add(fill, name, texts(ids))
        if wanted.attempts:
            tasks, tokens = zip(*wanted.attempts, strict=True)
            if first := [task for task, token in wanted.attempts if token == 1]:
                self._add(_fill_first_attempts, "read_first_attempts", texts(first))
            self._add(_fill_attempts, "read_attempts", texts(tasks), integers(tokens))

    def _add(self, fill: Fill, name: str, *values: str) -> None:
        self.statements.append((SQL[name], values))
        self._fills.append(fill)

    def rows(self, answers: Sequence[Answer], locked: Mapping[Kind, set[str]] | None = None) -> Rows:
        """The rows; where locks were taken in the same round trip, only those that are locked."""
        rows = Rows()
        for answer, fill in zip(answers, self._fills, strict=True):
            fill(rows, answer)
        if locked is not None:
            for kind, name in _LOCKED_BY:
                found, held = getattr(rows, name), locked.get(kind, set())
                if not found.keys() <= held:
                    setattr(rows, name, {id_: row for id_, row in found.items() if id_ in held})
        return rows


_LOCKED_BY = (
    (Kind.SPREAD, "spreads"),
    (Kind.RUN, "runs"),
    (Kind.SERVICE, "services"),
    (Kind.AGENT, "agents"),
    (Kind.QUESTION, "questions"),
    (Kind.TASK, "tasks"),
    (Kind.LEASE, "leases"),
)
"""What must be locked to be used. The rest is read through the tasks, and unused without its task."""


def picked_rows(tasks: Answer, bars: Answer | None = None) -> Rows:
    """The rows of `read_picked` and `read_picked_bars`."""
    rows = Rows()
    for row in tasks.fetchall():
        task, (lane, rank, due, payload) = task_of(row), row[TASK_COLUMNS:]
        rows.tasks[task.id] = task
        rows.ready[task.id] = Ready(task.id, lane, rank)
        rows.payloads[task.id] = payload
        if due is not None:
            rows.timers[task.id] = due
    if bars is not None:
        _fill_bars(rows, bars)
    return rows


def covers(rows: Rows, with_bars: bool, wanted: Wanted) -> bool:  # noqa: FBT001 - it is half of a pair
    """Whether rows that were read of picked tasks are all that is wanted."""
    return (
        not any((wanted.spreads, wanted.runs, wanted.services, wanted.agents, wanted.questions))
        and not any((wanted.leases, wanted.attempts, wanted.awaited))
        and all(id_ in rows.tasks for id_ in wanted.tasks)
        and all(id_ in rows.payloads for id_ in wanted.payloads)
        and (with_bars or not wanted.bars)
        and all(id_ in rows.tasks for id_ in wanted.bars)
    )


def among(rows: Rows, wanted: Wanted) -> Rows:
    """Of rows that were read ahead, what is wanted and no more."""
    if len(wanted.tasks) == len(wanted.payloads) == len(rows.tasks) and not rows.bars:
        return rows
    tasks, payloads, bars = {*wanted.tasks}, {*wanted.payloads}, {*wanted.bars}
    return Rows(
        tasks={id_: row for id_, row in rows.tasks.items() if id_ in tasks},
        ready={id_: row for id_, row in rows.ready.items() if id_ in tasks},
        timers={id_: due for id_, due in rows.timers.items() if id_ in tasks},
        waits={id_: waits for id_, waits in rows.waits.items() if id_ in tasks},
        payloads={id_: payload for id_, payload in rows.payloads.items() if id_ in payloads},
        bars={id_: barred for id_, barred in rows.bars.items() if id_ in bars},
    )


def _fill_tasks(rows: Rows, answer: Answer) -> None:
    for row in answer.fetchall():
        task = task_of(row)
        rows.tasks[task.id] = task
        lane, rank, due = row[TASK_COLUMNS:]
        if lane is not None:
            rows.ready[task.id] = Ready(task.id, lane, rank)
        if due is not None:
            rows.timers[task.id] = due


def _fill_held(held: set[TaskId], rows: Rows, answer: Answer) -> None:
    for row in answer.fetchall():
        task, (lane, rank, due, *lease) = task_of(row), row[TASK_COLUMNS:]
        rows.tasks[task.id] = task
        if lane is not None:
            rows.ready[task.id] = Ready(task.id, lane, rank)
        if due is not None:
            rows.timers[task.id] = due
        if lease[0] is not None and task.id in held:
            rows.leases[task.id] = Lease(*lease)


def _fill_waits(rows: Rows, answer: Answer) -> None:
    for row in answer.fetchall():
        rows.waits.setdefault(row[0], []).append(Wait(*row))


def _fill_leases(rows: Rows, answer: Answer) -> None:
    rows.leases = {row[0]: Lease(*row) for row in answer.fetchall()}


def _fill_first_attempts(rows: Rows, answer: Answer) -> None:
    rows.attempts = {(row[0], Token(1)): first_attempt_of(row) for row in answer.fetchall()}


def _fill_attempts(rows: Rows, answer: Answer) -> None:
    rows.attempts |= {(row[0], row[1]): Attempt(*row) for row in answer.fetchall()}


def _fill_awaited(rows: Rows, answer: Answer) -> None:
    rows.awaited = {row[0] for row in answer.fetchall()}


def _fill_payloads(rows: Rows, answer: Answer) -> None:
    rows.payloads = {row[0]: row[1] for row in answer.fetchall()}


def _fill_bars(rows: Rows, answer: Answer) -> None:
    for task, agent in answer.fetchall():
        rows.bars.setdefault(task, set()).add(agent)


def _fill_spreads(rows: Rows, answer: Answer) -> None:
    rows.spreads = {row[0]: spread_of(row) for row in answer.fetchall()}


def _fill_runs(rows: Rows, answer: Answer) -> None:
    rows.runs = {row[0]: Run(*row) for row in answer.fetchall()}


def _fill_services(rows: Rows, answer: Answer) -> None:
    rows.services = {service.id: service for service in map(service_of, answer.fetchall())}


def _fill_agents(rows: Rows, answer: Answer) -> None:
    rows.agents = {row[0]: Agent(*row) for row in answer.fetchall()}


def _fill_questions(rows: Rows, answer: Answer) -> None:
    rows.questions = {row[0]: question_of(row) for row in answer.fetchall()}


_BY_ID: tuple[tuple[str, str, Fill], ...] = (
    ("spreads", "read_spreads", _fill_spreads),
    ("runs", "read_runs", _fill_runs),
    ("services", "read_services", _fill_services),
    ("agents", "read_agents", _fill_agents),
    ("questions", "read_questions", _fill_questions),
    ("tasks", "read_tasks", _fill_tasks),
    ("tasks", "read_waits", _fill_waits),
    ("leases", "read_leases", _fill_leases),
    ("awaited", "read_awaited", _fill_awaited),
    ("payloads", "read_payloads", _fill_payloads),
    ("bars", "read_bars", _fill_bars),
)
"""Which field of `Wanted` is served by which statement; a task's waits come with the task."""
