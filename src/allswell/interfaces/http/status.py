"""Looking at the whole: how things stand, who does what, what was said between agents, what it has cost."""

from __future__ import annotations

import asyncio
from typing import Annotated

from msgspec import Meta, Struct

from allswell.actions.operator import Operator
from allswell.build.overview import glance_at_builds
from allswell.domain.access.rights import Operation, check_act, check_beside, signed_by
from allswell.domain.agents.cost import SpentBy
from allswell.domain.duration import parse
from allswell.domain.mesh.comms import CommStatus, is_among
from allswell.engine.status.journal import comm_of, entries_after
from allswell.engine.status.overview import board
from allswell.interfaces.http.events import cursor_of, position_of
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import NoParams, Route
from allswell.interfaces.http.tasks import Length, Limit
from allswell.views.agent import AgentsShape, LedgerShape, TrackingShape, load_crew, load_ledger, load_tracking
from allswell.views.checkup import CheckupShape, load_checkup
from allswell.views.delivery import CommShape
from allswell.views.fields import as_shape
from allswell.views.run import BuildGlanceShape, BuildsShape, CostsShape
from allswell.views.settings import KeyShape, KeysShape, NewKeyShape, SettingsShape
from allswell.views.status import BoardShape, ServiceShape, ServicesShape, StatusShape, load_status
from allswell.views.worker import QueuesShape

_BUILDS = 100


class CommsShape(Struct, frozen=True):
    """Messages between agents, in their order; `next` is what to give as `after` for the next page."""

    comms: list[CommShape]
    next: str | None


async def show_status(call: RequestContext, _: NoParams) -> StatusShape:
    """The verdict on the watch: what is broken, what needs a human, what merely waits."""
    return StatusShape.of(call.store, *await load_status(call.views, call.artifacts, call.place))


async def show_board(call: RequestContext, _: NoParams) -> BoardShape:
    """Everything that is at work, at one look."""
    return BoardShape.of(call.store, await board(call.views, place=call.place))


async def list_agents(call: RequestContext, _: NoParams) -> AgentsShape:
    """Who does what: health, misses, last proof of progress, time left."""
    crew = await load_crew(call.views, call.house.settings)
    return AgentsShape.of(crew, len(await call.views.view_questions()))


async def show_tracking(call: RequestContext, _: NoParams) -> TrackingShape:
    """Missed check-ins, stalled agents, timeouts and open questions."""
    return await load_tracking(call.views)


class CommsParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Where to go on, how many, and of which."""

    after: Annotated[str, Meta(description="Where the last page ended: its `next`.")] = ""
    limit: Limit = 100
    agent: Annotated[str, Meta(description="Who asks or is asked.")] = ""
    status: CommStatus | None = None


async def list_comms(call: RequestContext, asked: CommsParams) -> CommsShape:
    """Every message between agents with the protocol's nine fields, a page at a time."""
    found: list[CommShape] = []
    async for entry in entries_after(call.views, position_of(asked.after)):
        comm = await comm_of(call.views, entry)
        if comm is not None and is_among(comm, asked.agent, asked.status or ""):
            found.append(as_shape(comm, CommShape))
            if len(found) == asked.limit:
                return CommsShape(found, cursor_of(entry.position))
    return CommsShape(found, None)


class LedgerParams(Struct, frozen=True, forbid_unknown_fields=True):
    """How far back."""

    since: Length = "1d"


async def show_ledger(call: RequestContext, asked: LedgerParams) -> LedgerShape:
    """What counts for an agent and against it, what does not, and why."""
    return await load_ledger(call.views, call.named("agent"), parse(asked.since, where="since"), "since")


class CostsParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Sums of what; of all time, or since so long ago."""

    by: SpentBy = "all"
    since: Length | None = None


async def show_costs(call: RequestContext, asked: CostsParams) -> CostsShape:
    """What attempts have cost, in money and in tokens, as far as agents have said so."""
    now = (await call.views.view_agenda()).now
    since = 0 if asked.since is None else now - parse(asked.since, where="since")
    return CostsShape.of(asked.by, since, await call.views.view_spent(asked.by, (), since))


async def list_services(call: RequestContext, _: NoParams) -> ServicesShape:
    """How the services stand that something is or was held against: breakers, pauses, questions."""
    now = (await call.views.view_agenda()).now
    return ServicesShape([ServiceShape.of(row, now) for _, row in sorted((await call.views.view_services()).items())])


async def list_builds(call: RequestContext, _: NoParams) -> BuildsShape:
    """The builds that are not over, at a glance; a run shows its own build in full."""
    check_beside(call.key, "builds")
    return BuildsShape([BuildGlanceShape.of(one) for one in await glance_at_builds(call.views, _BUILDS)])


ROUTES = (
    Route("GET", "/status", show_status, NoParams, (StatusShape,)),
    Route("GET", "/board", show_board, NoParams, (BoardShape,)),
    Route("GET", "/agents", list_agents, NoParams, (AgentsShape,)),
    Route("GET", "/agents/{agent}/ledger", show_ledger, LedgerParams, (LedgerShape,)),
    Route("GET", "/costs", show_costs, CostsParams, (CostsShape,)),
    Route("GET", "/services", list_services, NoParams, (ServicesShape,)),
    Route("GET", "/builds", list_builds, NoParams, (BuildsShape,)),
    Route("GET", "/tracking", show_tracking, NoParams, (TrackingShape,)),
    Route("GET", "/comms", list_comms, CommsParams, (CommsShape,)),
)


# The watch itself: whether all is well with it, what is set, queues of messages beside it, and keys.

_ONE_AT_A_TIME = asyncio.Lock()
"""A check-up opens the store anew and may look twice, two seconds apart."""


class UnaccountedShape(Struct, frozen=True):
    """Open tasks that would wait for ever; there should be none."""

    task_ids: list[str]


async def show_checkup(call: RequestContext, _: NoParams) -> CheckupShape:
    """Check that all is well with the watch, as `allswell doctor` does where the store is."""
    check_beside(call.key, "checkup")
    async with _ONE_AT_A_TIME:
        return await load_checkup(call.house.url, call.house.settings, call.house.home)


async def list_unaccounted(call: RequestContext, _: NoParams) -> UnaccountedShape:
    """List open tasks that nothing will ever move again, a hundred at most."""
    return UnaccountedShape([str(one) for one in await call.views.view_orphans()])


async def show_settings(call: RequestContext, _: NoParams) -> SettingsShape:
    """Show every setting of the server with its value, its default and where it comes from."""
    check_beside(call.key, "settings")
    settings = call.house.settings
    return SettingsShape(settings.explain(), settings.files, settings.strangers)


async def list_queues(call: RequestContext, _: NoParams) -> QueuesShape:
    """How the queues of messages stand, which are in trouble, and which processes work on them.

    What only a human can decide about a message is a question like any other.
    """
    check_beside(call.key, "queues")
    return QueuesShape(await call.artifacts.queues())


ADMIN_ROUTES = (
    Route("GET", "/doctor", show_checkup, NoParams, (CheckupShape,)),
    Route("GET", "/unaccounted", list_unaccounted, NoParams, (UnaccountedShape,)),
    Route("GET", "/config", show_settings, NoParams, (SettingsShape,)),
    Route("GET", "/queues", list_queues, NoParams, (QueuesShape,)),
)


# Keys, for those who may make them.


class KeyParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose key, and what it is for; an agent's names the roles that it claims for."""

    name: str
    rights: list[str]
    roles: list[str] = []
    agents: list[str] = []
    expires: Length | None = None


async def create_key(call: RequestContext, given: KeyParams) -> NewKeyShape:
    """Make a key; its secret is in this answer, and nowhere else."""
    made = await _key_keeper(call).create_key(
        given.name, given.rights, roles=given.roles, agents=given.agents, expires=given.expires
    )
    call.house.gate.forget(made.shape.key.name)
    return made.shape


async def list_keys(call: RequestContext, _: NoParams) -> KeysShape:
    """List the keys, those too that are over."""
    check_act(call.key, Operation.KEEP_KEYS)
    now = await call.watch.now()
    return KeysShape([KeyShape.of(key, now) for key in await call.house.gate.keyring.all()])


async def revoke_key(call: RequestContext, _: NoParams) -> KeyShape:
    """End a key: whoever shows it from now on is refused."""
    ended = await _key_keeper(call).revoke_key(call.named("name"))
    call.house.gate.forget(ended.shape.name)
    return ended.shape


def _key_keeper(call: RequestContext) -> Operator:
    """The caller, at the words of the watch in which keys are kept: its right to that is looked at here."""
    check_act(call.key, Operation.KEEP_KEYS)
    return Operator(call.house.gate.watch, signed_by(call.key, ""))


KEY_ROUTES = (
    Route("POST", "/keys", create_key, KeyParams, (NewKeyShape,), status=201),
    Route("GET", "/keys", list_keys, NoParams, (KeysShape,)),
    Route("POST", "/keys/{name}/revoke", revoke_key, NoParams, (KeyShape,)),
)
