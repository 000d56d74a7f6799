"""Agents: everybody with what they do, how they are and what they cost; and one, with its ledger."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from allswell.domain.agents.cost import NOTHING_SPENT
from allswell.domain.agents.status import AgentCondition, is_alive
from allswell.domain.ids import TaskId, is_request
from allswell.domain.mesh.comms import COMMS_HEARS, STATUSES
from allswell.domain.mesh.health import Ledger, healthy_at, score
from allswell.domain.mesh.routing import family
from allswell.domain.rules.event import Entry
from allswell.domain.task.model import TaskFilter, TaskRow, folded
from allswell.engine.status.agents import ABSENT, IDLE, AgentRow
from allswell.engine.status.journal import comm_of, look_back, read_health, read_ledger
from allswell.engine.status.overview import order_of
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.web.screen import Seen, address, choice_of, number_of, text_of
from allswell.views.agent import load_crew

PAGE = 50
HEALTHS = (*(condition.value for condition in AgentCondition), IDLE, ABSENT)


async def look_at_agents(call: RequestContext) -> Seen:
    """Look at a page of agents."""
    crew = await load_crew(call.views, call.house.settings)
    health, text, first = choice_of(call, "health", HEALTHS), text_of(call, "text"), number_of(call, "from")
    members = sorted(crew.members, key=order_of)
    wanted = folded(text)
    named = [one for one in members if not wanted or wanted in folded(_called(one))]
    found = [one for one in named if not health or one.health == health]
    counts = {one: sum(member.health == one for member in named) for one in HEALTHS}

    def page(start: int) -> str:
        return address("/agents", health=health, text=text, from_=start)

    return Seen(
        title="Agents",
        now=crew.now,
        supervisors=[(one, is_alive(one, crew.now)) for one in crew.supervisors],
        members=found[first : first + PAGE],
        total=len(found),
        healths=[(one, count, address("/agents", health=one, text=text)) for one, count in counts.items() if count],
        health=health,
        text=text,
        first=first,
        before=None if first == 0 else page(max(first - PAGE, 0)),
        after=page(first + PAGE) if first + PAGE < len(found) else None,
    )


def _called(member: AgentRow) -> str:
    return "\n".join((member.agent, member.role or "", member.kind or "", member.name or "", member.supervisor or ""))


# One agent: what it holds, how it is, what it has cost, and its ledger: what counts for it and against it.

_DAY = 86_400_000
_LINES = 200
_LOOKED_AT = 10_000
"""Events of the last day that its ledger is read from."""


async def look_at_agent(call: RequestContext) -> Seen:
    """Look at one agent."""
    agent = call.named("agent")
    crew = await load_crew(call.views, call.house.settings)
    now = crew.now
    found = await read_ledger(call.views, agent, now - _DAY, _LOOKED_AT)
    standing = await read_health(call.views, family(agent))
    ever = await call.views.view_spent("agent", (agent,))
    today = await call.views.view_spent("agent", (agent,), now - now % _DAY)
    return Seen(
        title=agent,
        now=now,
        agent=agent,
        members=[one for one in crew.members if agent in (one.agent, family(one.agent))][:_LINES],
        ledger=Ledger(agent, found.lines[-_LINES:][::-1], found.cut),
        lines_more=max(len(found.lines) - _LINES, 0),
        score=score(standing, now),
        healthy_at=healthy_at(standing, now),
        today=today.get(agent, NOTHING_SPENT),
        ever=ever.get(agent, NOTHING_SPENT),
    )


# Messages between agents: those first that somebody is blocked by, then the communication log, the newest first.

_BLOCKED = 200
_KINDS: Mapping[str, tuple[str, ...]] = {
    "Sent": ("request_sent", "request_delivered", "mesh_asked", "request_declined", "request_closed"),
    "Received": ("request_declined", "request_closed"),
    "Timeout": ("request_expired", "request_closed"),
    "Blocked": ("request_blocked", "task_blocked_long"),
    "Resolved": ("request_declined", "request_closed", "request_resolved"),
}
"""The events that a row with this status can be made of."""


def is_message(_: RequestContext, entry: Entry) -> bool:
    """Whether an event is a message, or may end a wait for one."""
    return entry.event.kind in COMMS_HEARS or entry.event.kind.startswith("task_")


async def look_at_messages(call: RequestContext) -> Seen:
    """Look at a page of messages."""
    status, agent = choice_of(call, "status", STATUSES), text_of(call, "agent")
    before = number_of(call, "before", 1 << 39)
    page = await look_back(call.views, _fits(status, agent), PAGE, before or None)
    lines = []
    for entry in page.entries:
        comm = await comm_of(call.views, entry)
        if comm is not None and (not status or comm.status == status):
            lines.append((f"{entry.position.xid}-{entry.position.id}", comm))
    return Seen(
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
    kinds = frozenset(_KINDS[status] if status else COMMS_HEARS)
    wanted = folded(agent)

    def fits(entry: Entry) -> bool:
        event = entry.event
        if event.kind not in kinds:
            return False
        named = "\n".join((event.agent or "", str(event.data.get("to", "")), str(event.data.get("by", ""))))
        return not wanted or wanted in folded(named)

    return fits


async def _blocked(call: RequestContext) -> list[tuple[TaskRow, TaskRow, str]]:
    """The tasks that wait for an answer of another agent, the longest first; with the request, and whom it is for."""
    waiting = await call.views.view_tasks(TaskFilter(states=("waiting",), limit=_BLOCKED))
    asked = [(row, wait.target) for row in waiting for wait in row.waits if is_request(wait.target)]
    ids = tuple(TaskId(target) for _, target in asked)
    found = await call.views.view_tasks(TaskFilter(ids=ids, limit=len(ids))) if ids else []
    requests = {row.task.id: row for row in found}
    return [(row, requests[TaskId(id_)], _to(requests[TaskId(id_)])) for row, id_ in asked if id_ in requests]


def _to(request: TaskRow) -> str:
    spec = request.task.spec.request
    return request.task.role if spec is None else spec.to.removeprefix("role:")
