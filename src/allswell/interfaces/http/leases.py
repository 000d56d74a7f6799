"""Holding work: claim it, check in on it, end it, ask about it. Every word about a lease names its task and token."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from allswell.actions.holder import RequestDraft, wait_for_answers
from allswell.actions.store_holder import StoreAnswers, StoreHolder, StoreInbox, find_held
from allswell.domain.access.rights import check_inbox
from allswell.domain.duration import parse
from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, TaskId
from allswell.domain.mesh.request import DELEGATION
from allswell.domain.question import AnswerAction, Option
from allswell.domain.rules.command import Claim
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.engine.backend import Claimed
from allswell.engine.lease import Held
from allswell.errors import Refused
from allswell.interfaces.http.request_context import RequestContext
from allswell.interfaces.http.routing import Route
from allswell.interfaces.http.tasks import Length
from allswell.remote.wire import WAIT_MOST
from allswell.views.lease import (
    ClaimShape,
    ClaimsShape,
    InboxShape,
    LastWordShape,
    OrdersShape,
    RequestedShape,
    RespondedShape,
)
from allswell.views.question import QuestionShape

# A claim that waits for its caller, and no longer.
#
# A caller that hung up takes nothing. One that asks again under the same id, since it got no answer or gave the claim
# up, ends the wait of the call before: whatever that was given in this very moment, the new call is answered with.


async def claimed(call: RequestContext, claim: Claim, wait: int) -> Claimed:
    """What is claimed within so many milliseconds."""
    waiting = call.house.waiting
    name = f"{call.key.name}/{claim.id}"
    earlier = waiting.get(name)
    if earlier is not None:
        earlier.cancel()
        await asyncio.wait([earlier])
    if not wait:
        return await _claim(call, claim, wait)  # nothing is waited for, so nobody need be asked whether it still is
    work = asyncio.ensure_future(_claim(call, claim, wait))
    if claim.id != NO_COMMAND:
        waiting[name] = work
    try:
        return await call.unless_gone(work)
    finally:
        if waiting.get(name) is work:
            del waiting[name]


async def _claim(call: RequestContext, claim: Claim, wait: int) -> Claimed:
    return await call.backend.claim(claim, wait=call.patience(wait))


Wait = Annotated[int, Meta(ge=0, le=WAIT_MOST, description="Wait this many milliseconds.")]


class ClaimParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Who claims, and what; without roles, whatever the key may claim for."""

    agent_id: Annotated[str, Meta(description="The agent; without it, the agent of the key.")] | None = None
    roles: list[str] | None = None
    count: Annotated[int, Meta(ge=1, le=1_000)] = 1
    wait_ms: Wait = 0
    lease_ms: Annotated[int, Meta(ge=1, description="Checks in at least this often, or loses it.")] | None = None
    task_id: Annotated[str, Meta(description="This one or none.")] | None = None


async def claim_tasks(call: RequestContext, given: ClaimParams) -> ClaimsShape:
    """Take tasks to work on, waiting for the first if there is none.

    An Idempotency-Key makes a claim whose answer was lost safe to repeat: it is answered with the same leases.
    """
    agent = _agent(call, given.agent_id)
    claim = Claim(
        CommandId(call.command or NO_COMMAND),
        AgentId(agent),
        None if given.roles is None else tuple(given.roles),
        given.count,
        given.lease_ms,
        task=None if given.task_id is None else TaskId(given.task_id),
    )
    got = await claimed(call, claim, given.wait_ms)
    return ClaimsShape([ClaimShape.of(one) for one in got.granted])


async def held_by(call: RequestContext, agent: str | None) -> Held:
    """The lease that a path names; without `agent`, in the name of the agent that has, or had, that token."""
    task, token = call.named("task"), call.named("token")
    if not token.isascii() or not token.isdigit() or len(token) > 18:
        raise Refused("no_token", f"{token!r} is not a token: a claim answers with a number", where="token")
    return await find_held(call.watch, task, int(token), agent, next(iter(call.key.agents), "unknown"))


async def holder_of(call: RequestContext, agent: str | None) -> StoreHolder:
    """The holder that a path names; what it says under an Idempotency-Key counts once."""
    return StoreHolder(call.watch, await held_by(call, agent), call.command)


class CheckInParams(Struct, frozen=True, forbid_unknown_fields=True):
    """What was done since; without proof it only says that the holder lives."""

    note: str = ""
    progress: float | None = None
    proof: bool = True
    agent_id: str | None = None


async def check_in(call: RequestContext, given: CheckInParams) -> OrdersShape:
    """Prove progress; the answer says how much time is left, whether a check-in is owed, and what came meanwhile."""
    holder = await holder_of(call, given.agent_id)
    return await holder.check_in(given.note, given.progress, proof=given.proof)


class DoneParams(Struct, frozen=True, forbid_unknown_fields=True):
    """What it came to."""

    result: Any = None
    agent_id: str | None = None


