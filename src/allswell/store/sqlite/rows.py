"""Rows to structs and back, by position: columns stand in the order of the struct's fields.

On the hot paths an absent value is bound as -1 or as an empty text, which no present one can be, and made NULL by the
statement: sqlite3 asks every None whether it wants to be adapted, which costs half a microsecond each. In the same way
a text that is nearly always the same is bound as -1 where rows are inserted, and the statement puts it in: SQLite makes
a copy of every text that it is given.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import attrgetter
from typing import Any

import msgspec

from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.lease.model import Agent, AgentRecord, LeaseRow
from allswell.domain.question import Option, Question
from allswell.domain.rules.event import Event
from allswell.domain.run.run import Fanout
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import OPEN, Attempt, FinishedTask, Lane, Spec, Task, TaskHistory

Row = tuple[Any, ...]
"""What sqlite3 takes and gives; the tables declare what is in it."""

_EMPTY = "{}"
_SPEC = Spec()
_RECORD = TaskHistory()
_encoder = msgspec.json.Encoder()
_spec = msgspec.json.Decoder(Spec)
_record = msgspec.json.Decoder(TaskHistory)
_options = msgspec.json.Decoder(tuple[Option, ...])
_names = msgspec.json.Decoder(tuple[str, ...])
_tasks = msgspec.json.Decoder(tuple[TaskId, ...])
_events = msgspec.json.Decoder(list[Event])
_service = msgspec.json.Decoder(ServiceRow)
_health = msgspec.json.Decoder(AgentRecord)
_kept = msgspec.json.Decoder(tuple[AgentId, Millis, Millis, str, CommandId, str])

EVENTS_MOST = 250
"""Events in one row of the journal: a reader of few must not have to decode very many."""

_run_changes = ("deadline", "ended_at", "reason", "command", "asked", "stands_since", "stood", "moves", "continued_in")
run_update = attrgetter("name", "created_at", *_run_changes, "id")
question_update = attrgetter(
    "text", "closed_at", "choice", "answer", "answered_by", "command", "dismissed_at", "dismissed_by", "id"
)
late_update = attrgetter("late", "afterwards", "task", "token")


def text(value: object) -> str:
    """A value as JSON text."""
    return _encoder.encode(value).decode()


def new_task(task: Task, payload: str) -> tuple[Row, TaskId]:
    """A task as `insert_task` takes it: what is often the same for many, and its id."""
    values = (
        task.name,
        task.run or -1,
        task.role or -1,
        task.lane,
        task.priority,
        -1 if task.state == OPEN else task.state,
        task.created_at,
        -1 if task.ended_at is None else task.ended_at,
        -1 if task.spec == _SPEC else text(task.spec),
        -1 if task.record == _RECORD else text(task.record),
        task.rank,
        -1 if payload == "null" else payload,
    )
    return values, task.id


def recorded(made: FinishedTask) -> Row:
    """A task as `insert_recorded` takes it."""
    task = made.task
    return (
        task.id,
        task.name,
        task.run or "",
        task.role,
        task.lane,
        task.priority,
        task.state,
        task.created_at,
        -1 if task.ended_at is None else task.ended_at,
        _EMPTY if task.spec == _SPEC else text(task.spec),
        _EMPTY if task.record == _RECORD else text(task.record),
        task.rank,
        made.payload,
        made.result,
        text(_kept_attempt(made.attempt)),
    )


def task_updates(
    tasks: Iterable[tuple[Task, str | None]], attempts: Mapping[TaskId, Attempt]
) -> list[tuple[Row, TaskId]]:
    """Tasks as `update_task` takes them, with first attempts that have just ended: what many share, and the task.

    Many tasks that changed together have equal records; each record is encoded once.
    """
    updates: list[tuple[Row, TaskId]] = []
    record, record_text = _RECORD, _EMPTY
    ended, ended_text = None, ""
    for task, result in tasks:
        if task.record != record:
            record = task.record
            record_text = text(record)
        attempt = attempts.get(task.id)
        kept = None if attempt is None else _kept_attempt(attempt)
        if kept != ended:
            ended = kept
            ended_text = "" if kept is None else text(kept)
        ended_at = -1 if task.ended_at is None else task.ended_at
        updates.append(((task.state, ended_at, record_text, result or "", ended_text), task.id))
    return updates


def new_lease(lease: LeaseRow, due: int) -> tuple[Row, TaskId]:
    """A lease as `insert_lease` takes it, with its timer (-1: none): what is often the same for many, and the task."""
    values = (
        lease.token,
        lease.agent,
        lease.granted_at,
        lease.deadline,
        -1 if lease.length is None else lease.length,
        -1 if lease.idle is None else lease.idle,
        lease.ask_every,
        lease.ask_wait,
        lease.grace,
        lease.command or -1,
        lease.judged,
        -1 if lease.stalled_at is None else lease.stalled_at,
        lease.renewed_at,
        -1 if lease.checkin_at is None else lease.checkin_at,
        -1 if lease.progress is None else lease.progress,
        lease.note or -1,
        -1 if lease.own is None else lease.own,
        due,
    )
    return values, lease.task


def lease_update(lease: LeaseRow) -> tuple[Row, TaskId]:
    """A lease as `update_lease` takes it: what is often the same for many, and the task."""
    values = (
        lease.deadline,
        lease.judged,
        -1 if lease.stalled_at is None else lease.stalled_at,
        lease.renewed_at,
        -1 if lease.checkin_at is None else lease.checkin_at,
        -1 if lease.progress is None else lease.progress,
        lease.note,
        -1 if lease.own is None else lease.own,
        lease.token,
    )
    return values, lease.task


def new_attempt(ended: Attempt) -> Row:
    """An attempt as `insert_attempt` takes it."""
    return (
        ended.task,
        ended.token,
        ended.agent,
        ended.granted_at,
        ended.ended_at,
        ended.outcome,
        ended.command,
        ended.detail,
        ended.late or "",
        ended.afterwards or "",
    )


def task(row: Row) -> Task:
    """A task from the first twelve columns of a row."""
    spec = _SPEC if row[9] == _EMPTY else _spec.decode(row[9])
    record = _RECORD if row[10] == _EMPTY else _record.decode(row[10])
    return Task(*(*row[:9], spec, record, row[11]))


def new_question(question: Question) -> Row:
    """A question as `insert_question` takes it; one about a service has no task."""
    row = msgspec.structs.astuple(question)
    return (row[0], row[1] or "", *row[2:5], text(question.options), *row[6:])


def question(row: Row) -> Question:
    """A question from a row."""
    return Question(*(row[0], row[1] or None, *row[2:5], _options.decode(row[5]), *row[6:13], bool(row[13]), *row[14:]))


def expense(row: Row) -> ExpenseRow:
    """What one attempt has cost, from a row."""
    return ExpenseRow(*(*row[:9], bool(row[9])))


def expenses(rows: Iterable[Row]) -> dict[TaskId, list[ExpenseRow]]:
    """What attempts have cost, by task."""
    by_task: dict[TaskId, list[ExpenseRow]] = {}
    for row in rows:
        by_task.setdefault(row[0], []).append(expense(row))
    return by_task


def services(rows: Iterable[Row]) -> dict[str, ServiceRow]:
    """Services from rows, by id."""
    return {service.id: service for service in (_service.decode(row[0]) for row in rows)}


def agent(row: Row) -> Agent:
    """An agent's record from a row."""
    return Agent(row[0], row[1], row[2], bool(row[3]))


