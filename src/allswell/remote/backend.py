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
from typing import Any, Self, TypeVar

import msgspec
from msgspec import UNSET, Struct
from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.holder import Orders
from allswell.domain.notify.delivery import Delivery
from allswell.domain.question import NOTHING_HELD_BACK, PausedWork
from allswell.domain.rules.command import CheckIn, Claim, Command, RecordStep, Release
from allswell.domain.rules.event import Position
from allswell.domain.rules.query import NAME_OF, Query
from allswell.engine.backend import Claimed, TellsOfWait, log_wait
from allswell.engine.ids import Ids
from allswell.engine.timings import Timings
from allswell.engine.wakeup import Signal
from allswell.errors import AllswellError, Bug, Refused, Unavailable
from allswell.remote.connection import ConnectionPool, HttpAnswer
from allswell.remote.wire import (
    ANSWERS,
    CALLS,
    PLAIN,
    WAIT_MOST,
    Answering,
    CommandBatch,
    CommandResult,
    CompareAndSet,
    EncodedCommand,
    Revise,
    WireProblem,
    error_of,
    said,
)
from allswell.store.views import Views
from allswell.timing.clock import Clock
from allswell.timing.loops import Nursery
from allswell.timing.moment import from_json

# A server as its watch has it: what is sent is sent again while nothing answers, as long as a store is waited for.
#
# A command has an id, so it counts once however often it is sent; queries change nothing.

T = TypeVar("T")
PREFIX = "/api/v1"
_AWAY = (429, 502, 503, 504)


class RemoteServer:
    """Where commands and looks are sent."""

    def __init__(self, connections: ConnectionPool, pace: Timings, tell: TellsOfWait = log_wait) -> None:
        self._connections = connections
        self._pace = pace
        self._tell = tell
        self.url = connections.url

    def close(self) -> None:
        """Let its connections go."""
        self._connections.close()

    async def say(self, commands: list[EncodedCommand], *, wait: float = 0.0) -> Answering:
        """Have commands decided; what became of each."""
        body = msgspec.json.encode(CommandBatch(commands, int(wait * 1000)))
        return _decoded(await self._sent("/commands", body, wait=wait), Answering)

    async def call(self, name: str, arguments: Struct, *, again: bool = True) -> Any:
        """Look at what is kept, or write what is no command, by its name."""
        body = msgspec.json.encode(arguments)
        return _decoded(await self._sent(f"/views/{name}", body, again=again), CALLS[name].answer)

    async def ask(self, path: str, kind: type[T]) -> T:
        """Ask by one of the routes that are made for everybody; the answer in the shape that it has there."""
        return _decoded(await self._sent(path, None), kind)

    async def _sent(self, path: str, body: bytes | None, *, wait: float = 0.0, again: bool = True) -> bytes:
        loop = asyncio.get_running_loop()
        until = loop.time() + self._pace.store_patience
        pause, told = self._pace.retry_first, False
        while True:
            try:
                answer = await self._connections.call(PREFIX + path, body, wait=wait)
                if answer.status < 400:
                    return answer.body
                trouble = _trouble(answer)
            except Unavailable as error:
                trouble = error
            left = until - loop.time()
            if not again or left <= 0:
                raise trouble
            if not told:
                self._tell(f"Waiting up to {self._pace.store_patience:g} s for the server: {trouble.message}")
                told = True
            await asyncio.sleep(min(pause, left))
            pause = min(pause * 2, self._pace.retry_most)


def _trouble(answer: HttpAnswer) -> Unavailable:
    """What may pass by itself; anything else is raised."""
    try:
        problem = msgspec.json.decode(answer.body, type=WireProblem)
    except msgspec.DecodeError:
        problem = None
    if answer.status in _AWAY:
        said = f"it answered with {answer.status}" if problem is None else problem.detail
        return Unavailable(said, hint=None if problem is None else problem.hint)
    if problem is None:
        hint = "is this the address of `allswell serve`?"
        raise Unavailable(f"the answer ({answer.status}) did not come from Allswell", hint=hint)
    raise error_of(problem)