async def finish(call: RequestContext, given: DoneParams) -> LastWordShape:
    """The task is done."""
    return await (await holder_of(call, given.agent_id)).done(given.result)


class FailParams(Struct, frozen=True, forbid_unknown_fields=True):
    """What went wrong; its class decides what follows."""

    message: str
    error_class: ErrorClass = ErrorClass.TRANSIENT
    retry_after_ms: Millis | None = None
    services: tuple[str, ...] = ()
    agent_id: str | None = None


async def fail(call: RequestContext, given: FailParams) -> LastWordShape:
    """This attempt failed; the error's class decides whether it is tried again."""
    failure = Failure(given.error_class, given.message, given.retry_after_ms, given.services)
    return await (await holder_of(call, given.agent_id)).fail(failure)


class ReleaseParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Why, and how long nobody gets it."""

    reason: str = "released"
    delay: Length = 0
    agent_id: str | None = None


async def release(call: RequestContext, given: ReleaseParams) -> LastWordShape:
    """Give the task back: neither a failure nor a timeout."""
    return await (await holder_of(call, given.agent_id)).release(given.reason, parse(given.delay, where="delay"))


class OptionParams(Struct, frozen=True, forbid_unknown_fields=True):
    """One way to answer, and what it does."""

    key: str
    label: str
    act: AnswerAction = AnswerAction.RETRY


class AskParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A question to a human; with `hold` the work goes on meanwhile."""

    text: str
    options: list[OptionParams] = []
    hold: bool = False
    agent_id: str | None = None


async def ask(call: RequestContext, given: AskParams) -> QuestionShape:
    """Ask a human; unless `hold`, this attempt ends and the task waits for the answer."""
    options = [Option(one.key, one.label, one.act) for one in given.options]
    return await (await holder_of(call, given.agent_id)).ask(given.text, options, hold=given.hold)


class RequestParams(Struct, frozen=True, forbid_unknown_fields=True):
    """A focused request to an expert of a role; or, with `kind` and `to`, one that is delivered again to whom it is."""

    name: Annotated[str, Meta(description="What is asked, in a line.")]
    role: Annotated[str, Meta(description="Of a delegation, the expert's; else who else may answer.")] = ""
    kind: Annotated[str, Meta(description="delegation, handoff, status_check, collaboration or webhook.")] = (
        "delegation"
    )
    to: Annotated[str, Meta(description="An agent, role:ROLE, or an address; of all but a delegation.")] = ""
    payload: Any = None
    timeout: Length | None = None
    retries: Annotated[int, Meta(ge=0, le=1_000)] | None = None
    again: Length | None = None
    blocks: Annotated[bool, Meta(description="Whether the task waits for the answer if none comes in time.")] = True
    agent_id: str | None = None


async def request(call: RequestContext, given: RequestParams) -> RequestedShape:
    """Ask another agent, and keep working; what comes of it is shown, and waited for, under the lease's `requests`.

    With an Idempotency-Key it is asked once, however often it is sent.
    """
    delegation = given.kind == DELEGATION
    draft = RequestDraft(
        to=given.role if delegation else given.to,
        text=given.name,
        kind=given.kind,
        payload=given.payload,
        timeout=None if given.timeout is None else parse(given.timeout, where="timeout"),
        retries=given.retries,
        again=None if given.again is None else parse(given.again, where="again"),
        role="" if delegation else given.role,
        blocks=given.blocks,
        key=call.command,
    )
    return await (await holder_of(call, given.agent_id)).request(draft)


