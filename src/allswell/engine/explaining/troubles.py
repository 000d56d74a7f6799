"""What is wrong, with its evidence and the moment it ends by itself: what a person reads after the questions.

Beside what needs somebody (overview.py) there is what only has to be known: services that are parked or fail, tasks
that are blocked because an agent does not answer, supervisors that wait for a limit to be over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from allswell.domain.breaker import Stand
from allswell.domain.lease import recovered_at
from allswell.domain.listing import TaskRow
from allswell.domain.names import Millis
from allswell.domain.paying import is_budget, is_for_good, said
from allswell.domain.presence import Presence, is_alive
from allswell.domain.service import ServiceRow, shut
from allswell.domain.task import Task
from allswell.engine.explaining.overview import Need, Overview
from allswell.engine.explaining.services import in_short
from allswell.engine.explaining.shapes import Next
from allswell.engine.explaining.words import clean, many, quoted, typed

Kind = Literal[
    "clock", "unaccounted", "overdue", "stalled", "failed", "stopped", "parked", "breaker", "blocked", "paused"
]


class Trouble(msgspec.Struct, frozen=True):
    """One thing that is wrong."""

    kind: Kind
    id: str
    what: str
    evidence: tuple[str, ...] = ()
    since: Millis | None = None
    ends: Next | None = None
    """What ends it without anybody, and when; None where it stays until somebody acts."""
    command: str = ""
    """What to type to learn more."""


def troubles(
    seen: Overview,
    services: Mapping[str, ServiceRow],
    supervisors: Sequence[Presence],
    rows: Iterable[TaskRow],
) -> list[Trouble]:
    """All of them, the most urgent first; `rows` are open tasks, as many as were looked at."""
    rows = list(rows)
    told = [_needing(need, rows) for need in seen.needs if need.kind != "question"]
    told += [one for row in services.values() if (one := _service(row, rows, seen.now)) is not None]
    told += [_paused(one) for one in supervisors if one.level.paused and is_alive(one, seen.now)]
    told += [_blocked(row) for row in rows if row.lease is None and any(wait.kind == "request" for wait in row.waits)]
    return told


def _needing(need: Need, rows: Sequence[TaskRow]) -> Trouble:
    assert need.kind != "question"  # noqa: S101 - questions stand apart
    ends: Next | None = None
    evidence: tuple[str, ...] = ()
    if need.kind == "stalled":
        held = [row for row in rows if row.lease is not None and row.lease.agent == need.id]
        for row in held:
            lease = row.lease
            at = None if lease is None else recovered_at(lease)
            evidence = (f"it holds {quoted(row.task.name, 60)}",)
            if at is not None:
                ends = Next(Millis(at), "it is ended, and its task taken back")
    return Trouble(need.kind, need.id, need.what, evidence, need.since, ends, need.command)


def _service(row: ServiceRow, rows: Sequence[TaskRow], now: Millis) -> Trouble | None:
    closed = shut(row, now)
    if closed is None:
        return None
    waiting = sum(1 for one in rows if one.ready and row.id in one.task.spec.services)
    evidence = (f"{many(waiting, 'task waits', 'tasks wait')} for it; no attempt is spent",) if waiting else ()
    what = f"{quoted(row.id, 60)} {in_short(row, now)}"
    if is_budget(row.id):
        money = said(row.id)
        what = f"{money[0].upper()}{money[1:]} {in_short(row, now)}"
    parked = closed.stand == "parked"
    ends = None
    if closed.until is not None and not is_for_good(closed.until, now):
        ends = Next(closed.until, "it wakes" if parked else "it is tried again")
    if closed.stand == Stand.PROBING and closed.until is not None:
        ends = Next(closed.until, "the call that tries it has its time")
    return Trouble("parked" if parked else "breaker", row.id, what, evidence, row.since or None, ends)


def _paused(one: Presence) -> Trouble:
    until = one.level.until
    ends = None if until is None else Next(until, "it goes on")
    what = f"The supervisor {clean(one.name, 60)} takes nothing new: its session is nearly used up"
    return Trouble("paused", one.name, what, (), None, ends, "allswell agents")


def _blocked(row: TaskRow) -> Trouble:
    task: Task = row.task
    asked = [wait.target for wait in row.waits if wait.kind == "request"]
    what = f"{quoted(task.name, 60)} is blocked: {many(len(asked), 'request')} that nobody has answered"
    told = ("an answer that comes late still counts, and queues it again",)
    return Trouble("blocked", task.id, what, told, None, None, typed("why", task.id))
