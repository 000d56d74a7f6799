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
from msgspec import UNSET
from msgspec.structs import replace

from allswell.domain.agents.cost import ExpenseRow, Spent, SpentBy
from allswell.domain.ids import NO_COMMAND, QuestionId, RunId, TaskId
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.holder import Orders
from allswell.domain.lease.model import Agent
from allswell.domain.notify.delivery import Delivery, DeliveryFilter
from allswell.domain.question import NOTHING_HELD_BACK, HeldBack, Question
from allswell.domain.rules.command import CheckIn, Claim, Command, RecordStep, Release
from allswell.domain.rules.event import Entry, Position
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, TaskFilter, TaskRow
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
    CommandResult,
    EncodedCommand,
    Saying,
    WireProblem,
    error_of,
    said,
)
from allswell.store.views import Agenda
from allswell.timing.clock import Clock
from allswell.timing.nursery import Nursery

# A server as its watch has it: what is sent is sent again while nothing answers, as long as a store is waited for.
#
# A command has an id, so it counts once however often it is sent; looks change nothing. A swap of a word is sent once:
# a second one would find what the first has put there.

T = TypeVar("T")
PREFIX = "/api/v1"
_AWAY = (429, 502, 503, 504)
_ONCE = ("swap",)


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
        body = msgspec.json.encode(Saying(commands, int(wait * 1000)))
        return _decoded(await self._sent("/commands", body, wait=wait), Answering)

    async def look(self, name: str, given: dict[str, Any]) -> Any:
        """Look at what is kept, by the name of a view."""
        wanted = CALLS[name]
        body = msgspec.json.encode(wanted.arguments(**given))
        return _decoded(await self._sent(f"/views/{name}", body, again=name not in _ONCE), wanted.answer)

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
        return msgspec.json.decode(body, type=kind)
    except msgspec.DecodeError as error:
        hint = "both sides must have the same version of Allswell"
        raise Unavailable(f"the server's answer cannot be read: {error}", hint=hint) from None


# What is kept on a server, looked at from elsewhere: each view is a call by its name, with the types it has here.

# ruff: noqa: ANN401, ARG002 - a view's own type says what it is; what is refused takes what it takes elsewhere


class RemoteRecords:
    """What a server shows of what it keeps."""

    def __init__(self, server: RemoteServer) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    async def _look(self, name: str, **given: Any) -> Any:
        return await self._server.look(name, given)

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        found: Agenda = await self._look("view_agenda")
        return found

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        found: list[TaskRow] = await self._look("view_tasks", which=which)
        return found

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        found: TaskRow | None = await self._look("view_task", task=task)
        return found

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        found: tuple[str | None, str | None] = await self._look("view_payload", task=task)
        return found

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        found: list[Attempt] = await self._look("view_attempts", task=task)
        return found

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost, as far as it was told."""
        found: list[ExpenseRow] = await self._look("view_expenses", task=task)
        return found

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """What was spent, added up."""
        found: dict[str, Spent] = await self._look("view_spent", by=by, keys=list(keys), since=since)
        return found

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        found: list[Question] = await self._look("view_questions", open_only=open_only, limit=limit)
        return found

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        found: Question | None = await self._look("view_question", question=question)
        return found

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        found: Run | None = await self._look("view_run", run=run)
        return found

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        found: list[Run] = await self._look("view_runs", limit=limit)
        return found

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        found: list[Agent] = await self._look("view_agents")
        return found

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        found: dict[str, ServiceRow] = await self._look("view_services")
        return found

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        found: dict[str, int] = await self._look("view_counts")
        return found

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks that nothing will ever move again."""
        found: list[TaskId] = await self._look("view_unaccounted", limit=limit)
        return found

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under every key that begins so."""
        found: dict[str, str] = await self._look("view_kept", prefix=prefix)
        return found

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        found: list[Delivery] = await self._look("view_deliveries", which=which)
        return found

    async def view_results(self, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
        """The results of a run's tasks of one role that are done, by id."""
        found: list[tuple[TaskId, str]] = await self._look("view_results", run=run, role=role, after=after, limit=limit)
        return found

    async def view_cursors(self) -> dict[str, Position]:
        """Every follower that has ever got anywhere, and where."""
        found: dict[str, Position] = await self._look("view_cursors")
        return found

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order."""
        found: list[Entry] = await self._look("journal", after=after, limit=limit)
        return found

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        found: Position = await self._look("cursor", follower=follower)
        return found

    async def recall(self, key: str) -> str | None:
        """What is kept under a key."""
        found: str | None = await self._look("recall", key=key)
        return found

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more."""
        found: bool = await self._look("swap", key=key, before=before, after=after)
        return found

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self._look("revise", changed=list(changed), gone=list(gone))

    # --- what is done beside the store --------------------------------------------------------------------------------

    async def remember(self, key: str, value: str) -> None:
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
        self, server: RemoteServer, ids: Ids, *, clock: Clock, draw: Callable[[], float], pace: Timings
    ) -> None:
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
