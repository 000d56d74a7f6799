"""A task: where it stands, who has it, what it waits for; and what came of submitting or cancelling it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from msgspec import Meta, Raw, Struct

from allswell.domain.ids import TaskId, is_request
from allswell.domain.task.answer import is_dismissed
from allswell.domain.task.model import TaskFilter, TaskRow, WaitState
from allswell.engine.lookup import find_run
from allswell.timing.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.engine.submission import Submitted
    from allswell.store.views import Views

_NAMED = 200
"""Tasks that are looked up for their names."""


class WaitShape(Struct, frozen=True, gc=False):
    """One thing that a task waits for: another task, the answer to a question, or that of another agent."""

    kind: Literal["need", "question", "request"]
    task_id: str | None
    question_id: str | None
    request_id: str | None

    @classmethod
    def of(cls, wait: WaitState) -> WaitShape:
        """What is waited for."""
        target = wait.target
        if wait.kind == "need" or (wait.kind == "request" and not is_request(target)):
            return cls("need", target, None, None)
        return cls("question", None, target, None) if wait.kind == "question" else cls("request", None, None, target)


class TaskShape(Struct, frozen=True):
    """A task as it stands; its holder and the end of the lease are null while it is not held."""

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
    timeout_ms: int | None
    """The hard limit of its next attempt; null: it has none."""
    retry_of_id: str | None
    """The ended task that was handed over again as this one."""
    retried_as_id: str | None
    """The new task, where this one was handed over again."""
    dismissed_by: str | None
    """Who has seen what came of it, where nothing has happened to it since."""
    granted_at: Moment | None
    """Since when its holder has it."""
    timeout_raised: bool
    """Whether a human has changed its hard limit."""

    @classmethod
    def of(cls, row: TaskRow) -> TaskShape:
        """A task with what is known of it."""
        task, lease = row.task, row.lease
        return cls(
            task_id=task.id,
            name=task.name,
            state=row.state,
            role=task.role,
            priority=task.priority,
            run_id=task.run,
            created_at=moment(task.created_at),
            ended_at=moment(task.ended_at),
            reason=task.record.reason or None,
            attempts=task.record.token + (lease is not None),
            agent_id=None if lease is None else lease.agent,
            token=None if lease is None else lease.token,
            deadline=None if lease is None else moment(lease.limit_at),
            checkin_at=None if lease is None else moment(lease.checkin_at),
            progress=None if lease is None else lease.progress,
            note=(lease.note or None) if lease is not None else None,
            due_at=None if lease is not None and lease.limit is None and row.due == lease.deadline else moment(row.due),
            waits_for=tuple(map(WaitShape.of, row.waits)),
            needs=task.spec.needs,
            services=task.spec.services,
            critical=task.spec.critical,
            timeout_ms=task.timeout,
            retry_of_id=task.spec.retry_of,
            retried_as_id=task.record.retried_as,
            dismissed_by=seen.by if (seen := task.record.dismissed) is not None and is_dismissed(task) else None,
            granted_at=None if lease is None else moment(lease.granted_at),
            timeout_raised=bool(task.record.timeout_override),
        )


async def load_names(views: Views, rows: Sequence[TaskRow]) -> dict[str, str]:
    """The names of what tasks wait for or ended for: most stand on the same page, a few more are looked up."""
    names: dict[str, str] = {row.task.id: row.task.name for row in rows}
    waited = [wait.target for row in rows for wait in row.waits if wait.kind != "question"]
    ended = [row.task.record.reason.partition(" ")[0] for row in rows if row.task.record.reason]
    missing = [one for one in dict.fromkeys(waited + ended) if one.startswith(("t_", "m_")) and one not in names]
    which = TaskFilter(ids=tuple(map(TaskId, missing[:_NAMED])), limit=_NAMED)
    return names | {row.task.id: row.task.name for row in (await views.view_tasks(which) if missing else ())}


class TasksShape(Struct, frozen=True):
    """A page of tasks; `next` is what to give as `--after` for the next one, null on the last page."""

    tasks: list[TaskShape]
    next: str | None

    @classmethod
    def of(cls, rows: Sequence[TaskRow], *, more: bool) -> TasksShape:
        """A page, and whether there is another one."""
        return cls([TaskShape.of(row) for row in rows], rows[-1].task.id if more else None)


async def load_tasks(  # noqa: PLR0913 - all but the views are keywords
    views: Views,
    *,
    states: Sequence[str],
    ended: bool,
    run: str | None,
    name: str | None,
    role: str | None,
    after: str,
    limit: int,
) -> tuple[list[TaskRow], bool]:
    """A page of tasks, and whether there is another one; with a state or a name, or if `ended`, not only open ones."""
    open_ = None if ended or states or name is not None else True
    of_run = None if run is None else await find_run(views, run)
    rows = await views.view_tasks(TaskFilter(open_, of_run, name, role, tuple(states), after, limit + 1))
    return rows[:limit], len(rows) > limit


# What was handed over, and the runs that it joined.


class JoinedRunShape(Struct, frozen=True):
    """A run that new tasks belong to, by what it was called; whether it was opened for them."""

    run_id: str
    name: str
    opened: bool


def joined_runs(submitted: Submitted) -> list[JoinedRunShape]:
    """Each run by the name it was called, and which of them are new."""
    return [JoinedRunShape(id_, name, name in submitted.opened) for name, id_ in submitted.runs.items()]


class SubmittedShape(Struct, frozen=True):
    """A task was accepted: it is durable."""

    task_id: str
    name: str
    runs: list[JoinedRunShape]


class SubmittedManyShape(Struct, frozen=True):
    """So many tasks were accepted; their ids stand in the order of the lines, as a list of texts."""

    submitted: int
    task_ids: Annotated[Raw, Meta(extra_json_schema={"type": "array", "items": {"type": "string"}})]
    runs: list[JoinedRunShape]


# What was cancelled.


class CancelledShape(Struct, frozen=True):
    """A task was cancelled, or a run with all its tasks."""

    task_id: str | None
    run_id: str | None
    cancelled: bool


# What was handed over again.


class RenewalShape(Struct, frozen=True):
    """An ended task, which stays ended, and the new one that carries its history."""

    task_id: str
    new_task_id: str


class RetriedShape(Struct, frozen=True):
    """Ended tasks that were handed over again, the one that was named first."""

    retried: list[RenewalShape]

    @classmethod
    def of(cls, new: Mapping[str, str]) -> RetriedShape:
        """By the new ids of the old ones."""
        return cls([RenewalShape(old, made) for old, made in new.items()])


# What was dismissed.


class DismissedShape(Struct, frozen=True):
    """A question or a task that was marked as seen; a question stays open."""

    task_id: str | None
    question_id: str | None
    dismissed_by: str


class DismissedSupervisorShape(Struct, frozen=True):
    """A silent supervisor that is not waited for any more."""

    supervisor: str
    host: str
    dismissed_by: str
