"""Between our rows and PostgreSQL's: lists as one parameter, and rows read back as Structs.

The driver's own dumper of lists takes four times as long as these few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from allswell.domain.ids import AgentId, CommandId, Millis, Token
from allswell.domain.lease.model import AgentRecord, LeaseRow
from allswell.domain.question import Option, Question
from allswell.domain.rules.event import Entry, Event, Position
from allswell.domain.run.run import Fanout
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, Lane, Spec, Task, TaskHistory, TaskRow, WaitState

Row = tuple[Any, ...]

_SPEC = msgspec.json.Decoder(Spec)
_RECORD = msgspec.json.Decoder(TaskHistory)
_OPTIONS = msgspec.json.Decoder(tuple[Option, ...])
_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_EVENTS = msgspec.json.Decoder(list[Event])
_SERVICE = msgspec.json.Decoder(ServiceRow)
_SERVICES = msgspec.json.Decoder(list[ServiceRow])
_HEALTH = msgspec.json.Decoder(AgentRecord)
_LANES = msgspec.json.Decoder(list[tuple[int, str, tuple[str, ...]]])
_KEPT = msgspec.json.Decoder(tuple[AgentId, Millis, Millis, str, CommandId, str])
_NEW_SPEC = Spec()
_NEW_RECORD = TaskHistory()
EVENTS_MOST = 1_000
"""Events in one row of the journal; an event's number is its row's times this, plus its place."""
_ENCODER = msgspec.json.Encoder()

TASK_COLUMNS = 12
"""How many columns of a row make a `Task`, wherever one is read."""
LEASE_COLUMNS = 18
"""How many make a `LeaseRow`."""


def texts(values: Sequence[str]) -> str:
    """A text[] literal."""
    if not values:
        return "{}"
    whole = "".join(values)
    if '"' in whole or "\\" in whole:
        values = [value.replace("\\", "\\\\").replace('"', '\\"') for value in values]
    return '{"' + '","'.join(values) + '"}'


def integers(values: Iterable[int]) -> str:
    """An integer[] or bigint[] literal."""
    return "{" + ",".join(map(str, values)) + "}"


def maybe_integers(values: Iterable[int | None]) -> str:
    """A bigint[] literal, where some are missing."""
    return "{" + ",".join(["NULL" if value is None else str(value) for value in values]) + "}"


def maybe_texts(values: Sequence[str | None]) -> str:
    """A text[] literal, where some are missing."""
    there = [value for value in values if value is not None]
    if len(there) == len(values):
        return texts(there)
    return "{" + ",".join(["NULL" if value is None else texts([value])[1:-1] for value in values]) + "}"


encoded = _ENCODER.encode
"""Rows as one JSON parameter, in bytes."""


def json(rows: object) -> str:
    """Rows as one JSON parameter."""
    return _ENCODER.encode(rows).decode()


def lines(rows: Sequence[object]) -> str:
    """Rows as JSON, one a line: the server has less to do to take them apart. JSON has no bare line ends in it."""
    return _ENCODER.encode_lines(rows)[:-1].decode()


def task_of(row: Row) -> Task:
    """The task at the head of a row."""
    spec = _NEW_SPEC if row[9] == "{}" else _SPEC.decode(row[9])
    record = _NEW_RECORD if row[10] == "{}" else _RECORD.decode(row[10])
    return Task(*(*row[:9], spec, record, row[11]))


def task_row_of(row: Row) -> TaskRow:
    """A row of the statement `task_row`."""
    ready, due, waits, *lease = row[TASK_COLUMNS:]
    named = (wait.split(" ", 1) for wait in waits)
    return TaskRow(
        task=task_of(row),
        lease=None if lease[0] is None else LeaseRow(*lease),
        ready=ready,
        due=due,
        waits=tuple(WaitState(row[0], kind, target) for kind, target in named),
    )


def question_of(row: Row) -> Question:
    """A question, its options decoded; one about a service has no task."""
    return Question(*(row[0], row[1] or None, *row[2:5], _OPTIONS.decode(row[5]), *row[6:]))


def service_of(row: Row) -> ServiceRow:
    """A service, its state decoded."""
    return _SERVICE.decode(row[-1])


def health_of(rows: Sequence[Row]) -> dict[str, AgentRecord]:
    """What requests say of agents, decoded."""
    return {agent: _HEALTH.decode(record) for agent, record in rows}


def services_of(told: str | None) -> dict[str, ServiceRow]:
    """Services by id, from one JSON list."""
    return {} if told is None else {service.id: service for service in _SERVICES.decode(told)}


def spread_of(row: Row) -> Fanout:
    """A spread, its replacements decoded."""
    return Fanout(*(*row[:3], _TEXTS.decode(row[3]), row[4]))


@lru_cache(maxsize=1)
def lanes_of(told: str | None) -> tuple[Lane, ...]:
    """All lanes, from one JSON list; they are nearly always what they were."""
    return () if told is None else tuple(Lane(*lane) for lane in _LANES.decode(told))


def first_attempt_of(row: Row) -> Attempt:
    """A first attempt from its task's id and what the task's row keeps."""
    agent, granted_at, ended_at, outcome, command, detail = _KEPT.decode(row[1])
    return Attempt(row[0], Token(1), agent, granted_at, ended_at, outcome, command, detail)


def entries_of(row: Row) -> list[Entry]:
    """The entries of a row of the journal."""
    xid, number, at, told = row
    first = number * EVENTS_MOST
    return [Entry(Position(xid, first + place), at, event) for place, event in enumerate(_EVENTS.decode(told))]
