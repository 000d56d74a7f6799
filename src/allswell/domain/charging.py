"""What a decision says of agents is entered into their standing, in the same unit of work (M7, M8).

The standing is a sum of events, so it is made of them: of those that a decision tells. There is no other way to change
it, and whoever reads the journal comes to the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from allswell.domain.address import agent_of, family
from allswell.domain.case import Outcome
from allswell.domain.checkin import Agent
from allswell.domain.event import Event
from allswell.domain.names import AgentId, Millis, TaskId
from allswell.domain.rule import Search
from allswell.domain.standing import (
    Expiry,
    after_expiry,
    after_unblocking,
    counts,
    row_of,
    standing_of,
    standing_row,
)

Rows = Mapping[AgentId, Agent | None]


def target(request: TaskId) -> Search:
    """Whom a request is for, and who holds it: its role, which never changes, and an agent if there is one."""
    return Search("target", request)


def own_row(holder: str) -> AgentId:
    """The row with the standing of whoever holds tasks under this name."""
    return standing_row(family(holder))


def concerned(found: Sequence[str]) -> list[AgentId]:
    """The rows that an expiry may concern: that of the agent the request is for, or that of whoever holds it."""
    if not found:
        return []
    role, *holders = found
    to = agent_of(role)
    return [own_row(agent) for agent in (holders if to is None else [to])]


def charged(outcomes: Iterable[Outcome], rows: Rows, now: Millis) -> list[tuple[AgentId, Agent | None]]:
    """The standings after what these outcomes tell."""
    told = [event for out in outcomes for event in out.events]
    return [*entered(told, rows, now).items()]


def entered(events: Iterable[Event], rows: Rows, now: Millis) -> dict[AgentId, Agent | None]:
    """The standings that these events change."""
    changed: dict[AgentId, Agent | None] = {}
    for event in events:
        agent = _who(event)
        if not agent:
            continue
        row = standing_row(agent)
        standing = standing_of(changed.get(row) or rows.get(row))
        if event.kind == "request_expired":
            data = event.data
            expiry = Expiry(now, str(data["request"]), str(data["kind"]), int(data["timeout_ms"]))
            changed[row] = row_of(agent, after_expiry(standing, expiry))
        else:
            changed[row] = row_of(agent, after_unblocking(standing, now))
    return changed


def _who(event: Event) -> str:
    """The agent of which an event says something that counts; empty: nobody."""
    if event.kind == "request_expired":
        data = event.data
        return str(data["against"]) if counts(int(data["timeout_ms"]), int(data["default_ms"])) else ""
    return family(str(event.data["by"])) if event.kind == "request_resolved" else ""
