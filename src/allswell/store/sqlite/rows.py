"""Rows to structs and back, by position: columns stand in the order of the struct's fields."""

from __future__ import annotations

from collections.abc import Iterable
from operator import attrgetter
from typing import Any

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.event import Event
from allswell.domain.names import Millis, TaskId
from allswell.domain.question import Option, Question
from allswell.domain.run import Spread
from allswell.domain.task import Lane, Record, Spec, Task

Row = tuple[Any, ...]
"""What sqlite3 takes and gives; the tables declare what is in it."""

_EMPTY = "{}"
_SPEC = Spec()
_RECORD = Record()
_NO_DATA: dict[str, Any] = {}
_encoder = msgspec.json.Encoder()
_spec = msgspec.json.Decoder(Spec)
_record = msgspec.json.Decoder(Record)
_options = msgspec.json.Decoder(tuple[Option, ...])
_names = msgspec.json.Decoder(tuple[str, ...])
_tasks = msgspec.json.Decoder(tuple[TaskId, ...])
_data = msgspec.json.Decoder(dict[str, Any])

lease_update = attrgetter(
    "deadline", "judged", "stalled_at", "renewed_at", "checkin_at", "progress", "note", "task", "token"
)
"""A lease as `update_lease` takes it."""
run_update = attrgetter("name", "created_at", "deadline", "ended_at", "reason", "command", "id")
question_update = attrgetter("closed_at", "choice", "answer", "answered_by", "command", "id")
late_update = attrgetter("late", "task", "token")


def text(value: object) -> str:
    """A value as JSON text."""
    return _encoder.encode(value).decode()


def new_task(task: Task, payload: str) -> Row:
    """A task as `insert_task` takes it."""
    return (
        task.id,
        task.name,
        task.run,
        task.role,
        task.lane,
        task.priority,
        task.state,
        task.created_at,
        task.ended_at,
        text(task.spec),
        text(task.record),
        payload,
    )


def task_update(task: Task, result: str | None) -> Row:
    """A task as `update_task` takes it."""
    return (task.state, task.ended_at, text(task.record), result, task.id)


def task(row: Row) -> Task:
    """A task from the first eleven columns of a row."""
    spec = _SPEC if row[9] == _EMPTY else _spec.decode(row[9])
    record = _RECORD if row[10] == _EMPTY else _record.decode(row[10])
    return Task(*(*row[:9], spec, record))


def new_question(question: Question) -> Row:
    """A question as `insert_question` takes it."""
    row = msgspec.structs.astuple(question)
    return (*row[:5], text(question.options), *row[6:])


def question(row: Row) -> Question:
    """A question from a row."""
    return Question(*(*row[:5], _options.decode(row[5]), *row[6:]))


def agent(row: Row) -> Agent:
    """An agent's record from a row."""
    return Agent(row[0], row[1], row[2], bool(row[3]))


def new_spread(spread: Spread) -> Row:
    """A spread as `insert_spread` takes it."""
    return (spread.id, spread.outcome, spread.reason, text(spread.replaced_by))


def spread(row: Row) -> Spread:
    """A spread from a row."""
    return Spread(row[0], row[1], row[2], _tasks.decode(row[3]))


def lane(row: Row) -> Lane:
    """A lane from a row."""
    return Lane(row[0], row[1], _names.decode(row[2]))


def new_events(events: Iterable[Event], at: Millis) -> list[Row]:
    """Events as `insert_event` takes them."""
    encode = _encoder.encode
    return [(at, told.kind, told.task, told.run, told.agent, told.token, encode(told.data).decode()) for told in events]


def event(row: Row) -> Event:
    """An event from six columns: kind, task, run, agent, token, data."""
    return Event(*(*row[:5], _NO_DATA if row[5] == _EMPTY else _data.decode(row[5])))
