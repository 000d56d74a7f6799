"""A holder's handle on its lease: what it may say, how long it may trust it, and that it is renewed in time.

A holder trusts its lease only until the moment it *sent* its last accepted renewal plus the lease's length, on its own
monotonic clock, so it stops before the store gives the work to someone else.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from allswell.domain.checkin import tells_every
from allswell.domain.classify import failure_of, named_class
from allswell.domain.command import Ask, CheckIn, Complete, Delegate, EndIdle, Fail, Keep, NewTask, Recover, Release
from allswell.domain.duration import parse
from allswell.domain.hold import Orders
from allswell.domain.names import AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.plain_data import to_json
from allswell.domain.policy import DEFAULT, Policy
from allswell.domain.question import Option, Question
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.task import OPEN, Attempt, Handover
from allswell.engine.claims import Granted
from allswell.engine.engine import Engine
from allswell.engine.ids import Ids
from allswell.errors import AllswellError, Bug, LeaseLost, Refused

T = TypeVar("T")
_CONFIRM = 2.0
"""Seconds in which the store must have said that a limit has moved."""


class Lease:
    """The right to one attempt at one task."""

    __slots__ = (
        "_deadline",
        "_ends",
        "_engine",
        "_granted",
        "_ids",
        "_lost",
        "_over",
        "_policies",
        "_renewed",
        "agent",
        "attempt",
        "by_run",
        "length",
        "on_end",
        "task",
        "token",
    )

    def __init__(
        self, engine: Engine, ids: Ids, granted: Granted, sent: float, policies: Mapping[str, Policy] = {}
    ) -> None:
        self._engine = engine
        self._ids = ids
        self._granted = granted
        self._policies = policies
        lease = granted.lease
        self.task: TaskId = lease.task
        self.token: Token = lease.token
        self.agent: AgentId = lease.agent
        self.length = lease.length
        self.attempt: int = lease.token
        self._deadline: int = lease.deadline
        self.by_run = lease.own is not None
        """Whether its limit is that of its run, which moves while the run's clock stands."""
        self._ends = sent + (lease.deadline - granted.told_at) / 1000
        self._renewed = sent - (granted.told_at - lease.renewed_at) / 1000
        self._lost: LeaseLost | None = None
        self._over = False
        self.on_end: Callable[[], None] | None = None
        """Called when it is lost or over, so that nobody has to look again and again."""

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} task={self.task} token={self.token} remaining={self.remaining} ms>"

    @property
    def lost(self) -> LeaseLost | None:
        """Why it is somebody else's, or nobody's, once the store has said so."""
        return self._lost

    @lost.setter
    def lost(self, lost: LeaseLost) -> None:
        self._lost = lost
        self._tell_end()

    @property
    def over(self) -> bool:
        """Whether the attempt has been ended under it."""
        return self._over

    @over.setter
    def over(self, over: bool) -> None:
        self._over = over
        self._tell_end()

    def _tell_end(self) -> None:
        if self.on_end is not None:
            self.on_end()

    @property
    def store(self) -> str:
        """The URL of the store that it is from."""
        return self._engine.store.url

    @property
    def name(self) -> str:
        """The task's name."""
        return self._granted.task.name

    @property
    def payload(self) -> Any:  # noqa: ANN401 - whatever the submitter put in
        """What was submitted with the task."""
        return msgspec.json.decode(self._granted.payload)

    def payload_as(self, shape: type[T]) -> T:
        """What was submitted with the task, as this; `msgspec.ValidationError` where it is something else."""
        return msgspec.json.decode(self._granted.payload, type=shape)

    @property
    def handover(self) -> Handover | None:
        """What the last attempt left behind."""
        return self._granted.task.record.handover

    @property
    def notes(self) -> Sequence[str]:
        """What humans added for this attempt."""
        return self._granted.task.record.notes

    @property
    def deadline(self) -> int:
        """When the attempt's hard limit falls, on the store's clock (ms since the epoch), as far as is known here.

        It moves only where it is that of a run whose clock stands while an answer is waited for.
        """
        return self._deadline

    @property
    def remaining(self) -> int:
        """How long the lease can still be trusted, in ms; 0 when it is over."""
        if self._over or self._lost is not None:
            return 0
        end = self._ends
        if self.length is not None:
            end = min(end, self._renewed + self.length / 1000)
        return max(0, int((end - asyncio.get_running_loop().time()) * 1000))

    @property
    def limit(self) -> int:
        """How long the attempt may take in all, in ms."""
        return self._deadline - self._granted.lease.granted_at

    @property
    def until_limit(self) -> int:
        """How long it is to the attempt's hard limit, in ms, whether or not the lease can be trusted until then."""
        return max(0, int((self._ends - asyncio.get_running_loop().time()) * 1000))

    @property
    def own_limit(self) -> int:
        """What the task itself gives an attempt, in ms; its run may leave it less."""
        return self._granted.task.timeout

    @property
    def role(self) -> str:
        """The task's role."""
        return self._granted.task.role

    @property
    def asks(self) -> tuple[int, int]:
        """How often the holder is asked for a check-in, and how long it has to answer, in milliseconds."""
        return self._granted.lease.ask_every, self._granted.lease.ask_wait

    @property
    def idle_override(self) -> int | None:
        """How long a human lets it go without progress, in milliseconds, where one has raised that."""
        return self._granted.task.record.idle_override

    @property
    def tells_every(self) -> int:
        """How often a watcher tells the store that the holder's protocol shows progress, in milliseconds."""
        return tells_every(self._granted.lease)

    @property
    def run(self) -> RunId | None:
        """The run that the task belongs to."""
        return self._granted.task.run

    @property
    def renew_at(self) -> float | None:
        """When the next renewal is due on the loop's clock: a third of the length after the last."""
        return None if self.length is None or self.over else self._renewed + self.length / 3000

    def heard(self, answer: object, sent: float) -> Orders | AllswellError:
        """Take note of the answer to a renewal that was sent at this moment."""
        if isinstance(answer, Orders):
            self._obey(answer, sent)
            return answer
        if isinstance(answer, LeaseLost):
            self.lost = answer
        return answer if isinstance(answer, AllswellError) else Bug(f"a check-in was answered with {answer!r}")

    async def _say(self, said: CheckIn) -> Orders:
        sent = asyncio.get_running_loop().time()
        try:
            orders = await self._engine.check_in(said)
        except LeaseLost as lost:
            self.lost = lost
            raise
        self._obey(orders, sent)
        return orders

    def _obey(self, orders: Orders, sent: float) -> None:
        self._renewed = max(self._renewed, sent)
        if orders.deadline != self._deadline:
            self._deadline, self.by_run = orders.deadline, orders.by_run
            self._ends = sent + orders.remaining_ms / 1000

    async def confirm(self) -> bool:
        """The limit is reached: ask once whether it has moved, as a run's does while its clock stands."""
        known = self._deadline
        if not self.by_run or self.lost is not None or self.over:
            return False
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(_CONFIRM):
                await self.renew()
        return self._deadline > known

    async def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress; the answer says how much time is left and whether a check-in is owed."""
        return await self._say(CheckIn(self.task, self.token, self.agent, True, note, progress))

    async def renew(self) -> Orders:
        """Prove life, not progress."""
        return await self._say(CheckIn(self.task, self.token, self.agent, proof=False))

    async def _end(self, command: Complete | Fail | Release | Ask | Recover | EndIdle) -> object:
        try:
            answer = await self._engine.do(command)
        except LeaseLost as lost:
            self.lost = lost
            raise
        if not (isinstance(command, Ask) and command.hold):
            self.over = True
        return answer

    def completion(self, result: object, command: CommandId) -> Complete:
        """The command that says the task is done."""
        said = "null" if result is None else to_json(result, "result")
        return Complete(command, self.task, self.token, self.agent, said)

    def ended(self, answer: object) -> AllswellError | None:
        """Take note of the answer to a command that ends the attempt."""
        if not isinstance(answer, AllswellError):
            self.over = True
            return None
        if isinstance(answer, LeaseLost):
            self.lost = answer
        return answer

    async def complete(self, result: object = None) -> None:
        """The task is done."""
        await self._end(self.completion(result, self._ids.command()))

    async def fail(
        self,
        error: BaseException | str | Failure,
        *,
        error_class: ErrorClass | str | None = None,
        retry_after: int | str | None = None,
        services: Sequence[str] = (),
    ) -> None:
        """This attempt failed; the error's class decides what follows."""
        failure = failure_of(error)
        if error_class is not None:
            failure = msgspec.structs.replace(failure, error=named_class(error_class, "error_class"))
        if retry_after is not None:
            after = parse(retry_after, where="retry_after")
            failure = msgspec.structs.replace(failure, retry_after=after)
        if services:
            failure = msgspec.structs.replace(failure, services=tuple(services))
        await self._end(Fail(self._ids.command(), self.task, self.token, self.agent, failure))

    async def release(self, reason: str = "released", *, delay: int | str = 0) -> None:
        """Give the task back: neither a failure nor a timeout."""
        after = parse(delay, where="delay")
        await self._end(Release(self._ids.command(), self.task, self.token, self.agent, reason, after))

    async def end_idle(self, idle: int | None = None, said: str = "") -> None:
        """This attempt showed no progress for so long and has been ended: back to the pool, and counted (O4).

        `said` is what it printed last, for whoever is asked about it.
        """
        limit = None if idle is None else Millis(idle)
        await self._end(EndIdle(self._ids.command(), self.task, self.token, self.agent, limit, said))

    async def keep(self, receipt: str, status: str, path: str = "") -> None:
        """Have the journal know of a receipt; also after the lease has ended."""
        said = Keep(self._ids.command(), self.task, self.token, self.agent, receipt, status, path)
        await self._engine.do(said)

    async def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> QuestionId:
        """Ask a human; unless `hold`, this attempt ends and the task waits for the answer."""
        said = Ask(self._ids.command(), self.task, self.token, self.agent, text, tuple(options), hold)
        return QuestionId(str(await self._end(said)))

    async def delegate(
        self, role: str, name: str, *, payload: object = None, timeout: int | str | None = None
    ) -> TaskId:
        """Hand a focused request to an expert of this role, and keep working; the request is a task of its own.

        It is tried once, and has `delegation_timeout` if nothing else is said, but at most what this attempt has left.
        """
        policy = self._policies.get(role) or self._policies.get("", DEFAULT)
        limit = Millis(policy.delegation_timeout) if timeout is None else parse(timeout, where="timeout")
        said = "null" if payload is None else to_json(payload, f"payload of {name!r}")
        new = NewTask(self._ids.task(), name, role=role, payload=said, policy=policy)
        await self._ask_for(Delegate(self._ids.command(), self.task, self.token, self.agent, new, limit))
        return new.id

    async def request(self, request: TaskId) -> tuple[str, str | None]:
        """How a request of this task's stands: `open` or its end, and its result or the reason, as JSON."""
        row = await self._engine.store.view_task(request)
        if row is None or row.task.spec.origin is None or row.task.spec.origin.task != self.task:
            raise Refused("unknown_request", f"{request} is no request of this task", where="request")
        if row.task.state == "done":
            return "done", (await self._engine.store.view_payload(request))[1]
        return row.task.state, None if row.task.state == OPEN else to_json(row.task.record.reason, "reason")

    async def past(self) -> Attempt | None:
        """How the store has ended this attempt; None while it has not."""
        ended = await self._engine.store.view_attempts(self.task)
        return next((one for one in ended if one.token == self.token), None)

    async def recover(self) -> None:
        """The agent was marked as stalled and has been ended for real: take its task back (O8)."""
        await self._end(Recover(self._ids.command(), self.task, self.token, self.agent))

    async def _ask_for(self, command: Delegate) -> None:
        try:
            await self._engine.do(command)
        except LeaseLost as lost:
            self.lost = lost
            raise

    async def question(self, question: QuestionId) -> Question | None:
        """A question as it stands: what became of one that was asked while the task was kept."""
        return await self._engine.store.view_question(question)