def _decoded(body: bytes, kind: type[T]) -> T:
    try:
        return from_json(body, kind)
    except msgspec.DecodeError as error:
        hint = "both sides must have the same version of Allswell"
        raise Unavailable(f"the server's answer cannot be read: {error}", hint=hint) from None


# What is kept on a server, looked at from elsewhere: a query travels under its name.

# ruff: noqa: ANN401, ARG002 - a view's own type says what it is; what is refused takes what it takes elsewhere


class RemoteRecords(Views):
    """What a server shows of what it keeps."""

    def __init__(self, server: RemoteServer) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    async def view(self, query: Query[T]) -> T:
        """The answer to a query."""
        answer: T = await self._server.call(NAME_OF[type(query)], query)
        return answer

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more.

        It is sent once: a second one would find what the first has put there.
        """
        kept: bool = await self._server.call("swap", CompareAndSet(key, before, after), again=False)
        return kept

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self._server.call("revise", Revise(changed, gone))

    # --- what is done beside the store --------------------------------------------------------------------------------

    async def put(self, key: str, value: str) -> None:
        """The watch's own doing."""
        raise _beside_the_store()

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """A sink's own doing."""
        raise _beside_the_store()

    async def forget(self, follower: str, sink: str) -> None:
        """A sink's own doing."""
        raise _beside_the_store()

    async def advance(self, follower: str, position: Position) -> None:
        """A sink's own doing."""
        raise _beside_the_store()


def _beside_the_store() -> Refused:
    text = "this is done beside the store, and not over a network: name the store itself with --store"
    return Refused("not_remote", text, where="store")


_POLL = 1.0
"""Seconds between two looks of whoever follows: each is a call over the network."""


class RemoteBackend:
    """What is behind a watch whose store is on a server."""

    def __init__(
        self, server: RemoteServer, ids: Ids, *, clock: Clock, rng: Callable[[], float], pace: Timings
    ) -> None:
        self._server = server
        self._ids = ids
        self._rng = rng
        self._nursery = Nursery()
        self.clock = clock
        self.pace = replace(pace, follow_poll=max(pace.follow_poll, _POLL), claim_poll=max(pace.claim_poll, _POLL))
        self.ready = Signal()
        self.journal = Signal()
        self.store = RemoteRecords(server)

    def rng(self) -> float:
        """A number by chance, from 0 to 1."""
        return self._rng()

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

    async def held_back(self) -> PausedWork:
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
                self._nursery.start(self._give_back(claim), name="claims that the caller cancelled")
            raise

    async def _give_back(self, claim: Claim) -> None:
        with contextlib.suppress(Unavailable):
            (granted,) = await self._say([claim])
            for one in _granted(granted):
                lease = one.lease
                await self._say(
                    [Release(self._ids.command(), lease.task, lease.token, lease.agent, "claim cancelled by caller")]
                )

    async def claim_each(self, claims: Sequence[Claim]) -> tuple[list[list[Granted] | AllswellError], float]:
        """Claims that name their tasks, decided together: what was granted, or an error, for each; when it was sent."""
        sent = asyncio.get_running_loop().time()
        named = [claim if claim.id != NO_COMMAND else replace(claim, id=self._ids.command()) for claim in claims]
        answers = await self._say(named) if named else []
        return [one if isinstance(one, AllswellError) else list(_granted(one)) for one in answers], sent

    async def record(self, step: RecordStep) -> None:
        """Have a step of a flow recorded; it is durable when this returns."""
        await self.do(step)

    def record_here(self, step: RecordStep) -> bool:
        """From elsewhere there is no short way."""
        return False

    async def _say(self, commands: Sequence[Command]) -> list[object]:
        answering = await self._server.say([said(command) for command in commands])
        return [_answer(command, one) for command, one in zip(commands, answering.answers, strict=True)]


def _answer(command: Command, one: CommandResult) -> object:
    if one.error is not UNSET:
        return error_of(one.error)
    if one.answer is UNSET:
        return None
    answer: object = msgspec.json.decode(one.answer, type=ANSWERS.get(type(command), PLAIN))
    return answer


def _granted(answer: object) -> list[Granted]:
    return [one for one in answer if isinstance(one, Granted)] if isinstance(answer, list) else []
