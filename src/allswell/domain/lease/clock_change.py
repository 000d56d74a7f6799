"""A wall clock that was set: what moves with it, and what stays (docs/adr/0033).

Moments in a store are wall-clock moments. When the wall is set, or a store was once written by a machine that ran
ahead, they are all off by the same length. **Settling** moves everything by it that was meant as a stretch of time:
what is left of it is then the same as before. What was meant as a moment stays: a not-before, and the
reset of a usage limit.

Settling goes over many rows, a chunk at a time, so how far it has got is kept in the store (`ClockAdjustment`), written
together with each chunk: the next process goes on where the last one was killed, and no row is moved twice.
"""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.lease.model import Agent, LeaseRow
from allswell.domain.run.run import Run
from allswell.domain.service.breaker import Service
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.aggregate import TaskAggregate, due_of
from allswell.domain.task.model import RequestRecord, Task

TOLERATED = 5_000
"""Milliseconds that a store's clock stands still for a wall behind it; one further behind was set back."""
_RESET_MOST = 8 * 24 * 3_600_000
"""Limits of providers last a week at most; a service parked for longer was parked by a clock that ran ahead."""


class ClockAdjustment(msgspec.Struct, frozen=True, omit_defaults=True, gc=False):
    """How often this store has been settled, and how far the present settling has got."""

    count: int = 0
    by: int | None = None
    """What every moment moves by; None: nothing is being settled."""
    after: str = ""
    """The last owner of a timer whose rows have moved."""
    distance: str | None = None
    """How far the clocks were apart when it began, and on which machine; see `distance_on`."""


def distance_note(machine: str, apart: int) -> str:
    """How far two clocks of a machine are apart, as it is kept."""
    return f"{machine} {apart}"


def distance_on(machine: str | None, note: str | None) -> int | None:
    """How far the clocks of this machine were apart when that was last noted; None if it never was."""
    noted, _, apart = (note or "").rpartition(" ")
    return int(apart) if machine is not None and noted == machine else None


def off_by(latest: int, wall: int, before: int | None, apart: int) -> int | None:
    """What to settle by, either way; None where nothing is to be settled.

    `before` and `apart` say how far the wall was and is ahead of a clock of this machine that is never set: their
    difference is what the wall was set by, however long ago the last look was. After a restart, or on another machine,
    only the latest moment that was given out or stored is known, and a wall behind it; then no time has passed since,
    so that nothing comes too early.
    """
    if before is not None and abs(apart - before) > TOLERATED:
        return apart - before
    return wall - latest if latest - wall > TOLERATED else None


def moved_lease(lease: LeaseRow, by: int) -> LeaseRow:
    """A lease that has as much time left as before."""
    return replace(
        lease,
        granted_at=Millis(lease.granted_at + by),
        deadline=Millis(lease.deadline + by),
        stalled_at=_moved(lease.stalled_at, by),
        renewed_at=Millis(lease.renewed_at + by),
        checkin_at=_moved(lease.checkin_at, by),
        own=_moved(lease.own, by),
    )


def moved_case(case: TaskAggregate, by: int) -> TaskAggregate:
    """A task whose attempt, pause or time for an answer is as long as before; its not-before stays."""
    task = case.task
    limit = _moved(task.spec.limit_at, by)
    if limit is not None:
        task = replace(task, spec=replace(task.spec, limit_at=limit))
    if task.record.request is not None:
        task = replace(task, record=replace(task.record, request=moved_request(task.record.request, by)))
    if case.lease is not None:
        lease = moved_lease(case.lease, by)
        return replace(case, task=task, lease=lease, due=due_of(task, lease))
    return replace(case, task=task, due=_moved_timer(case, task, by))


def moved_request(request: RequestRecord, by: int) -> RequestRecord:
    """A request whose delivery has as much time left as before."""
    since, due = Millis(request.since + by), Millis(request.due + by)
    blocked_at, alert_at = _moved(request.blocked_at, by), _moved(request.alert_at, by)
    return replace(request, since=since, due=due, blocked_at=blocked_at, alert_at=alert_at)


def _moved_timer(case: TaskAggregate, task: Task, by: int) -> Millis | None:
    """When a task that is not held falls due: it is over as a request, or its pause or its not-before is."""
    if case.due is None:
        return None
    due, start = Millis(case.due + by), task.spec.not_before
    if start is None or case.due < start or case.waits or case.ready is not None:
        return due
    return start if case.due == start else max(due, start)


def moved_run(run: Run, by: int) -> Run:
    """A run that ends as long from now as before."""
    return replace(run, created_at=Millis(run.created_at + by), deadline=_moved(run.deadline, by))


def moved_service(row: ServiceRow, by: int, wall: int) -> ServiceRow:
    """A service whose breaker pauses as long as before. A limit's reset stays, if it can be one."""
    state: Service = row.state
    parked = state.parked_until
    if parked is not None and by < 0 and parked - wall > _RESET_MOST:
        parked = Millis(parked + by)
    opens, probed = _moved(state.open_until, by), _moved(state.probe_until, by)
    state = replace(state, open_until=opens, probe_until=probed, parked_until=parked)
    return replace(row, state=state, since=Millis(min(row.since + by, wall)))


def moved_agent(agent: Agent, wall: int) -> Agent:
    """What is held against an agent; it was missed by now, whatever the clock said then."""
    return replace(agent, missed_at=Millis(min(agent.missed_at, wall)))


def _moved(moment: Millis | None, by: int) -> Millis | None:
    return None if moment is None else Millis(moment + by)
