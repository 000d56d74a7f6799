"""A task for the outside: where it stands, who has it, what it waits for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from msgspec import Struct

from allswell.domain.case import Case, state
from allswell.domain.dismissal import is_dismissed
from allswell.domain.task import Ready
from allswell.doors.shapes.moment import Moment, moment
from allswell.errors import Bug

if TYPE_CHECKING:
    from collections.abc import Sequence

    from allswell.domain.listing import TaskRow
    from allswell.domain.task import Wait

NOWHERE = "nowhere"
"""The state of a task that nothing will ever move again: there must be none, so it is shown where there is one."""


def stands(row: TaskRow) -> str:
    """Where a task stands."""
    task = row.task
    ready = Ready(task.id, task.lane, 0) if row.ready else None
    try:
        return state(Case(task, lease=row.lease, ready=ready, due=row.due, waits=row.waits)).value
    except Bug:
        return NOWHERE


class WaitShape(Struct, frozen=True, gc=False):
    """One thing that a task waits for: another task, the answer to a question, or that of another agent."""

    kind: Literal["need", "question", "request"]
    task_id: str | None
    question_id: str | None
    request_id: str | None

    @classmethod
    def of(cls, wait: Wait) -> WaitShape:
        """What is waited for."""
        target = wait.target
        if wait.kind == "need":
            return cls("need", target, None, None)
        return cls("question", None, target, None) if wait.kind == "question" else cls("request", None, None, target)


class TaskShape(Struct, frozen=True):
    """A task as it stands; who holds it and until when are null while nobody does."""

    task_id: str
    name: str
    state: str
    role: str
    priority: int
    run_id: str | None
    created_at: Moment
    ended_at: Moment | None
    reason: str | None
    attempts: int
    agent_id: str | None
    token: int | None
    deadline: Moment | None
    checkin_at: Moment | None
    progress: float | None
    note: str | None
    due_at: Moment | None
    waits_for: tuple[WaitShape, ...]
    needs: tuple[str, ...]
    services: tuple[str, ...]
    critical: bool
    timeout_ms: int
    retry_of_id: str | None
    """The ended task that was handed over again as this one."""
    retried_as_id: str | None
    """The new task, where this one was handed over again."""
    dismissed_by: str | None
    """Who has seen what came of it, where nothing has happened to it since."""

    @classmethod
    def of(cls, row: TaskRow) -> TaskShape:
        """A task with what is known of it."""
        task, lease = row.task, row.lease
        return cls(
            task_id=task.id,
            name=task.name,
            state=stands(row),
            role=task.role,
            priority=task.priority,
            run_id=task.run,
            created_at=moment(task.created_at),
            ended_at=moment(task.ended_at),
            reason=task.record.reason or None,
            attempts=task.record.token + (lease is not None),
            agent_id=None if lease is None else lease.agent,
            token=None if lease is None else lease.token,
            deadline=None if lease is None else moment(lease.deadline),
            checkin_at=None if lease is None else moment(lease.checkin_at),
            progress=None if lease is None else lease.progress,
            note=(lease.note or None) if lease is not None else None,
            due_at=moment(row.due),
            waits_for=tuple(map(WaitShape.of, row.waits)),
            needs=task.spec.needs,
            services=task.spec.services,
            critical=task.spec.critical,
            timeout_ms=task.timeout,
            retry_of_id=task.spec.retry_of,
            retried_as_id=task.record.retried_as,
            dismissed_by=seen.by if (seen := task.record.dismissed) is not None and is_dismissed(task) else None,
        )


class TasksShape(Struct, frozen=True):
    """A page of tasks; `next` is what to give as `--after` for the next one, null where there is none."""

    tasks: list[TaskShape]
    next: str | None

    @classmethod
    def of(cls, rows: Sequence[TaskRow], *, more: bool) -> TasksShape:
        """A page, and whether there is another one."""
        return cls([TaskShape.of(row) for row in rows], rows[-1].task.id if more else None)
