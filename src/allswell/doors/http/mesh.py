"""Between agents: what one is asked, what it answers, and what came of what it asked itself."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from allswell.domain.access import check_inbox
from allswell.domain.names import TaskId
from allswell.doors.http.call import Call
from allswell.doors.http.leases import Patience, Wait, held_by
from allswell.doors.http.route import Route
from allswell.doors.shapes.inbox import InboxShape, RespondedShape
from allswell.doors.shapes.request import RequestedShape
from allswell.engine.held import Held
from allswell.engine.signal import either
from allswell.errors import Refused


class InboxAsked(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose inbox, with which roles, and how long to wait for the first request."""

    agent_id: Annotated[str, Meta(description="Without, the agent of the key.")] | None = None
    role: tuple[str, ...] = ()
    wait_ms: Wait = 0


async def list_inbox(call: Call, asked: InboxAsked) -> InboxShape:
    """List what other agents ask of one, the oldest first."""
    agent = _agent(call, asked.agent_id)
    check_inbox(call.key, agent)
    wait = int(call.patience(asked.wait_ms) * 1_000)
    return InboxShape.of(await call.unless_gone(call.watch.inbox(agent, roles=asked.role, wait=wait)))


class RespondGiven(Struct, frozen=True, forbid_unknown_fields=True):
    """What is answered, and by whom."""

    answer: Any = None
    agent_id: str | None = None
    roles: list[str] = []


async def respond(call: Call, given: RespondGiven) -> RespondedShape:
    """Answer a request; the first answer counts, and a late one too."""
    request = call.named("request")
    agent = _agent(call, given.agent_id)
    await call.watch.respond(request, given.answer, agent=agent, roles=given.roles, command=call.command)
    return RespondedShape(request)


async def show_request(call: Call, asked: Patience) -> RequestedShape:
    """Show how a request stands that this lease has asked; with `wait_ms`, once it has come to something."""
    held = await held_by(call, None)
    until = asyncio.get_running_loop().time() + call.patience(asked.wait_ms)
    return await call.unless_gone(_come(call, held, TaskId(call.named("request")), until))


async def _come(call: Call, held: Held, request: TaskId, until: float) -> RequestedShape:
    loop = asyncio.get_running_loop()
    while True:
        news = call.watch.on_event()
        state, result = await held.requested(request)
        left = until - loop.time()
        if state != "open" or left <= 0 or call.house.closing.is_set():
            came = None if result is None else msgspec.json.decode(result)
            return RequestedShape(request, state, came, blocked=False, fallback=None, next=None)
        await either(news, min(left, 1.0))


def _agent(call: Call, given: str | None) -> str:
    agent = given or next(iter(call.key.agents), "")
    if not agent:
        raise Refused("no_agent", "who is it? give agent_id", where="agent_id")
    return agent


ROUTES = (
    Route("GET", "/inbox", list_inbox, InboxAsked, (InboxShape,)),
    Route("POST", "/requests/{request}/respond", respond, RespondGiven, (RespondedShape,)),
    Route("GET", "/tasks/{task}/leases/{token}/requests/{request}", show_request, Patience, (RequestedShape,)),
)
