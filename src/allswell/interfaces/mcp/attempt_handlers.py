"""Tools inside a supervised attempt: all that is said goes through its socket, which knows one lease alone.

A caller may leave out which task it means, since it can mean only one; naming another is refused by the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from allswell.domain.ids import Millis, QuestionId, TaskId
from allswell.domain.question import option_of
from allswell.domain.service.retry import Failure
from allswell.domain.task.model import OPEN
from allswell.errors import Bug, Refused
from allswell.interfaces.mcp import arguments as given
from allswell.interfaces.mcp.handlers import ToolDesk, patience
from allswell.runtime import agent_socket
from allswell.runtime.agent_socket import say
from allswell.views.lease import LastWordShape, OrdersShape
from allswell.views.message import AnswersShape, DeclinedShape, InboxShape, RequestedShape, RespondedShape
from allswell.views.question import QuestionShape

_POLL = 0.25
"""Seconds between two looks of somebody who waits."""


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


class AttemptDesk(ToolDesk):
    """Tools for the holder of one lease."""

    def __init__(self, own: OwnLease) -> None:
        self._own = own

    async def _say(self, word: agent_socket.AnyWord) -> agent_socket.SocketReply:
        """The supervisor answers within a minute, and usually at once; meanwhile this process answers others."""
        return await asyncio.to_thread(say, self._own.socket, word)

    async def own_status(self) -> OrdersShape:
        """How much time is left, and what is asked."""
        return _orders(await self._say(agent_socket.LookMessage()))

    async def checkin(self, said: given.CheckInToolParams) -> OrdersShape:
        """Prove progress."""
        word = agent_socket.CheckInMessage(
            task=said.task, token=said.token, note=said.note, progress=None if said.progress is UNSET else said.progress
        )
        return _orders(await self._say(word))

    async def done(self, said: given.DoneToolParams) -> LastWordShape:
        """The task is done."""
        return await self._end(
            agent_socket.DoneMessage(task=said.task, token=said.token, result=_raw(said.result)), "done"
        )

    async def fail(self, said: given.FailToolParams) -> LastWordShape:
        """The attempt failed."""
        after = None if said.retry_after_s is UNSET else Millis(said.retry_after_s * 1_000)
        failure = Failure(said.error_class, said.message, after, tuple(said.services))
        return await self._end(agent_socket.FailMessage(task=said.task, token=said.token, failure=failure), "fail")

    async def release(self, said: given.ReleaseToolParams) -> LastWordShape:
        """The task is given back."""
        delay = said.delay_s * 1_000
        word = agent_socket.ReleaseMessage(task=said.task, token=said.token, reason=said.reason, delay=delay)
        return await self._end(word, "release")

    async def _end(self, word: agent_socket.AnyWord, verb: str) -> LastWordShape:
        return LastWordShape(self._own.task, verb, None, _orders(await self._say(word)))

    async def ask(self, said: given.AskToolParams) -> QuestionShape:
        """A question to a human."""
        options = tuple(option_of(one.key, one.label) for one in said.options)
        word = agent_socket.AskMessage(
            task=said.task, token=said.token, text=said.text, options=options, hold=said.hold
        )
        return _question(await self._say(word))

    async def answers(self, said: given.AnswersToolParams) -> AnswersShape:
        """What came of questions and requests."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience(said.wait_s)
        while True:
            asked = [one for one in said.ids if one.startswith("q_")]
            questions = [
                _question(await self._say(agent_socket.LookMessage(question=QuestionId(one)))) for one in asked
            ]
            requests = [await self._requested(one) for one in said.ids if one not in asked]
            came = any(one.closed_at for one in questions) or any(one.state != OPEN for one in requests)
            if came or loop.time() >= until:
                return AnswersShape(questions, requests)
            await asyncio.sleep(_POLL)

    async def request(self, said: given.RequestToolParams) -> RequestedShape:
        """A request to another agent."""
        timeout, payload = None if said.timeout_s is UNSET else said.timeout_s * 1_000, _raw(said.payload)
        if said.kind == "delegation":
            if said.retries is not UNSET:
                raise Refused("bad_request", "a delegation is tried once: leave retries out", where="retries")
            word: agent_socket.AnyWord = agent_socket.RequestMessage(
                role=said.to, name=said.text, payload=payload, timeout=timeout
            )
        else:
            word = agent_socket.AskAgentMessage(
                to=said.to,
                kind=said.kind,
                summary=said.text,
                payload=payload,
                timeout=timeout,
                retries=None if said.retries is UNSET else said.retries,
                blocks=said.blocks,
            )
        made = (await self._say(word)).request
        if made is None:
            raise Bug("a request was made, and none came back")
        came = await self.answers(given.AnswersToolParams(ids=[made], wait_s=said.wait_s))
        return came.requests[0]

    async def _requested(self, id_: str) -> RequestedShape:
        reply = await self._say(agent_socket.LookMessage(request=TaskId(id_)))
        state = reply.state or OPEN
        if state == OPEN and reply.orders is not None and reply.orders.stop is not None:
            state = "blocked"  # it is being ended for it: its slot takes the next task
        return RequestedShape.of(id_, state, msgspec.json.decode(reply.result))

    async def inbox(self, said: given.InboxToolParams) -> InboxShape:
        """What other agents ask."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience(said.wait_s)
        while True:
            found = (await self._say(agent_socket.InboxMessage(mesh=said.mesh))).inbox
            if any(item.new for item in found) or loop.time() >= until:
                return InboxShape.of(found)
            await asyncio.sleep(_POLL)

    async def respond(self, said: given.RespondToolParams) -> RespondedShape:
        """An answer to another agent."""
        await self._say(agent_socket.RespondMessage(request=TaskId(said.request), answer=_raw(said.answer)))
        return RespondedShape(said.request)

    async def decline(self, said: given.DeclineToolParams) -> DeclinedShape:
        """A refusal of what another agent asks."""
        await self._say(agent_socket.DeclineMessage(request=TaskId(said.request), reason=said.reason))
        return DeclinedShape(said.request)


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _question(reply: agent_socket.SocketReply) -> QuestionShape:
    if reply.question is None:
        raise Refused("unknown_question", "this attempt has asked no such question", where="ids")
    return QuestionShape.of(reply.question)


def _orders(reply: agent_socket.SocketReply) -> OrdersShape:
    told = reply.orders
    if told is None:
        raise Bug("the supervisor answered without orders")
    return OrdersShape.told_by(told)
