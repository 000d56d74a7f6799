"""Between our rows and PostgreSQL's: lists as one parameter, and rows read back as Structs.

The driver's own dumper of lists takes four times as long as these few lines.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from allswell.domain.event import Event
from allswell.domain.lease import Lease
from allswell.domain.question import Option, Question
from allswell.domain.run import Spread
from allswell.domain.task import Lane, Record, Spec, Task, Wait
from allswell.store.port import Entry, Position, TaskRow

Row = tuple[Any, ...]

_SPEC = msgspec.json.Decoder(Spec)
_RECORD = msgspec.json.Decoder(Record)
_OPTIONS = msgspec.json.Decoder(tuple[Option, ...])
_TEXTS = msgspec.json.Decoder(tuple[str, ...])
_DATA = msgspec.json.Decoder(dict[str, Any])
_ENCODER = msgspec.json.Encoder()

TASK_COLUMNS = 11
"""How many columns of a row make a `Task`, wherever one is read."""


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


def json(rows: object) -> str:
    """Rows as one JSON parameter."""
    return _ENCODER.encode(rows).decode()


def task_of(row: Row) -> Task:
    """The task at the head of a row."""
    *plain, spec, record = row[:TASK_COLUMNS]
    return Task(*(*plain, _SPEC.decode(spec), _RECORD.decode(record)))


def task_row_of(row: Row) -> TaskRow:
    """A row of the statement `task_row`."""
    ready, due, waits, *lease = row[TASK_COLUMNS:]
    named = (wait.split(" ", 1) for wait in waits)
    return TaskRow(
        task=task_of(row),
        lease=None if lease[0] is None else Lease(*lease),
        ready=ready,
        due=due,
        waits=tuple(Wait(row[0], kind, target) for kind, target in named),
    )


def question_of(row: Row) -> Question:
    """A question, its options decoded."""
    return Question(*(*row[:5], _OPTIONS.decode(row[5]), *row[6:]))


def spread_of(row: Row) -> Spread:
    """A spread, its replacements decoded."""
    return Spread(*(*row[:3], _TEXTS.decode(row[3])))


def lane_of(row: Row) -> Lane:
    """A lane, its services decoded."""
    return Lane(row[0], row[1], _TEXTS.decode(row[2]))


def entry_of(row: Row) -> Entry:
    """A journal entry."""
    xid, number, at, *event, data = row
    return Entry(Position(xid, number), at, Event(*(*event, _DATA.decode(data))))
