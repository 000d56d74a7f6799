"""Everybody: what they do, how they are, what they have cost today; and who watches over them."""

from __future__ import annotations

from msgspec import Struct

from allswell.domain.condition import Condition
from allswell.domain.listing import folded
from allswell.domain.presence import Presence, is_alive
from allswell.doors.http.call import Call
from allswell.doors.page.query import address, choice_of, number_of, text_of
from allswell.engine.explaining.crew import ABSENT, IDLE, Crew, Member
from allswell.engine.explaining.crew import look as look_at_crew
from allswell.engine.explaining.front import place
from allswell.runtime.supervisor.presence import has_died

PAGE = 50
HEALTHS = (*(condition.value for condition in Condition), IDLE, ABSENT)


class SupervisorRow(Struct, frozen=True):
    """Who watches over agents."""

    presence: Presence
    alive: bool


class AgentsScreen(Struct, frozen=True):
    """All that the template shows."""

    title: str
    now: int
    supervisors: list[SupervisorRow]
    members: list[Member]
    total: int
    """How many there are that fit."""
    healths: list[tuple[str, int, str]]
    """Each health, how many agents have it, and where they are listed."""
    health: str
    text: str
    first: int
    before: str | None
    after: str | None


async def crew_of(call: Call) -> Crew:
    """Everybody, those of the settings too."""
    settings = call.house.settings
    threshold = int(settings.value("stall_threshold") or 0)
    return await look_at_crew(call.views, list(settings.known_agents.values()), threshold, has_died)


async def look(call: Call) -> AgentsScreen:
    """Look at a page of agents."""
    crew = await crew_of(call)
    health, text, first = choice_of(call, "health", HEALTHS), text_of(call, "text"), number_of(call, "from")
    members = sorted(crew.members, key=place)
    wanted = folded(text)
    named = [one for one in members if not wanted or wanted in folded(_called(one))]
    found = [one for one in named if not health or one.health == health]
    counts = {one: sum(member.health == one for member in named) for one in HEALTHS}

    def page(start: int) -> str:
        return address("/agents", health=health, text=text, from_=start)

    return AgentsScreen(
        title="Agents",
        now=crew.now,
        supervisors=[SupervisorRow(one, is_alive(one, crew.now)) for one in crew.supervisors],
        members=found[first : first + PAGE],
        total=len(found),
        healths=[(one, count, address("/agents", health=one, text=text)) for one, count in counts.items() if count],
        health=health,
        text=text,
        first=first,
        before=None if first == 0 else page(max(first - PAGE, 0)),
        after=page(first + PAGE) if first + PAGE < len(found) else None,
    )


def _called(member: Member) -> str:
    return "\n".join((member.agent, member.role or "", member.kind or "", member.name or "", member.supervisor or ""))
