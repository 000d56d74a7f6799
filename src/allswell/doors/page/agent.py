"""One agent: what it holds, how it is, what it has cost, and its ledger: what counts for it and against it."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.address import family
from allswell.domain.expense import NOTHING_SPENT, Spent
from allswell.domain.ledger import Ledger
from allswell.domain.standing import healthy_at, score
from allswell.doors.http.call import Call
from allswell.doors.page.agents import crew_of
from allswell.engine.explaining.account import read_ledger, read_standing
from allswell.engine.explaining.crew import Member

_DAY = 86_400_000
_LINES = 200
_LOOKED_AT = 10_000
"""Events of the last day that its ledger is read from."""


class AgentScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    agent: str
    members: list[Member]
    """Itself; of one with several slots, each of them."""
    ledger: Ledger
    lines_more: int
    score: int
    healthy_at: int | None
    """When it is asked again before others, if it is degraded."""
    today: Spent
    ever: Spent


async def look(call: Call) -> AgentScreen:
    """Look at one agent."""
    agent = call.named("agent")
    crew = await crew_of(call)
    now = crew.now
    found = await read_ledger(call.views, agent, now - _DAY, _LOOKED_AT)
    standing = await read_standing(call.views, family(agent))
    ever = await call.views.view_spent("agent", (agent,))
    today = await call.views.view_spent("agent", (agent,), now - now % _DAY)
    return AgentScreen(
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
