"""Messages between agents: those first that somebody is blocked by, then the communication log, the newest first."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec import Struct

from allswell.domain.comms import HEARS, STATUSES, Comm
from allswell.domain.journal import Entry
from allswell.domain.listing import TaskFilter, TaskRow, folded
from allswell.domain.names import TaskId
from allswell.doors.http.call import Call
from allswell.doors.page.query import address, choice_of, number_of, text_of
from allswell.engine.explaining.backwards import look_back
from allswell.engine.explaining.communication import comm_of

PAGE = 50
_BLOCKED = 200
_KINDS: Mapping[str, tuple[str, ...]] = {
    "Sent": ("request_sent", "request_delivered", "mesh_asked", "request_closed"),
    "Received": ("request_closed",),
    "Timeout": ("request_expired", "request_closed"),
    "Blocked": ("request_blocked", "task_blocked_long"),
    "Resolved": ("request_closed", "request_resolved"),
}
"""The events that a row with this status can be made of."""


class BlockedTask(Struct, frozen=True):
    """A task that cannot go on because somebody has not answered."""

    row: TaskRow
    request: TaskRow
    to: str


class MessageLine(Struct, frozen=True):
    """One row of the log."""

    id: str
    comm: Comm


class MessagesScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    blocked: list[BlockedTask]
    lines: list[MessageLine]
    statuses: tuple[str, ...]
    status: str
    agent: str
    newest: str | None
    older: str | None
    filtered: bool


def is_about(_: Call, entry: Entry) -> bool:
    """Whether an event is a message, or may end a wait for one."""
    return entry.event.kind in HEARS or entry.event.kind.startswith("task_")


async def look(call: Call) -> MessagesScreen:
    """Look at a page of messages."""
    status, agent = choice_of(call, "status", STATUSES), text_of(call, "agent")
    before = number_of(call, "before", 1 << 39)
    page = await look_back(call.views, _fits(status, agent), PAGE, before or None)
    lines = []
    for entry in page.entries:
        comm = await comm_of(call.views, entry)
        if comm is not None and (not status or comm.status == status):
            lines.append(MessageLine(f"{entry.position.xid}-{entry.position.id}", comm))
    return MessagesScreen(
        title="Messages",
        now=(await call.views.view_agenda()).now,
        blocked=await _blocked(call),
        lines=lines,
        statuses=STATUSES,
        status=status,
        agent=agent,
        newest=address("/messages", status=status, agent=agent) if before else None,
        older=None if page.before is None else address("/messages", status=status, agent=agent, before=page.before),
        filtered=bool(status or agent),
    )


def _fits(status: str, agent: str) -> Callable[[Entry], bool]:
    kinds = frozenset(_KINDS[status] if status else HEARS)
    wanted = folded(agent)

    def fits(entry: Entry) -> bool:
        event = entry.event
        if event.kind not in kinds:
            return False
        named = "\n".join((event.agent or "", str(event.data.get("to", "")), str(event.data.get("by", ""))))
        return not wanted or wanted in folded(named)

    return fits


async def _blocked(call: Call) -> list[BlockedTask]:
    """The tasks that wait for an answer of another agent, the longest first."""
    waiting = await call.views.view_tasks(TaskFilter(states=("waiting",), limit=_BLOCKED))
    asked = [(row, wait.target) for row in waiting for wait in row.waits if wait.kind == "request"]
    ids = tuple(TaskId(target) for _, target in asked)
    found = await call.views.view_tasks(TaskFilter(ids=ids, limit=len(ids))) if ids else []
    requests = {row.task.id: row for row in found}
    return [
        BlockedTask(row, requests[TaskId(id_)], _to(requests[TaskId(id_)])) for row, id_ in asked if id_ in requests
    ]


def _to(request: TaskRow) -> str:
    spec = request.task.spec.request
    return request.task.role if spec is None else spec.to.removeprefix("role:")
