"""Reading locked rows: each kind that is wanted is one statement, all of them one round trip."""

from __future__ import annotations

from collections.abc import Callable

from allswell.domain.checkin import Agent
from allswell.domain.lease import Lease
from allswell.domain.run import Run, Service
from allswell.domain.task import Attempt, Ready, Wait
from allswell.store.port import Rows, Wanted
from allswell.store.postgres.connection import Answer, Statement
from allswell.store.postgres.session import SQL, Session
from allswell.store.postgres.values import (
    TASK_COLUMNS,
    integers,
    question_of,
    spread_of,
    task_of,
    texts,
)

Fill = Callable[[Rows, Answer], None]


def read_rows(session: Session, wanted: Wanted) -> Rows:
    """Everything wanted, as it is now."""
    statements: list[Statement] = []
    fills: list[Fill] = []
    for field, name, fill in _BY_ID:
        if ids := getattr(wanted, field):
            statements.append((SQL[name], (texts(ids),)))
            fills.append(fill)
    if wanted.attempts:
        tasks, tokens = zip(*wanted.attempts, strict=True)
        statements.append((SQL["read_attempts"], (texts(tasks), integers(tokens))))
        fills.append(_fill_attempts)
    rows = Rows()
    if statements:
        for answer, fill in zip(session.ask(*statements), fills, strict=True):
            fill(rows, answer)
    return rows


def _fill_tasks(rows: Rows, answer: Answer) -> None:
    for row in answer.fetchall():
        task = task_of(row)
        rows.tasks[task.id] = task
        lane, rank, due = row[TASK_COLUMNS:]
        if lane is not None:
            rows.ready[task.id] = Ready(task.id, lane, rank)
        if due is not None:
            rows.timers[task.id] = due


def _fill_waits(rows: Rows, answer: Answer) -> None:
    for row in answer.fetchall():
        rows.waits.setdefault(row[0], []).append(Wait(*row))


def _fill_leases(rows: Rows, answer: Answer) -> None:
    rows.leases = {row[0]: Lease(*row) for row in answer.fetchall()}


def _fill_attempts(rows: Rows, answer: Answer) -> None:
    rows.attempts = {(row[0], row[1]): Attempt(*row) for row in answer.fetchall()}


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
    rows.services = {row[0]: Service(*row) for row in answer.fetchall()}


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
