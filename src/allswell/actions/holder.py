"""What the holder of a lease can do: the verbs, whichever way it speaks.

A holder speaks to a watch (`store_holder.py`: a store on this machine, or a server behind HTTP) or through the socket
of its attempt (`SocketHolder`). Command line, HTTP and MCP parse what was said, call a verb, and print its answer,
a struct of `views`. Nothing here is heavy to import: `allswell checkin` starts at once.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Protocol, TypeVar

import msgspec
from msgspec import Struct

from allswell.domain.ids import QuestionId, TaskId
from allswell.domain.mesh.request import DELEGATION, InboxItem
from allswell.domain.question import Option
from allswell.domain.service.retry import Failure
from allswell.domain.task.model import OPEN
from allswell.domain.values import to_json
from allswell.errors import Bug, Refused
from allswell.runtime import agent_socket
from allswell.runtime.agent_socket import AnyWord, SocketReply
from allswell.views.lease import AnswersShape, LastWordShape, OrdersShape, RequestedShape
from allswell.views.question import QuestionShape


class RequestDraft(Struct, frozen=True, kw_only=True):
    """What one agent asks of another; lengths of time are milliseconds."""

    to: str
    text: str
    kind: str = ""
    """Empty: it is read off whom it is for."""
    payload: object = None
    timeout: int | None = None
    retries: int | None = None
    again: int | None = None
    role: str = ""
    blocks: bool = True
    """Whether the task waits for the answer if none comes in time."""
    key: str | None = None
    """Under the same key a task asks it once."""


class AnswerSource(Protocol):
    """How questions and requests stand, and how to wait for news of them."""

    async def question(self, id_: str) -> QuestionShape:
        """A question as it stands; `Refused` if this caller may not see such a question."""
        ...

    async def requested(self, id_: str) -> RequestedShape:
        """A request as it stands; `Refused` if this caller made no such request."""
        ...

    def clock(self) -> float:
        """Seconds that only ever grow."""
        ...

    def is_over(self) -> bool:
        """Whether nothing more will come: waiting ends."""
        ...

    async def news(self, within: float) -> None:
        """Wait until something may have changed, and at most so many seconds."""
        ...


class Holder(AnswerSource, Protocol):
    """One holder of one lease."""

    async def check_in(self, note: str, progress: float | None) -> OrdersShape:
        """Prove progress; the answer says how much time is left, and what came meanwhile."""
        ...

    async def done(self, result: object) -> LastWordShape:
        """The task is done; said again, it counts once."""
        ...

    async def fail(self, failure: Failure) -> LastWordShape:
        """This attempt failed; the error's class decides what follows."""
        ...

    async def release(self, reason: str, delay: int) -> LastWordShape:
        """Give the task back; no agent can claim it for so many milliseconds."""
        ...

    async def ask(self, text: str, options: Sequence[Option], *, hold: bool) -> QuestionShape:
        """Ask a human; without `hold` this attempt ends, and the task waits for the answer."""
        ...

    async def request(self, draft: RequestDraft) -> RequestedShape:
        """Ask another agent, and go on."""
        ...

    async def wait_for(self, request: RequestedShape, lease: int | None) -> RequestedShape:
        """Wait for what comes of a request; where it blocks the task, the next one is claimed, with `lease`."""
        ...


class AgentInbox(Protocol):
    """What other agents ask of one."""

    async def inbox(self, patience: float, *, mesh: bool) -> Sequence[InboxItem]:
        """What they ask, waiting so many seconds for what was not listed before; with `mesh`, of others."""
        ...

    async def respond(self, request: str, answer: object) -> None:
        """Answer a request; the first answer counts, and a late one too."""
        ...

    async def decline(self, request: str, reason: str) -> None:
        """Decline a request that is addressed to this agent; the asking agent learns of it at once."""
        ...


async def wait_for_answers(source: AnswerSource, ids: Sequence[str], patience: float | None) -> AnswersShape:
    """How these questions and requests stand, once something has come of one of them or after so many seconds."""
    until = None if patience is None else source.clock() + patience
    while True:
        questions = [await source.question(id_) for id_ in ids if id_.startswith("q_")]
        requests = [await source.requested(id_) for id_ in ids if not id_.startswith("q_")]
        came = any(one.closed_at is not None for one in questions) or any(one.state != OPEN for one in requests)
        left = None if until is None else until - source.clock()
        if came or source.is_over() or (left is not None and left <= 0):
            return AnswersShape(questions, requests)
        await source.news(POLL if left is None else min(left, POLL))


POLL = 1.0
"""Seconds after which a caller that waits looks by itself, whatever it has heard."""


# A holder under a supervisor: all that it says goes through its attempt's socket, which knows one lease alone.
#
# It needs nothing but the socket's path: neither the store nor its address. How a message is sent is handed in: the
# command line blocks (`blocking`), and an MCP server that answers others meanwhile sends from a thread.

T = TypeVar("T")
SOCKET_POLL = 0.25
"""Seconds between two looks of a caller that waits: nothing is announced through a socket."""