def health(rows: Iterable[Row]) -> dict[str, AgentRecord]:
    """How agents answer requests, from rows."""
    return {name: _health.decode(record) for name, record in rows}


def new_spread(spread: Fanout) -> Row:
    """A fanout as `insert_spread` takes it."""
    return (spread.id, spread.outcome, spread.reason, text(spread.replaced_by), spread.reached)


def spread(row: Row) -> Fanout:
    """A fanout from a row."""
    return Fanout(row[0], row[1], row[2], _tasks.decode(row[3]), row[4])


def lane(row: Row) -> Lane:
    """A lane from a row."""
    return Lane(row[0], row[1], _names.decode(row[2]))


def _kept_attempt(ended: Attempt) -> Row:
    """A first attempt as its task's row keeps it, in JSON."""
    return (ended.agent, ended.granted_at, ended.ended_at, ended.outcome, ended.command, ended.detail)


def first_attempt(row: Row) -> Attempt:
    """A first attempt from its task's id and what the task's row keeps."""
    agent, granted_at, ended_at, outcome, command, detail = _kept.decode(row[1])
    return Attempt(row[0], Token(1), agent, granted_at, ended_at, outcome, command, detail)


def new_events(events: Sequence[Event], at: Millis, last: int) -> list[Row]:
    """Events as `insert_events` takes them; `last` is the number of the event before them."""
    if len(events) <= EVENTS_MOST:
        return [(last + len(events), at, text(events))]
    return [
        (last + start + len(some), at, text(some))
        for start in range(0, len(events), EVENTS_MOST)
        for some in (events[start : start + EVENTS_MOST],)
    ]


def events(row: Row) -> list[tuple[int, Event]]:
    """The events of a row of the journal, each with its number."""
    decoded = _events.decode(row[2])
    return list(enumerate(decoded, row[0] - len(decoded) + 1))
