"""A claimed task, as whoever works on it gets it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw, Struct

from allswell.doors.shapes.moment import Moment, moment

if TYPE_CHECKING:
    from allswell.domain.claim import Granted
    from allswell.domain.task import Handover, Task


class HandoverShape(Struct, frozen=True):
    """What the attempt before leaves to this one."""

    reason: str
    agent_id: str
    message: str
    note: str
    progress: float | None
    answer: str

    @classmethod
    def of(cls, left: Handover) -> HandoverShape:
        """What was left."""
        return cls(left.reason, left.agent, left.message, left.note, left.progress, left.answer)


class ClaimedTaskShape(Struct, frozen=True):
    """What is to be done."""

    task_id: str
    name: str
    role: str
    priority: int
    payload: Raw
    attempt: int
    run_id: str | None
    services: tuple[str, ...]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, task: Task, payload: str, attempt: int) -> ClaimedTaskShape:
        """A task with its payload, which is JSON."""
        return cls(
            task_id=task.id,
            name=task.name,
            role=task.role,
            priority=task.priority,
            payload=Raw(payload.encode()),
            attempt=attempt,
            run_id=task.run,
            services=task.spec.services,
            notes=task.record.notes,
        )


class ClaimShape(Struct, frozen=True):
    """A task with the lease on it: every word about it carries the token."""

    task: ClaimedTaskShape
    token: int
    agent_id: str
    deadline: Moment
    remaining_ms: int
    renew_every_ms: int | None
    handover: HandoverShape | None

    @classmethod
    def of(cls, granted: Granted) -> ClaimShape:
        """What was granted."""
        lease, handover = granted.lease, granted.task.record.handover
        return cls(
            task=ClaimedTaskShape.of(granted.task, granted.payload, lease.token),
            token=lease.token,
            agent_id=lease.agent,
            deadline=moment(lease.deadline),
            remaining_ms=lease.deadline - granted.told_at,
            renew_every_ms=lease.length,
            handover=None if handover is None else HandoverShape.of(handover),
        )


class NoClaimShape(Struct, frozen=True):
    """There is nothing to claim."""

    task: None


class ClaimsShape(Struct, frozen=True):
    """As many claims as were wanted, or as there were."""

    claims: list[ClaimShape]
