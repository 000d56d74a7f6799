"""What a tool call is carried out by. It translates: what may be done, and what follows, is decided behind the watch.

`WatchTools` speaks to a watch as one key shows it, which passes the rules of access for each command and each look
(engine/access/gate.py). It keeps nothing between two calls: a lease is its task and its token, which every call
names, and
any server of the same store can answer any call. So nobody renews a lease in the background; the claim says how long
one lasts after each sign of its holder.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import msgspec
from msgspec import UNSET, UnsetType

from allswell.actions.holder import AgentInbox, AnswerSource, Holder, RequestDraft, SocketHolder, wait_for_answers
from allswell.actions.store_holder import StoreAnswers, StoreHolder, StoreInbox, find_held
from allswell.domain.access.key import Key
from allswell.domain.access.rights import check_agent, is_its_agent
from allswell.domain.ids import Millis, TaskId
from allswell.domain.question import option_of
from allswell.domain.service.retry import Failure
from allswell.domain.values import hide
from allswell.engine.access.gate import Gate
from allswell.engine.lookup import find, find_task
from allswell.engine.status.verdict import ANYWHERE, LocalFacts
from allswell.engine.watch import Watch
from allswell.errors import Refused, unavailable_outward
from allswell.interfaces.mcp import arguments as given
from allswell.runtime.agent_socket import AnyWord, SocketReply, say
from allswell.timing.scopes import remaining_ms
from allswell.views.artifacts import Artifacts
from allswell.views.explanation import ExplanationShape, load_explanation
from allswell.views.lease import (
    AnswersShape,
    ClaimShape,
    ClaimsShape,
    InboxShape,
    LastWordShape,
    OrdersShape,
    RequestedShape,
    RespondedShape,
)
from allswell.views.question import QuestionShape
from allswell.views.status import StatusShape, load_status
from allswell.views.task import SubmittedShape, joined_runs

T = TypeVar("T")


class ToolHandlers:
    """What tools call: a holder's verbs, over a watch or through its attempt's socket; others need a watch."""

    async def holder(self, params: given.LeaseToolParams) -> Holder:
        """The holder that a call speaks for."""
        raise NotImplementedError

    def source(self) -> AnswerSource:
        """Where questions and requests of the caller are looked up."""
        raise NotImplementedError

    def inbox_of(self, agent: str, roles: Sequence[str], /) -> AgentInbox:
        """What other agents ask of this one."""
        raise NotImplementedError

    async def unless_closing(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something, no longer than whatever the caller speaks to lives."""
        return await work

    async def claim(self, params: given.ClaimToolParams) -> ClaimsShape:
        """Take a task."""
        _not_here(params)

    async def submit(self, params: given.SubmitToolParams) -> SubmittedShape:
        """Hand a task over."""
        _not_here(params)

    async def status(self, params: given.StatusToolParams) -> StatusShape | ExplanationShape:
        """How things stand."""
        _not_here(params)

    async def own_status(self) -> OrdersShape:
        """How much time is left, and what is asked."""
        _not_here(None)

    async def checkin(self, params: given.CheckInToolParams) -> OrdersShape:
        """Prove progress; the answer tells what concerns the holder."""
        return await (await self.holder(params)).check_in(params.note, _set(params.progress))

    async def done(self, params: given.DoneToolParams) -> LastWordShape:
        """The task is done; said again, it counts once."""
        return await (await self.holder(params)).done(params.result)

    async def fail(self, params: given.FailToolParams) -> LastWordShape:
        """This attempt failed; the error's class decides what follows."""
        after = None if params.retry_after_s is UNSET else Millis(params.retry_after_s * 1_000)
        failure = Failure(params.error_class, params.message, after, tuple(params.services))
        return await (await self.holder(params)).fail(failure)

    async def release(self, params: given.ReleaseToolParams) -> LastWordShape:
        """Give the task back."""
        return await (await self.holder(params)).release(params.reason, params.delay_s * 1_000)

    async def ask(self, params: given.AskToolParams) -> QuestionShape:
        """Ask a human. One that ends the attempt counts once, however often it is said."""
        options = [option_of(option.key, option.label) for option in params.options]
        return await (await self.holder(params)).ask(params.text, options, hold=params.hold)

    async def answers(self, params: given.AnswersToolParams) -> AnswersShape:
        """How questions and requests stand; with patience, once something has come of one of them."""
        return await self.unless_closing(wait_for_answers(self.source(), params.ids, patience(params.wait_s)))

    async def request(self, params: given.RequestToolParams) -> RequestedShape:
        """Ask another agent, and go on."""
        draft = RequestDraft(
            to=params.to,
            text=params.text,
            kind=params.kind,
            payload=params.payload,
            timeout=None if params.timeout_s is UNSET else params.timeout_s * 1_000,
            retries=_set(params.retries),
            blocks=params.blocks,
        )
        made = await (await self.holder(params)).request(draft)
        came = await self.answers(given.AnswersToolParams(ids=[made.request_id], wait_s=params.wait_s))
        return came.requests[0]

    async def inbox(self, params: given.InboxToolParams) -> InboxShape:
        """What other agents ask, waiting for the first if there is nothing."""
        looking = self.inbox_of(params.agent, params.roles).inbox(patience(params.wait_s), mesh=params.mesh)
        return InboxShape.of(await self.unless_closing(looking))

    async def respond(self, params: given.RespondToolParams) -> RespondedShape:
        """Answer another agent; said again, it counts once."""
        await self.inbox_of(params.agent, params.roles).respond(params.request, params.answer)
        return RespondedShape(params.request)

    async def decline(self, params: given.DeclineToolParams) -> RespondedShape:
        """Decline what another agent asks; said again, it counts once."""
        await self.inbox_of(params.agent, params.roles).decline(params.request, params.reason)
        return RespondedShape(params.request)


