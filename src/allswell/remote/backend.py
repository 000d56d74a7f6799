"""The backend of a watch that lives elsewhere: commands go to its server, and are decided there.

A claim waits there, 45 seconds at a time. The server says for how long it has waited before it granted something, so a
lease is trusted from that moment on, and not from when the first call was sent. A claim always has an id here: one
whose answer was lost is sent again, and answered with the same lease. One that its caller has given up is asked for
once more, without waiting, and what it was given goes back.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from types import TracebackType
from typing import Any, Self

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from allswell.domain.claim import Granted
from allswell.domain.command import CheckIn, Claim, Command, RecordStep, Release
from allswell.domain.hold import Orders
from allswell.domain.names import NO_COMMAND
from allswell.domain.question import NOTHING_HELD_BACK, HeldBack
from allswell.engine.backend import Claimed
from allswell.engine.ids import Ids
from allswell.engine.pace import Pace
from allswell.engine.signal import Signal
from allswell.errors import AllswellError, Bug, Unavailable
from allswell.remote.problems import error_of
from allswell.remote.records import RemoteRecords
from allswell.remote.server import Server
from allswell.remote.wire import ANSWERS, PLAIN, WAIT_MOST, Answered, said
from allswell.timing.clock import Clock
from allswell.timing.nursery import Nursery

_POLL = 1.0
"""Seconds between two looks of whoever follows: each is a call over the network."""


class RemoteBackend:
    """What is behind a watch whose store is on a server."""

    def __init__(self, server: Server, ids: Ids, *, clock: Clock, draw: Callable[[], float], pace: Pace) -> None:
        self._server = server
        self._ids = ids
        self._draw = draw
        self._nursery = Nursery()
        self.clock = clock
        self.pace = replace(pace, follow_poll=max(pace.follow_poll, _POLL), claim_poll=max(pace.claim_poll, _POLL))
        self.ready = Signal()
        self.journal = Signal()
        self.store = RemoteRecords(server)

    def draw(self) -> float:
        """A number by chance, from 0 to 1."""
        return self._draw()

    async def __aenter__(self) -> Self:
        try:
            await self.store.view_agenda()  # a wrong address or a wrong key is told at once
        except BaseException:
            self._server.close()
            raise
        await self._nursery.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nursery.cancel()
        try:
            await self._nursery.__aexit__(kind, error, trace)
        finally:
            self._server.close()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something beside it for as long as it is open."""
        self._nursery.start(work, name=name)

    def hear(self) -> None:
        """Whoever waits looks again by itself."""

    async def sweep(self) -> bool:
        """The server sees to what is due."""
        return True

    async def held_back(self) -> HeldBack:
        """The server keeps it back itself."""
        return NOTHING_HELD_BACK

    # --- commands -----------------------------------------------------------------------------------------------------

    async def do(self, command: Command) -> object:
        """Have a command decided and committed; its answer, or its error."""
        (answer,) = await self._say([command])
        if isinstance(answer, AllswellError):
            raise answer
        return answer

    async def do_many(self, commands: Sequence[Command]) -> list[object]:
        """Have commands decided together; an answer or an error for each."""
        return await self._say(commands) if commands else []

    async def check_in(self, command: CheckIn) -> Orders:
        """Renew a lease; the orders for its holder."""
        orders = await self.do(command)
        if not isinstance(orders, Orders):
            raise Bug(f"a check-in was answered with {orders!r}")
        return orders

    async def check_in_many(self, commands: Sequence[CheckIn]) -> list[object]:
        """Renew leases together; orders or an error for each."""
        return await self.do_many(commands)

    async def claim(self, claim: Claim, *, wait: float = 0.0) -> Claimed:
        """Claim tasks, waiting up to `wait` seconds for the first to be there."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        if claim.id == NO_COMMAND:
            claim = replace(claim, id=self._ids.command())
        try:
            while True:
                sent = loop.time()
                left = max(0.0, min(until - sent, WAIT_MOST / 1000))
                answering = await self._server.say([said(claim)], wait=left)
                granted = _answer(claim, answering.answers[0])
                if isinstance(granted, AllswellError):
                    raise granted
                if granted or loop.time() >= until:
                    return Claimed(list(_granted(granted)), sent + answering.waited_ms / 1000)
        except asyncio.CancelledError:
            with contextlib.suppress(RuntimeError):  # this watch is closing: its leases lapse
                self._nursery.start(self._give_back(claim), name="what nobody took")
            raise

    async def _give_back(self, claim: Claim) -> None:
        with contextlib.suppress(Unavailable):
            (granted,) = await self._say([claim])
            for one in _granted(granted):
                lease = one.lease
                await self._say([Release(self._ids.command(), lease.task, lease.token, lease.agent, "nobody took it")])

    async def claim_each(self, claims: Sequence[Claim]) -> tuple[list[list[Granted] | AllswellError], float]:
        """Claims that name their tasks, decided together: what was granted, or an error, for each; when it was sent."""
        sent = asyncio.get_running_loop().time()
        named = [claim if claim.id != NO_COMMAND else replace(claim, id=self._ids.command()) for claim in claims]
        answers = await self._say(named) if named else []
        return [one if isinstance(one, AllswellError) else list(_granted(one)) for one in answers], sent

    async def record(self, step: RecordStep) -> None:
        """Have a step of a flow recorded; it is durable when this returns."""
        await self.do(step)

    def record_here(self, step: RecordStep) -> bool:  # noqa: ARG002 - as a backend has it
        """From elsewhere there is no short way."""
        return False

    async def _say(self, commands: Sequence[Command]) -> list[object]:
        answering = await self._server.say([said(command) for command in commands])
        return [_answer(command, one) for command, one in zip(commands, answering.answers, strict=True)]


def _answer(command: Command, one: Answered) -> object:
    if one.error is not UNSET:
        return error_of(one.error)
    if one.answer is UNSET:
        return None
    answer: object = msgspec.json.decode(one.answer, type=ANSWERS.get(type(command), PLAIN))
    return answer


def _granted(answer: object) -> list[Granted]:
    return [one for one in answer if isinstance(one, Granted)] if isinstance(answer, list) else []
