"""Writing changes: each table is one statement, all of them one round trip, with whatever is asked next.

What goes is deleted before what comes is inserted, so that a task may leave and enter the same table in one batch.
An update or a fenced delete must meet every row it names: one that does not means that a lock was missing. The server
checks that itself, so that the commit can ride along: a statement that met too few fails, and nothing is committed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cache

import msgspec

from allswell.domain.ids import Millis, RunId, TaskId, Token
from allswell.domain.lease.model import LeaseRow
from allswell.domain.rules.event import Event
from allswell.domain.task.model import Attempt, FinishedTask
from allswell.errors import Bug
from allswell.store.port import Recorded, RowChanges
from allswell.store.postgres.connection_thread import SQL
from allswell.store.postgres.pipeline import Statement
from allswell.store.postgres.read import RowPlaces
from allswell.store.postgres.values import (
    EVENTS_MOST,
    encoded,
    integers,
    json,
    lines,
    maybe_integers,
    maybe_texts,
    texts,
)


class _Recorded(msgspec.Struct, gc=False):
    """What `insert_recorded` reads of a task."""

    id: TaskId
    name: str
    run: RunId | None
    role: str
    lane: int
    priority: int
    state: str
    created_at: Millis
    ended_at: Millis | None
    spec: str
    record: str
    payload: str
    rank: int
    result: str
    attempt: str


class _LeaseUpdate(msgspec.Struct, gc=False, omit_defaults=True):
    """What `update_leases` reads of a lease."""

    task: TaskId
    token: Token
    deadline: Millis
    renewed_at: Millis
    judged: int = 0
    stalled_at: Millis | None = None
    checkin_at: Millis | None = None
    progress: float | None = None
    note: str = ""
    own: Millis | None = None


def short_record(held: LeaseRow, decided: Recorded) -> list[bytes | None]:
    """A finished task and its event as the values of `record`, with the lease that they were decided on."""
    made, event = decided.made, decided.event
    task, run = made.task, made.task.run
    return [  # written out: done for every step
        held.task.encode(),
        b"%d" % held.token,
        b"%d" % decided.at,
        encoded((event,)),
        task.id.encode(),
        task.name.encode(),
        None if run is None else run.encode(),
        task.role.encode(),
        b"%d" % task.lane,
        b"%d" % task.priority,
        task.state.encode(),
        b"%d" % task.created_at,
        None if task.ended_at is None else b"%d" % task.ended_at,
        encoded(task.spec),
        encoded(task.record),
        made.payload.encode(),
        b"%d" % task.rank,
        made.result.encode(),
        encoded(_kept(made.attempt)),
        b"%d" % held.deadline,
        None if held.stalled_at is None else b"%d" % held.stalled_at,
    ]


def writes(changes: RowChanges, places: RowPlaces) -> list[Statement]:
    """Everything that the changes come to; what is deleted may be where it was locked."""
    if changes.moved is not None:
        raise Bug("a store that goes by a server's clock is not settled on this machine's")
    made = [*_deletes(changes, places), *_updates(changes), *_inserts(changes)]
    places.clear()  # a row that is written anew has another
    return made


def _plain(name: str, *values: object) -> Statement:
    return SQL[name], values


def _checked(name: str, expected: int, *values: object) -> Statement:
    """A statement that fails unless it meets so many rows."""
    return _checking(name), (*values, expected)


@cache
def _checking(name: str) -> str:
    count = 1 + max(int(number) for number in re.findall(r"\$(\d+)", SQL[name]))
    said = f"'{name} met ' || count(*) || ' of ' || ${count}::bigint || ' rows: one was changed without its lock'"
    return (
        f"WITH met AS ({SQL[name]} RETURNING 1) "  # noqa: S608 - made of our own statements only
        f"SELECT CASE WHEN count(*) = ${count}::bigint THEN 1 ELSE ({said})::integer END FROM met"
    )


def _deletes(changes: RowChanges, places: RowPlaces) -> list[Statement]:
    made: list[Statement] = []
    if changes.drop_leases:
        tasks, tokens = zip(*changes.drop_leases, strict=True)
        held = [places.leases[task] for task in tasks if task in places.leases]
        if len(held) == len(tasks):
            made.append(_checked("delete_held", len(tasks), texts(held), integers(tokens)))
        else:
            made.append(_checked("delete_leases", len(tasks), texts(tasks), integers(tokens)))
    if leaving := changes.drop_ready:
        picked = [places.ready[row.task] for row in leaving if row.task in places.ready]
        if len(picked) == len(leaving):
            made.append(_checked("delete_picked", len(leaving), texts(picked)))
        else:
            lanes, ranks = integers([row.lane for row in leaving]), integers([row.rank for row in leaving])
            made.append(_checked("delete_ready", len(leaving), lanes, ranks, texts([row.task for row in leaving])))
    if changes.drop_timers:
        if alone := [owner for owner in changes.drop_timers if owner not in places.timed]:
            made.append(_plain("delete_timers", texts(alone)))
        gone = {task for task, _ in changes.drop_leases}
        if stays := [owner for owner in changes.drop_timers if owner not in gone]:
            made.append(_plain("take_timers", texts(stays)))
    rows: Sequence[object]
    for name, rows in (("delete_waits", changes.drop_waits), ("delete_bars", changes.drop_bars)):
        made += [_plain(name, json(rows))] if rows else []
    if changes.drop_agents:
        made.append(_plain("delete_agents", texts(changes.drop_agents)))
    if changes.drop_spreads:
        made.append(_plain("delete_spreads", texts(changes.drop_spreads)))
    return made


def _updates(changes: RowChanges) -> list[Statement]:
    made: list[Statement] = []
    if changes.leases:
        made.append(_checked("update_leases", len(changes.leases), json([_renewal(lease) for lease in changes.leases])))
    for name, rows in (
        ("update_runs", changes.runs),
        ("update_services", changes.services),
        ("update_health", changes.health),
        ("update_questions", changes.questions),
        ("keep_late", changes.late_attempts),
    ):
        if rows:
            made.append(_checked(name, len(rows), json(rows)))
    if changes.tasks:
        kept = {task: _kept(ended) for task, ended in changes.kept_with_task().items()}
        tasks, results = zip(*changes.tasks, strict=True)
        made.append(
            _checked(
                "update_tasks",
                len(tasks),
                texts([task.id for task in tasks]),
                texts([task.state for task in tasks]),
                maybe_integers([task.ended_at for task in tasks]),
                maybe_texts(results),
                lines([task.record for task in tasks]),
                lines([kept.get(task.id) for task in tasks]),
            )
        )
    return made


def _inserts(changes: RowChanges) -> list[Statement]:
    made: list[Statement] = []
    if changes.new_tasks:
        tasks, payloads = zip(*changes.new_tasks, strict=True)
        made.append(_plain("insert_tasks", json(tasks), json(payloads)))
    if changes.recorded:
        made.append(_plain("insert_recorded", json([_recorded(one) for one in changes.recorded])))
    if changes.new_leases:
        made += _new_leases(changes.new_leases, dict(changes.timers))
    kept = changes.kept_with_task()
    rows: Sequence[object]
    for name, rows in (
        ("insert_runs", changes.new_runs),
        ("insert_services", changes.new_services),
        ("insert_agents", changes.new_agents),
        ("put_agents", changes.agents),
        ("insert_health", changes.new_health),
        ("insert_questions", changes.new_questions),
        ("insert_ready", changes.new_ready),
        ("insert_waits", changes.new_waits),
        ("insert_bars", changes.new_bars),
        ("insert_attempts", [ended for ended in changes.new_attempts if kept.get(ended.task) is not ended]),
        ("put_expenses", changes.expenses),
        ("insert_spreads", changes.new_spreads),
    ):
        if rows:
            made.append(_plain(name, json(rows)))
    made += _timers(changes)
    made += _events(changes.events, changes.at)
    return made


def _new_leases(leases: Sequence[LeaseRow], due: Mapping[str, Millis]) -> list[Statement]:
    alike: dict[_Grant, list[TaskId]] = {}
    for lease in leases:
        alike.setdefault(_grant(lease, due.get(lease.task)), []).append(lease.task)
    if len(alike) <= _ALIKE_MOST:
        made = [_plain("insert_leases_alike", texts(tasks), *grant) for grant, tasks in alike.items()]
    else:
        tasks = texts([task for some in alike.values() for task in some])
        columns = zip(*(grant for grant, some in alike.items() for _ in some), strict=True)
        values = [texts(column) if isinstance(column[0], str) else maybe_integers(column) for column in columns]
        made = [_plain("insert_leases", tasks, *values)]
    if told := [lease for lease in leases if _tail(lease) != _UNTOLD]:
        made.append(_checked("update_leases", len(told), json([_renewal(lease) for lease in told])))
    return made


_ALIKE_MOST = 4
"""So many statements for leases that are alike take less time than one for leases that are not."""
_Grant = tuple[int, str, int, int, int | None, int | None, int, int, int, str, int, int | None, int | None]


def _grant(lease: LeaseRow, due: Millis | None) -> _Grant:
    """A lease as it is granted, without its task."""
    return (
        lease.token,
        lease.agent,
        lease.granted_at,
        lease.deadline,
        lease.length,
        lease.idle,
        lease.ask_every,
        lease.ask_wait,
        lease.grace,
        lease.command,
        lease.renewed_at,
        lease.own,
        due,
    )


_UNTOLD = (0, None, None, None, "")


def _tail(lease: LeaseRow) -> tuple[object, ...]:
    """What a check-in or a tick leaves on a lease."""
    return lease.judged, lease.stalled_at, lease.checkin_at, lease.progress, lease.note


def _timers(changes: RowChanges) -> list[Statement]:
    """Timers by themselves; those that come with a lease are in its row."""
    with_lease = {lease.task for lease in changes.new_leases}
    alone = [timer for timer in changes.timers if timer[0] not in with_lease]
    if not alone:
        return []
    owners = texts([owner for owner, _ in alone])
    return [_plain("take_timers", owners), _plain("put_timers", owners, integers([due for _, due in alone]))]


def _events(events: Sequence[Event], at: Millis) -> list[Statement]:
    return [
        _plain("insert_events", json(events[start : start + EVENTS_MOST]), at)
        for start in range(0, len(events), EVENTS_MOST)
    ]


def _renewal(lease: LeaseRow) -> _LeaseUpdate:
    return _LeaseUpdate(
        lease.task,
        lease.token,
        lease.deadline,
        lease.renewed_at,
        lease.judged,
        lease.stalled_at,
        lease.checkin_at,
        lease.progress,
        lease.note,
        lease.own,
    )


def _recorded(made: FinishedTask) -> _Recorded:
    task = made.task
    return _Recorded(
        task.id,
        task.name,
        task.run,
        task.role,
        task.lane,
        task.priority,
        task.state,
        task.created_at,
        task.ended_at,
        json(task.spec),
        json(task.record),
        made.payload,
        task.rank,
        made.result,
        json(_kept(made.attempt)),
    )


def _kept(ended: Attempt) -> tuple[str, int, int, str, str, str]:
    """A first attempt as its task's row keeps it."""
    return ended.agent, ended.granted_at, ended.ended_at, ended.outcome, ended.command, ended.detail
