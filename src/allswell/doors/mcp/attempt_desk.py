"""Tools inside a supervised attempt: all that is said goes through its socket, which knows one lease alone.

A caller may leave out which task it means, since it can mean only one; naming another is refused by the socket.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from allswell.domain.names import Millis, QuestionId, TaskId
from allswell.domain.question import option_of
from allswell.domain.retry import Failure
from allswell.domain.task import OPEN
from allswell.doors.mcp import arguments as given
from allswell.doors.mcp.desk import ToolDesk, patience
from allswell.doors.shapes.answers import AnswersShape
from allswell.doors.shapes.inbox import InboxShape, RespondedShape
from allswell.doors.shapes.orders import LastWordShape, OrdersShape
from allswell.doors.shapes.question import QuestionShape
from allswell.doors.shapes.request import RequestedShape
from allswell.errors import Bug, Refused
from allswell.runtime.speaking import words
from allswell.runtime.speaking.client import say

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
            raise Refused("no_token", "ALLSWELL_TOKEN is no number; let the supervisor set it", where="ALLSWELL_TOKEN")
        return cls(path, environ.get("ALLSWELL_TASK", ""), int(token), environ.get("ALLSWELL_AGENT", ""))

    def meant(self, takes: type[given.ToolTaken], arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Arguments with what goes without saying."""
        return (
            {"task": self.task, "token": self.token, **arguments}
            if issubclass(takes, given.LeaseTaken)
            else {**arguments}
        )


class AttemptDesk(ToolDesk):
    """Tools for the holder of one lease."""

    def __init__(self, own: OwnLease) -> None:
        self._own = own

    async def _say(self, word: words.AnyWord) -> words.Reply:
        """The supervisor answers within a minute, and usually at once; meanwhile this process answers others."""
        return await asyncio.to_thread(say, self._own.socket, word)

    async def own_status(self) -> OrdersShape:
        """How much time is left, and what is asked."""
        return _orders(await self._say(words.Look()))

    async def checkin(self, said: given.CheckInTaken) -> OrdersShape:
        """Prove progress."""
        word = words.CheckIn(
            task=said.task, token=said.token, note=said.note, progress=None if said.progress is UNSET else said.progress
        )
        return _orders(await self._say(word))

    async def done(self, said: given.DoneTaken) -> LastWordShape:
        """The task is done."""
        return await self._end(words.Done(task=said.task, token=said.token, result=_raw(said.result)), "done")

    async def fail(self, said: given.FailTaken) -> LastWordShape:
        """The attempt failed."""
        after = None if said.retry_after_s is UNSET else Millis(said.retry_after_s * 1_000)
        failure = Failure(said.error_class, said.message, after, tuple(said.services))
        return await self._end(words.Fail(task=said.task, token=said.token, failure=failure), "fail")

    async def release(self, said: given.ReleaseTaken) -> LastWordShape:
        """The task is given back."""
        delay = said.delay_s * 1_000
        word = words.Release(task=said.task, token=said.token, reason=said.reason, delay=delay)
        return await self._end(word, "release")

    async def _end(self, word: words.AnyWord, verb: str) -> LastWordShape:
        return LastWordShape(self._own.task, verb, None, _orders(await self._say(word)))

    async def ask(self, said: given.AskTaken) -> QuestionShape:
        """A question to a human."""
        options = tuple(option_of(one.key, one.label) for one in said.options)
        word = words.Ask(task=said.task, token=said.token, text=said.text, options=options, hold=said.hold)
        return _question(await self._say(word))

    async def answers(self, said: given.AnswersTaken) -> AnswersShape:
        """What came of questions and requests."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience(said.wait_s)
        while True:
            asked = [one for one in said.ids if one.startswith("q_")]
            questions = [_question(await self._say(words.Look(question=QuestionId(one)))) for one in asked]
            requests = [await self._requested(one) for one in said.ids if one not in asked]
            came = any(one.closed_at for one in questions) or any(one.state != OPEN for one in requests)
            if came or loop.time() >= until:
                return AnswersShape(questions, requests)
            await asyncio.sleep(_POLL)

    async def request(self, said: given.RequestTaken) -> RequestedShape:
        """A request to another agent."""
        timeout, payload = None if said.timeout_s is UNSET else said.timeout_s * 1_000, _raw(said.payload)
        if said.kind == "delegation":
            if said.retries is not UNSET:
                raise Refused("bad_request", "a delegation is tried once: leave retries out", where="retries")
            word: words.AnyWord = words.Request(role=said.to, name=said.text, payload=payload, timeout=timeout)
        else:
            word = words.AskAgent(
                to=said.to,
                kind=said.kind,
                summary=said.text,
                payload=payload,
                timeout=timeout,
                retries=None if said.retries is UNSET else said.retries,
            )
        made = (await self._say(word)).request
        if made is None:
            raise Bug("a request was made, and none came back")
        came = await self.answers(given.AnswersTaken(ids=[made], wait_s=said.wait_s))
        return came.requests[0]

    async def _requested(self, id_: str) -> RequestedShape:
        reply = await self._say(words.Look(request=TaskId(id_)))
        state = reply.state or OPEN
        if state == OPEN and reply.orders is not None and reply.orders.stop is not None:
            return RequestedShape(id_, "blocked", None, blocked=True, fallback="next_task", next=None)
        result = msgspec.json.decode(reply.result)
        return RequestedShape(id_, state, result, blocked=False, fallback=None, next=None)

    async def inbox(self, said: given.InboxTaken) -> InboxShape:
        """What other agents ask."""
        loop = asyncio.get_running_loop()
        until = loop.time() + patience(said.wait_s)
        while True:
            found = (await self._say(words.Inbox())).inbox
            if found or loop.time() >= until:
                return InboxShape.of(found)
            await asyncio.sleep(_POLL)

    async def respond(self, said: given.RespondTaken) -> RespondedShape:
        """An answer to another agent."""
        await self._say(words.Respond(request=TaskId(said.request), answer=_raw(said.answer)))
        return RespondedShape(said.request)


def _raw(value: object) -> Raw:
    return Raw(msgspec.json.encode(value))


def _question(reply: words.Reply) -> QuestionShape:
    if reply.question is None:
        raise Refused("unknown_question", "this attempt has asked no such question", where="ids")
    return QuestionShape.of(reply.question)


def _orders(reply: words.Reply) -> OrdersShape:
    told = reply.orders
    if told is None:
        raise Bug("the supervisor answered without orders")
    return OrdersShape.told_by(told)
