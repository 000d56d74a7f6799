"""An attempt that somebody holds, known by its task, its token and its holder: all that can be said about it.

Whoever knows these three may speak for the attempt, also from another process than the one that claimed it: a command
typed by an agent, or a supervisor that settles what a dead one left. Every word carries them, and the store refuses it
when they no longer fit. A word may have the id of a command, which is the same when it is said again: then it counts
once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Unpack

import msgspec
from msgspec import UNSET

from allswell.domain.audit import AfterAudit
from allswell.domain.classify import failure_of, named_class
from allswell.domain.command import (
    Ask,
    CheckIn,
    Complete,
    Delegate,
    EndIdle,
    Fail,
    HolderCommand,
    Keep,
    NewTask,
    Recover,
    Release,
    Verified,
)
from allswell.domain.duration import Duration, parse
from allswell.domain.expense import Expense
from allswell.domain.hold import Orders
from allswell.domain.inbox import InboxItem
from allswell.domain.names import AgentId, CommandId, Millis, QuestionId, TaskId, Token
from allswell.domain.paying import EndCostly, Spend
from allswell.domain.plain_data import to_json
from allswell.domain.question import Option, Question
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.task import OPEN, Attempt
from allswell.domain.verification import SAID_MAX, WHY_MAX, AfterCheck
from allswell.engine.backend import Backend
from allswell.engine.ids import Ids, task_for_key
from allswell.engine.mesh import COMES_WITHIN, Caller, Mesh, Requested, Wishes
from allswell.errors import Refused


class Held:
    """One attempt at one task, held by somebody."""

    __slots__ = ("_engine", "_ids", "_mesh", "agent", "task", "token")

    def __init__(
        self, engine: Backend, ids: Ids, task: TaskId, token: Token, agent: AgentId, mesh: Mesh | None = None
    ) -> None:
        self._engine = engine
        self._ids = ids
        self._mesh = mesh or Mesh(engine, ids)
        self.task = task
        self.token = token
        self.agent = agent

    # --- how words are said: a lease takes note of the answers --------------------------------------------------------

    async def _check_in(self, said: CheckIn) -> Orders:
        return await self._engine.check_in(said)

    async def _say(self, said: HolderCommand) -> object:
        """Say something after which the attempt goes on."""
        return await self._engine.do(said)

    async def _end(self, said: HolderCommand | EndCostly) -> object:
        """Say something that ends the attempt."""
        return await self._engine.do(said)

    def _command(self, given: str | None = None) -> CommandId:
        return self._ids.command() if given is None else CommandId(given)

    # --- what can be said ---------------------------------------------------------------------------------------------

    async def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress; the answer says how much time is left and whether a check-in is owed."""
        return await self._check_in(CheckIn(self.task, self.token, self.agent, True, note, progress))

    async def renew(self) -> Orders:
        """Prove life, not progress."""
        return await self._check_in(CheckIn(self.task, self.token, self.agent, proof=False))

    async def complete(self, result: object = None, *, command: str | None = None) -> None:
        """The task is done."""
        await self._end(self.completion(result, self._command(command)))

    async def verified(
        self,
        *,
        passed: bool,
        why: str,
        said: str = "",
        elapsed: int = 0,
        by: str = "",
        result: object = UNSET,
        hold: bool = False,
    ) -> AfterCheck:
        """What the verification of this attempt's work came to, by whoever supervises it; what follows from that.

        `why` is its exit code in words, `said` the end of what it printed, `elapsed` in ms. Without `result`, what the
        holder brought when it said that it was done stands. With `hold` the holder keeps a task that it has to mend.
        """
        brought = None if result is UNSET else to_json(result, "result")
        word = (self._command(), self.task, self.token, self.agent)
        verdict = Verified(*word, passed, why[:WHY_MAX], said[-SAID_MAX:], elapsed, by, brought, hold)
        followed = await (self._say(verdict) if hold else self._end(verdict))
        return followed if isinstance(followed, AfterCheck) else AfterCheck(AfterAudit.ACCEPT, 0, 0)

    def completion(self, result: object, command: CommandId) -> Complete:
        """The command that says the task is done."""
        said = "null" if result is None else to_json(result, "result")
        return Complete(command, self.task, self.token, self.agent, said)

    async def fail(
        self,
        error: BaseException | str | Failure,
        *,
        error_class: ErrorClass | str | None = None,
        retry_after: Duration | None = None,
        services: Sequence[str] = (),
        command: str | None = None,
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
        await self._end(Fail(self._command(command), self.task, self.token, self.agent, failure))

    async def release(self, reason: str = "released", *, delay: Duration = 0, command: str | None = None) -> None:
        """Give the task back: neither a failure nor a timeout."""
        after = parse(delay, where="delay")
        await self._end(Release(self._command(command), self.task, self.token, self.agent, reason, after))

    async def recover(self) -> None:
        """The agent was marked as stalled and has been ended for real: take its task back (O8)."""
        await self._end(Recover(self._command(), self.task, self.token, self.agent))

    async def end_idle(self, idle: int | None = None, said: str = "") -> None:
        """This attempt showed no progress for so long and has been ended: back to the pool, and counted (O4).

        `said` is what it printed last, for whoever is asked about it.
        """
        limit = None if idle is None else Millis(idle)
        await self._end(EndIdle(self._command(), self.task, self.token, self.agent, limit, said))

    async def spend(self, expense: Expense) -> bool:
        """What this attempt has cost so far, also after its end; whether its task has reached what it may."""
        return bool(await self._engine.do(Spend(self._command(), self.task, self.token, self.agent, expense)))

    async def end_costly(self) -> None:
        """The task has cost what it may, and this attempt was ended for it: a human is asked."""
        await self._end(EndCostly(self._command(), self.task, self.token, self.agent))

    async def keep(self, receipt: str, status: str, path: str = "") -> None:
        """Have the journal know of a receipt; also after the lease has ended."""
        await self._engine.do(Keep(self._command(), self.task, self.token, self.agent, receipt, status, path))

    async def ask(
        self, text: str, options: Sequence[Option] = (), *, hold: bool = False, command: str | None = None
    ) -> QuestionId:
        """Ask a human; unless `hold`, this attempt ends and the task waits for the answer."""
        said = Ask(self._command(command), self.task, self.token, self.agent, text, tuple(options), hold)
        return QuestionId(str(await (self._say(said) if hold else self._end(said))))

    async def delegate(
        self, role: str, name: str, *, payload: object = None, timeout: Duration | None = None, key: str | None = None
    ) -> TaskId:
        """Hand a focused request to an expert of this role, and keep working; the request is a task of its own.

        It is tried once, and has `delegation_timeout` if nothing else is said, but at most what this attempt has left.
        Under the same `key` a task delegates it once.
        """
        policy = self._mesh.policy_for(role)
        limit = Millis(policy.delegation_timeout) if timeout is None else parse(timeout, where="timeout")
        said = "null" if payload is None else to_json(payload, f"payload of {name!r}")
        id_ = self._ids.task() if key is None else task_for_key(f"delegate {self.task} {key}")
        new = NewTask(id_, name, role=role, payload=said, policy=policy)
        command = self._command(None if key is None else f"ask.{id_}")
        await self._say(Delegate(command, self.task, self.token, self.agent, new, limit))
        return new.id

    async def request(
        self,
        to: str,
        kind: str,
        summary: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        **wishes: Unpack[Wishes],
    ) -> Requested:
        """Ask another agent, whoever has a role (`role:NAME`), or an address, and wait for the answer.

        Where nobody answers, this attempt is over and its task waits for the request; what to do instead is `next`, a
        task of `roles` (this task's own role, if nothing is said), claimed with `lease`.
        """
        sent = await self.send_request(to, kind, summary, waits=COMES_WITHIN, **wishes)
        return await self.wait_for(sent, roles=roles, lease=lease)

    async def send_request(
        self, to: str, kind: str, summary: str, *, waits: int = 0, **wishes: Unpack[Wishes]
    ) -> TaskId:
        """Ask, and go on; `waits` is how long, in ms, whoever waits may take to come when nobody has answered."""
        caller = Caller(self.task, self.token, self.agent)
        said = await self._mesh.routed(self._mesh.sending(caller, to, kind, summary, waits=waits, **wishes))
        return await self._mesh.send(said, self._say)

    async def wait_for(
        self,
        request: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        claims: bool = True,
    ) -> Requested:
        """Wait for a request that this attempt has asked; without `claims` nothing else is claimed if it blocks."""
        length = None if lease is None else parse(lease, where="lease")
        caller = Caller(self.task, self.token, self.agent)
        ended = await self._mesh.wait(
            caller,
            TaskId(request),
            roles=roles,
            length=length,
            claims=claims,
            checkin=self.checkin,
            renew=self.renew,
        )
        if ended.blocked:
            self._blocked()
        return ended

    def _blocked(self) -> None:
        """A request that nobody answered has ended the attempt."""

    async def is_exhausted(self, request: str) -> bool | None:
        """Whether nobody has answered a request, and it is about to block the task; None: it has ended, or has."""
        return await self._mesh.is_exhausted(TaskId(request))

    async def inbox(self, *, roles: Sequence[str] = ()) -> list[InboxItem]:
        """The requests that the holder of this attempt, which has these roles, can answer."""
        return await self._mesh.inbox(self.agent, roles)

    async def respond(self, request: str, answer: object = None, *, roles: Sequence[str] = ()) -> None:
        """Answer a request as the holder of this attempt."""
        await self._mesh.respond(request, answer, agent=self.agent, roles=roles)

    # --- what became of it --------------------------------------------------------------------------------------------

    async def requested(self, request: TaskId) -> tuple[str, str | None]:
        """How a request of this task's stands: `open` or its end, and its result or the reason, as JSON."""
        row = await self._engine.store.view_task(request)
        if row is None or row.task.spec.origin is None or row.task.spec.origin.task != self.task:
            raise Refused("unknown_request", f"{request} is no request of this task", where="request")
        if row.task.state == "done":
            return "done", (await self._engine.store.view_payload(request))[1]
        return row.task.state, None if row.task.state == OPEN else to_json(row.task.record.reason, "reason")

    async def question(self, question: QuestionId) -> Question | None:
        """A question as it stands: what became of one that was asked while the task was kept."""
        return await self._engine.store.view_question(question)

    async def past(self) -> Attempt | None:
        """How the store has ended this attempt; None while it has not."""
        ended = await self._engine.store.view_attempts(self.task)
        return next((one for one in ended if one.token == self.token), None)
