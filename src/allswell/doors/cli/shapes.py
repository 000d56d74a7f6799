"""The JSON shapes of the command line: what programs may rely on. Moments are milliseconds since the epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from allswell.domain.case import Case, state
from allswell.domain.late import afterwards
from allswell.domain.run import went_on_in
from allswell.domain.task import Ready
from allswell.errors import Bug

if TYPE_CHECKING:
    from allswell.domain.question import Question
    from allswell.domain.run import Run
    from allswell.domain.task import Attempt
    from allswell.engine.claims import Granted
    from allswell.store.port import Entry, TaskRow

Shape = dict[str, object]
NOWHERE = "nowhere"
"""The state of a task that nothing will ever move again: there must be none, so it is shown where there is one."""


_HANDOVER: Shape = {"reason": "", "agent": "", "message": "", "note": "", "progress": None, "answer": ""}
"""Every field is there, also where a row leaves it out."""


def stands(row: TaskRow) -> str:
    """Where a task stands."""
    task = row.task
    ready = Ready(task.id, task.lane, 0) if row.ready else None
    try:
        return state(Case(task, lease=row.lease, ready=ready, due=row.due, waits=row.waits)).value
    except Bug:
        return NOWHERE


def task(row: TaskRow) -> Shape:
    """A task as it stands."""
    told = row.task
    lease = row.lease
    return {
        "id": told.id,
        "name": told.name,
        "state": stands(row),
        "role": told.role,
        "priority": told.priority,
        "run": told.run,
        "created_at": told.created_at,
        "ended_at": told.ended_at,
        "reason": told.record.reason or None,
        "attempts": told.record.token + (lease is not None),
        "agent": None if lease is None else lease.agent,
        "token": None if lease is None else lease.token,
        "deadline": None if lease is None else lease.deadline,
        "checkin_at": None if lease is None else lease.checkin_at,
        "progress": None if lease is None else lease.progress,
        "note": (lease.note or None) if lease is not None else None,
        "due_at": row.due,
        "waits_for": [{"kind": wait.kind, "id": wait.target} for wait in row.waits],
        "needs": list(told.spec.needs),
        "services": list(told.spec.services),
        "critical": told.spec.critical,
        "timeout_ms": told.timeout,
    }


def claim(granted: Granted) -> Shape:
    """A claimed task, as an agent gets it."""
    lease, told = granted.lease, granted.task
    handover = told.record.handover
    return {
        "task": {
            "id": told.id,
            "name": told.name,
            "role": told.role,
            "priority": told.priority,
            "payload": msgspec.Raw(granted.payload.encode()),
            "attempt": lease.token,
            "run": told.run,
            "services": list(told.spec.services),
            "notes": list(told.record.notes),
        },
        "token": lease.token,
        "agent": lease.agent,
        "deadline": lease.deadline,
        "remaining_ms": lease.deadline - granted.told_at,
        "renew_every_ms": lease.length,
        "handover": None if handover is None else {**_HANDOVER, **msgspec.to_builtins(handover)},
    }


def attempt(ended: Attempt) -> Shape:
    """How one attempt ended, and what its holder still said afterwards."""
    after = afterwards(ended)
    return {
        "token": ended.token,
        "agent": ended.agent,
        "granted_at": ended.granted_at,
        "ended_at": ended.ended_at,
        "outcome": ended.outcome,
        "detail": ended.detail,
        "late": None if ended.late is None else msgspec.Raw(ended.late.encode()),
        "late_words": [{"verb": word.verb, "at": word.at, "text": word.text, "cut": word.cut} for word in after.words],
        "late_words_more": after.more,
        "late_checkins": after.checkins,
        "late_checkin": None
        if after.checkin_at is None
        else {"at": after.checkin_at, "note": after.note, "progress": after.progress},
    }


def question(asked: Question) -> Shape:
    """A question, open or closed."""
    return {
        "id": asked.id,
        "task": asked.task,
        "service": asked.service,
        "run": asked.run,
        "kind": asked.kind,
        "text": asked.text,
        "options": [{"key": option.key, "label": option.label, "act": option.act.value} for option in asked.options],
        "asked_at": asked.asked_at,
        "asked_by": asked.asked_by,
        "closed_at": asked.closed_at,
        "choice": asked.choice,
        "answer": asked.answer,
        "answered_by": asked.answered_by,
    }


def run(told: Run, last: Run | None = None) -> Shape:
    """A run; with the last one in which it went on, how it all stands."""
    last = last or told
    return {
        "id": told.id,
        "name": told.name,
        "created_at": told.created_at,
        "deadline": None if last.deadline is None else last.deadline + last.stood,
        "stands_since": last.stands_since,
        "stood_ms": last.stood,
        "ended_at": last.ended_at,
        "reason": last.reason or None,
        "went_on_in": went_on_in(told),
    }


def event(entry: Entry) -> Shape:
    """One fact of the journal."""
    told = entry.event
    return {
        "position": [entry.position.xid, entry.position.id],
        "at": entry.at,
        "kind": told.kind,
        "task": told.task,
        "run": told.run,
        "agent": told.agent,
        "token": told.token,
        "data": dict(told.data),
    }
