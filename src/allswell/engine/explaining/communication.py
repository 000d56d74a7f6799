"""The communication log, read from the journal."""

from __future__ import annotations

from allswell.domain.comms import HEARS, Asked, Comm, comm_for
from allswell.domain.event import Event
from allswell.domain.journal import Entry
from allswell.domain.names import TaskId
from allswell.store.views import Views


async def comm_of(views: Views, entry: Entry) -> Comm | None:
    """The row that an entry of the journal is; None for what is no message between agents."""
    event = entry.event
    return comm_for(event, entry.at, await asked_of(views, event)) if event.kind in HEARS else None


async def asked_of(views: Views, event: Event) -> Asked:
    """What the request says of itself that an event is about."""
    row = await views.view_task(TaskId(str(event.data["request"])))
    asker = None if event.task is None else await views.view_task(event.task)
    blocked = str(event.task or "") if asker is None else asker.task.name
    if row is None:  # kept by an older version, or not any more: the event itself has the most of it
        return Asked(str(event.data["request"]), str(event.data.get("to", "")), None, blocked)
    spec, record = row.task.spec.request, row.task.record.request
    if spec is None or record is None:
        return Asked(row.task.name, row.task.role, row.task.spec.policy.timeout, blocked)
    return Asked(row.task.name, spec.to.removeprefix("role:"), spec.timeout, blocked, record.attempt)