class SocketHolder:
    """A `Holder` behind its supervisor; `task` and `token` may be left out: the socket can mean only one lease."""

    def __init__(
        self,
        send: Callable[[AnyWord], Awaitable[SocketReply]],
        pause: Callable[[float], Awaitable[None]],
        task: str | None = None,
        token: int | None = None,
    ) -> None:
        self._send = send
        self._pause = pause
        self._task = task
        self._token = token

    async def orders(self) -> OrdersShape:
        """How much time is left, and what is asked; it proves nothing."""
        return _orders(await self._send(agent_socket.LookMessage()))

    async def check_in(self, note: str, progress: float | None) -> OrdersShape:
        """Prove progress."""
        message = agent_socket.CheckInMessage(task=self._task, token=self._token, note=note, progress=progress)
        return _orders(await self._send(message))

    async def done(self, result: object) -> LastWordShape:
        """The task is done, or will be once it is verified."""
        return await self._end(
            "done", agent_socket.DoneMessage(task=self._task, token=self._token, result=_raw(result))
        )

    async def fail(self, failure: Failure) -> LastWordShape:
        """This attempt failed."""
        return await self._end("fail", agent_socket.FailMessage(task=self._task, token=self._token, failure=failure))

    async def release(self, reason: str, delay: int) -> LastWordShape:
        """Give the task back."""
        message = agent_socket.ReleaseMessage(task=self._task, token=self._token, reason=reason, delay=delay)
        return await self._end("release", message)

    async def _end(self, verb: str, message: AnyWord) -> LastWordShape:
        reply = await self._send(message)
        return LastWordShape(self._task or "", reply.state or verb, None, _orders(reply))

    async def ask(self, text: str, options: Sequence[Option], *, hold: bool) -> QuestionShape:
        """Ask a human."""
        message = agent_socket.AskMessage(
            task=self._task, token=self._token, text=text, options=tuple(options), hold=hold
        )
        return _question(await self._send(message))

    async def request(self, draft: RequestDraft) -> RequestedShape:
        """Ask another agent, and go on."""
        message: AnyWord
        if draft.kind == DELEGATION:
            message = agent_socket.RequestMessage(
                role=draft.to, name=draft.text, payload=_raw(draft.payload), timeout=draft.timeout
            )
        else:
            message = agent_socket.AskAgentMessage(
                to=draft.to,
                kind=draft.kind,
                summary=draft.text,
                payload=_raw(draft.payload),
                timeout=draft.timeout,
                retries=draft.retries,
                again=draft.again,
                role=draft.role,
                blocks=draft.blocks,
            )
        reply = await self._send(message)
        if reply.request is None:
            raise Bug("a request was made, and none came back")
        return RequestedShape.of(reply.request, OPEN, kind=reply.kind)

    async def wait_for(self, request: RequestedShape, _lease: int | None) -> RequestedShape:
        """Wait for what comes of a request; where it blocks the task, the supervisor ends this attempt."""
        return (await wait_for_answers(self, [request.request_id], None)).requests[0]

    # --- what came of it ----------------------------------------------------------------------------------------------

    async def question(self, id_: str) -> QuestionShape:
        """A question of this attempt as it stands."""
        return _question(await self._send(agent_socket.LookMessage(question=QuestionId(id_))))

    async def requested(self, id_: str) -> RequestedShape:
        """A request of this attempt as it stands."""
        reply = await self._send(agent_socket.LookMessage(request=TaskId(id_)))
        state = reply.state or OPEN
        if state == OPEN and reply.orders is not None and reply.orders.stop is not None:
            state = "blocked"  # it is being ended for it: its slot takes the next task
        return RequestedShape.of(id_, state, msgspec.json.decode(reply.result), kind=reply.kind)

    def clock(self) -> float:
        """Seconds that only ever grow."""
        return time.monotonic()

    def is_over(self) -> bool:
        """Whether nothing more will come."""
        return False

    async def news(self, within: float) -> None:
        """Wait a moment."""
        await self._pause(min(within, SOCKET_POLL))

    # --- other agents' requests ---------------------------------------------------------------------------------------

    async def inbox(self, patience: float, *, mesh: bool) -> Sequence[InboxItem]:
        """What other agents ask, waiting so many seconds for what was not listed before."""
        until = self.clock() + patience
        while True:
            items = (await self._send(agent_socket.InboxMessage(mesh=mesh))).inbox
            if any(item.new for item in items) or self.clock() >= until:
                return items
            await self._pause(SOCKET_POLL)

    async def respond(self, request: str, answer: object) -> None:
        """Answer another agent."""
        await self._send(agent_socket.RespondMessage(request=TaskId(request), answer=_raw(answer)))

    async def decline(self, request: str, reason: str) -> None:
        """Decline what another agent asks."""
        await self._send(agent_socket.DeclineMessage(request=TaskId(request), reason=reason))


def blocking(path: str, task: str | None = None, token: int | None = None) -> SocketHolder:
    """A holder for a program that does one thing: its verbs never suspend, and `at_once` runs them."""

    async def send(message: AnyWord) -> SocketReply:
        return agent_socket.say(path, message)

    async def pause(seconds: float) -> None:
        time.sleep(seconds)  # noqa: ASYNC251 - there is no event loop here

    return SocketHolder(send, pause, task, token)


def at_once(work: Coroutine[Any, Any, T]) -> T:
    """Run a verb of a blocking holder, without an event loop: to import one would double the time that it takes."""
    try:
        work.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    work.close()
    raise Bug("a blocking holder waited for an event loop")


def _raw(value: object) -> msgspec.Raw:
    return msgspec.Raw(to_json(value, "value").encode())


def _question(reply: SocketReply) -> QuestionShape:
    if reply.question is None:
        raise Refused("unknown_question", "this attempt has asked no such question", where="question")
    return QuestionShape.of(reply.question)


def _orders(reply: SocketReply) -> OrdersShape:
    if reply.orders is None:
        raise Bug("the supervisor answered without orders")
    return OrdersShape.told_by(reply.orders)