class WaitLimit(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait."""

    wait_ms: Wait = 0


async def show_question(call: RequestContext, asked: WaitLimit) -> QuestionShape:
    """Show a question; with `wait_ms`, once it is answered, or as it is when the time is up."""
    looking = wait_for_answers(RouteAnswers(call), [call.named("question")], call.patience(asked.wait_ms))
    return (await call.unless_gone(looking)).questions[0]


class RouteAnswers(StoreAnswers):
    """Questions and requests for one call, which is let go when the server stops."""

    def __init__(self, call: RequestContext, held: Held | None = None) -> None:
        super().__init__(call.watch, lambda _: False, None)
        self._call = call
        self._held = held

    async def requested(self, id_: str) -> RequestedShape:
        """A request of the lease that the path names; looking at it changes nothing."""
        if self._held is None:
            return await super().requested(id_)
        self.listen()
        state, result = await self._held.requested(TaskId(id_))
        return RequestedShape.of(id_, state, None if result is None else msgspec.json.decode(result))

    def is_over(self) -> bool:
        """Whether the server stops."""
        return self._call.house.closing.is_set()


_LEASE = "/tasks/{task}/leases/{token}"
ROUTES = (
    Route("POST", "/claims", claim_tasks, ClaimParams, (ClaimsShape,)),
    Route("POST", f"{_LEASE}/checkin", check_in, CheckInParams, (OrdersShape,)),
    Route("POST", f"{_LEASE}/done", finish, DoneParams, (LastWordShape,)),
    Route("POST", f"{_LEASE}/fail", fail, FailParams, (LastWordShape,)),
    Route("POST", f"{_LEASE}/release", release, ReleaseParams, (LastWordShape,)),
    Route("POST", f"{_LEASE}/ask", ask, AskParams, (QuestionShape,), status=201),
    Route("POST", f"{_LEASE}/request", request, RequestParams, (RequestedShape,), status=201),
    Route("GET", "/questions/{question}", show_question, WaitLimit, (QuestionShape,)),
)


# Between agents: what one is asked, what it answers, and what came of what it asked itself.


class InboxParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Whose inbox, with which roles, and how long to wait for a request that was not listed before."""

    agent_id: Annotated[str, Meta(description="Without, the agent of the key.")] | None = None
    role: tuple[str, ...] = ()
    wait_ms: Wait = 0
    mesh: Annotated[bool, Meta(description="What is addressed to others, and may be answered by it.")] = False


async def list_inbox(call: RequestContext, asked: InboxParams) -> InboxShape:
    """List what other agents ask of one, the oldest first; with `mesh`, what they ask of others."""
    agent = _agent(call, asked.agent_id)
    check_inbox(call.key, agent)
    looking = StoreInbox(call.watch, agent, asked.role).inbox(call.patience(asked.wait_ms), mesh=asked.mesh)
    return InboxShape.of(await call.unless_gone(looking))


class RespondParams(Struct, frozen=True, forbid_unknown_fields=True):
    """What is answered, and by whom."""

    answer: Any = None
    agent_id: str | None = None
    roles: list[str] = []


async def respond(call: RequestContext, given: RespondParams) -> RespondedShape:
    """Answer a request; the first answer counts, and a late one too."""
    request = call.named("request")
    inbox = StoreInbox(call.watch, _agent(call, given.agent_id), given.roles, call.command)
    await inbox.respond(request, given.answer)
    return RespondedShape(request)


class DeclineParams(Struct, frozen=True, forbid_unknown_fields=True):
    """Why it is declined, and by whom."""

    reason: str = ""
    agent_id: str | None = None
    roles: list[str] = []


async def decline(call: RequestContext, given: DeclineParams) -> RespondedShape:
    """Decline a request that is addressed to this agent; whoever asked learns of it at once."""
    request = call.named("request")
    inbox = StoreInbox(call.watch, _agent(call, given.agent_id), given.roles, call.command)
    await inbox.decline(request, given.reason)
    return RespondedShape(request)


async def show_request(call: RequestContext, asked: WaitLimit) -> RequestedShape:
    """Show how a request stands that this lease has asked; with `wait_ms`, once it has come to something.

    It changes nothing: where the request has blocked its task, the next one is claimed by waiting for it.
    """
    source = RouteAnswers(call, await held_by(call, None))
    looking = wait_for_answers(source, [call.named("request")], call.patience(asked.wait_ms))
    return (await call.unless_gone(looking)).requests[0]


class WaitParams(Struct, frozen=True, forbid_unknown_fields=True):
    """How long to wait; and, where the request blocks its task, what to claim instead."""

    wait_ms: Wait = 0
    roles: list[str] | None = None
    lease_ms: Annotated[int, Meta(ge=1, description="Of the task that is claimed instead, as of a claim.")] | None = (
        None
    )
    agent_id: str | None = None


async def wait_for_request(call: RequestContext, given: WaitParams) -> RequestedShape:
    """Wait for a request that this lease has asked; where it blocks its task, the next one is claimed and returned.

    Called again, it returns the same task. While it waits, it proves that the lease's holder lives.
    """
    held = await held_by(call, given.agent_id)
    wait = int(call.patience(given.wait_ms) * 1_000)
    waiting = held.wait_for(call.named("request"), roles=given.roles, lease=given.lease_ms, wait=wait)
    return RequestedShape.waited_for(await call.unless_gone(waiting))


def _agent(call: RequestContext, given: str | None) -> str:
    agent = given or next(iter(call.key.agents), "")
    if not agent:
        raise Refused("no_agent", "which agent? Set agent_id", where="agent_id")
    return agent


_REQUEST = "/tasks/{task}/leases/{token}/requests/{request}"
REQUEST_ROUTES = (
    Route("GET", "/inbox", list_inbox, InboxParams, (InboxShape,)),
    Route("POST", "/requests/{request}/respond", respond, RespondParams, (RespondedShape,)),
    Route("POST", "/requests/{request}/decline", decline, DeclineParams, (RespondedShape,)),
    Route("GET", _REQUEST, show_request, WaitLimit, (RequestedShape,)),
    Route("POST", f"{_REQUEST}/wait", wait_for_request, WaitParams, (RequestedShape,)),
)