def _set(value: T | UnsetType) -> T | None:
    return None if value is UNSET else value


def _not_here(params: object) -> NoReturn:
    raise Refused("no_tool", f"this cannot be done here: {type(params).__name__}", where="tool")


def patience(wait_s: int) -> float:
    """How long may be waited, in seconds: as asked, but neither longer than a call may, nor than its caller has."""
    left = remaining_ms()
    most = float(given.WAIT_MOST) if left is None else min(given.WAIT_MOST, left * 0.9 / 1000)
    return max(0.0, min(float(wait_s), most))


class WatchTools(ToolHandlers):
    """Tools on a watch, as a key shows it; made for one call."""

    def __init__(
        self, gate: Gate, key: Key, artifacts: Artifacts, closing: asyncio.Event, place: LocalFacts = ANYWHERE
    ) -> None:
        self._gate = gate
        self.key = key
        self.watch: Watch = gate.watch_for(key)
        """As the key shows it."""
        self.artifacts = artifacts
        self.place = place
        self._url = hide(gate.backend_for(key).store.url)
        self._closing = closing
        """Set when the server stops: whoever waits is let go."""

    # --- work ---------------------------------------------------------------------------------------------------------

    async def submit(self, params: given.SubmitToolParams) -> SubmittedShape:
        """Hand a task over."""
        fields = {name: getattr(params, name) for name in params.__struct_fields__ if name != "timeout_s"}
        if params.timeout_s is not UNSET:
            fields["timeout"] = params.timeout_s * 1_000
        if params.key is not UNSET:
            fields["key"] = f"{self.key.name}/{params.key}"
        wanted = {name: value for name, value in fields.items() if value is not UNSET}
        ids: list[TaskId] = []
        made = await self.watch.submit_all([wanted], told=ids.extend)
        return SubmittedShape(ids[0], params.name, joined_runs(made))

    async def claim(self, params: given.ClaimToolParams) -> ClaimsShape:
        """Take a task, waiting for one if there is none."""
        leases = await self.unless_closing(
            self.watch.claim_many(
                1,
                agent=self._agent(params.agent),
                roles=None if params.role is UNSET else [params.role],
                wait=int(patience(params.wait_s) * 1_000),
                lease=params.lease_s * 1_000,
                task=None if params.task is UNSET else params.task,
            )
        )
        return ClaimsShape([ClaimShape.of(lease.granted) for lease in leases])

    def _agent(self, named: str) -> str:
        name = named or next(iter(self.key.agents), "")
        if not name:
            text = "which agent are you? Set `agent`: your name, the same in every call"
            raise Refused("no_agent", text, where="agent")
        check_agent(self.key, name)
        return name

    async def status(self, params: given.StatusToolParams) -> StatusShape | ExplanationShape:
        """Why a task stands where it stands, or how all of it does."""
        views = self.watch.views
        if params.task is UNSET:
            return StatusShape.of(self._url, *await load_status(views, self.artifacts, self.place))
        looked_up = find if params.task.startswith(("r_", "q_")) else find_task  # names are those of tasks here
        id_ = await looked_up(views, params.task)
        return ExplanationShape.of(*await load_explanation(views, self.artifacts, id_, self.place))

    # --- holding ------------------------------------------------------------------------------------------------------

    async def holder(self, params: given.LeaseToolParams) -> Holder:
        """The holder of the lease that a call names: the agent that has, or had, that token."""
        otherwise = next(iter(self.key.agents), "unknown")
        held = await find_held(self.watch, params.task, params.token, None, otherwise)
        return StoreHolder(self.watch, held, lease=given.LEASE * 1_000)

    def source(self) -> AnswerSource:
        """What the key shows; where a request has blocked its task, its agents get the next one."""
        return StoreAnswers(self.watch, lambda agent: is_its_agent(self.key, agent), given.LEASE * 1_000)

    def inbox_of(self, agent: str, roles: Sequence[str], /) -> AgentInbox:
        """What other agents ask of one of the key's."""
        return StoreInbox(self.watch, self._agent(agent), roles)

    async def inbox(self, params: given.InboxToolParams) -> InboxShape:
        """What other agents ask; that the agent looks is noted first."""
        await self._gate.note(self._agent(params.agent))
        return await super().inbox(params)

    async def unless_closing(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait for something, but no longer than server and key live; what had been claimed by then goes back."""
        working, closing = asyncio.ensure_future(work), asyncio.ensure_future(self._closing.wait())
        keyless = asyncio.ensure_future(self._gate.until_over(self.key))
        try:
            await asyncio.wait([working, closing, keyless], return_when=asyncio.FIRST_COMPLETED)
            if not working.done():
                if keyless.done():
                    await keyless
                text = "the server stops"
                raise unavailable_outward(text, hint="call again in a moment: it may be back by then")
            return await working
        finally:
            closing.cancel()
            keyless.cancel()
            if not working.done():
                working.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await working


class OwnLease(msgspec.Struct, frozen=True):
    """The attempt that this process is part of."""

    socket: str
    task: str
    token: int
    agent: str

    @classmethod
    def of(cls, environ: Mapping[str, str]) -> OwnLease | None:
        """What the environment says; None outside of any attempt."""
        path = environ.get("ALLSWELL_SOCKET")
        if not path:
            return None
        token = environ.get("ALLSWELL_TOKEN", "")
        if not token.isascii() or not token.isdigit():
            raise Refused(
                "no_token", "ALLSWELL_TOKEN is not a number; let the supervisor set it", where="ALLSWELL_TOKEN"
            )
        return cls(path, environ.get("ALLSWELL_TASK", ""), int(token), environ.get("ALLSWELL_AGENT", ""))

    def meant(self, takes: type[given.ToolParams], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments with what goes without saying."""
        return (
            {"task": self.task, "token": self.token, **arguments}
            if issubclass(takes, given.LeaseToolParams)
            else {**arguments}
        )


class AttemptTools(ToolHandlers):
    """Tools for the holder of one lease, inside a supervised attempt: all that is said goes through its socket.

    A caller may leave out which task it means, since it can mean only one; naming another is refused by the socket.
    """

    def __init__(self, own: OwnLease) -> None:
        self._own = own

    def _through(self, task: str | None = None, token: int | None = None) -> SocketHolder:
        async def send(message: AnyWord) -> SocketReply:
            # The supervisor answers within a minute, and usually at once; meanwhile this process answers others.
            return await asyncio.to_thread(say, self._own.socket, message)

        return SocketHolder(send, asyncio.sleep, task, token)

    async def holder(self, params: given.LeaseToolParams) -> Holder:
        """The holder of the attempt's lease."""
        return self._through(params.task, params.token)

    def source(self) -> AnswerSource:
        """What this attempt has asked."""
        return self._through()

    def inbox_of(self, _agent: str, _roles: Sequence[str], /) -> AgentInbox:
        """What other agents ask of the attempt's own."""
        return self._through()

    async def own_status(self) -> OrdersShape:
        """How much time is left, and what is asked."""
        return await self._through().orders()
