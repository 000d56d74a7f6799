"""Looking at the whole: how things stand, who does what, what was said between agents, what it has cost."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

from allswell.build.glancing import glance_at_builds
from allswell.domain.access import check_beside
from allswell.domain.address import family
from allswell.domain.comms import HEARS
from allswell.domain.duration import parse
from allswell.domain.expense import SpentBy
from allswell.domain.standing import healthy_at, score
from allswell.doors.http.call import Call
from allswell.doors.http.events import cursor_of, position_of
from allswell.doors.http.route import Nothing, Route
from allswell.doors.http.tasks import Length, Limit
from allswell.doors.shapes.board import BoardShape
from allswell.doors.shapes.build import BuildGlanceShape, BuildsShape
from allswell.doors.shapes.comm import CommShape
from allswell.doors.shapes.crew import AgentsShape
from allswell.doors.shapes.ledger import LedgerShape
from allswell.doors.shapes.service import ServicesShape
from allswell.doors.shapes.spent import CostsShape
from allswell.doors.shapes.status import StatusShape
from allswell.doors.shapes.tracking import TrackingShape
from allswell.engine.explaining.account import read_ledger, read_standing
from allswell.engine.explaining.board import board
from allswell.engine.explaining.communication import comm_of
from allswell.engine.explaining.crew import look as look_at_crew
from allswell.engine.explaining.overview import look
from allswell.engine.explaining.tracking import pending_questions, track
from allswell.errors import Refused
from allswell.runtime.supervisor.presence import has_died

_CHUNK = 500
_BUILDS = 100


class CommsShape(Struct, frozen=True):
    """Messages between agents, in their order; `next` is what to give as `after` for the next page."""

    comms: list[CommShape]
    next: str | None


async def show_status(call: Call, _: Nothing) -> StatusShape:
    """Whether all is well, and what needs somebody."""
    return StatusShape.of(call.store, await look(call.views), builds=await glance_at_builds(call.views))


async def show_board(call: Call, _: Nothing) -> BoardShape:
    """Everything that is at work, at one look."""
    return BoardShape.of(call.store, await board(call.views))


async def list_agents(call: Call, _: Nothing) -> AgentsShape:
    """Who does what: health, misses, last proof of progress, time left."""
    settings = call.house.settings
    specs = list(settings.known_agents.values())
    crew = await look_at_crew(call.views, specs, int(settings.value("stall_threshold") or 0), has_died)
    return AgentsShape.of(crew, len(await call.views.view_questions()))


async def show_tracking(call: Call, _: Nothing) -> TrackingShape:
    """Missed check-ins, stalled agents, timeouts and open questions."""
    return TrackingShape.of(await track(call.views), await pending_questions(call.views))


class CommsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to go on, and how many."""

    after: Annotated[str, Meta(description="Where the last page ended: its `next`.")] = ""
    limit: Limit = 100


async def list_comms(call: Call, asked: CommsAsked) -> CommsShape:
    """Every message between agents with the protocol's nine fields, a page at a time."""
    after, found = position_of(asked.after), list[CommShape]()
    while entries := await call.views.journal(after, _CHUNK):
        for entry in entries:
            after = entry.position
            if entry.event.kind in HEARS and (comm := await comm_of(call.views, entry)) is not None:
                found.append(CommShape.of(comm))
                if len(found) == asked.limit:
                    return CommsShape(found, cursor_of(after))
    return CommsShape(found, None)


class LedgerAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """How far back."""

    since: Length = "1d"


async def show_ledger(call: Call, asked: LedgerAsked) -> LedgerShape:
    """What counts for an agent and against it, what does not, and why."""
    agent = call.named("agent")
    length = parse(asked.since, where="since")
    if length <= 0:
        raise Refused("bad_duration", "since must be more than nothing", where="since")
    now = (await call.views.view_agenda()).now
    found = await read_ledger(call.views, agent, now - length)
    standing = await read_standing(call.views, family(agent))
    return LedgerShape.of(found, now - length, score(standing, now), healthy_at(standing, now))


class CostsAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Sums of what; of all time, or since so long ago."""

    by: SpentBy = "all"
    since: Length | None = None


async def show_costs(call: Call, asked: CostsAsked) -> CostsShape:
    """What attempts have cost, in money and in tokens, as far as agents have said so."""
    now = (await call.views.view_agenda()).now
    since = 0 if asked.since is None else now - parse(asked.since, where="since")
    return CostsShape.of(asked.by, since, await call.views.view_spent(asked.by, (), since))


async def list_services(call: Call, _: Nothing) -> ServicesShape:
    """How the services stand that something is or was held against: breakers, pauses, questions."""
    now = (await call.views.view_agenda()).now
    return ServicesShape.of(await call.views.view_services(), now)


async def list_builds(call: Call, _: Nothing) -> BuildsShape:
    """The builds that are not over, at a glance; a run shows its own build in full."""
    check_beside(call.key, "builds")
    return BuildsShape([BuildGlanceShape.of(one) for one in await glance_at_builds(call.views, _BUILDS)])


ROUTES = (
    Route("GET", "/status", show_status, Nothing, (StatusShape,)),
    Route("GET", "/board", show_board, Nothing, (BoardShape,)),
    Route("GET", "/agents", list_agents, Nothing, (AgentsShape,)),
    Route("GET", "/agents/{agent}/ledger", show_ledger, LedgerAsked, (LedgerShape,)),
    Route("GET", "/costs", show_costs, CostsAsked, (CostsShape,)),
    Route("GET", "/services", list_services, Nothing, (ServicesShape,)),
    Route("GET", "/builds", list_builds, Nothing, (BuildsShape,)),
    Route("GET", "/tracking", show_tracking, Nothing, (TrackingShape,)),
    Route("GET", "/comms", list_comms, CommsAsked, (CommsShape,)),
)
