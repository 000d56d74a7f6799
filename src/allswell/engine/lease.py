"""An attempt that is held, known by its task, its token and its holder, with all that can be done for it.

Any process that knows these three may act for the attempt, not only the one that claimed it: a command that an agent
types, or a supervisor that settles what a dead one left. Every word carries them, and the store refuses it when they no
longer fit. A word may have the id of a command, which is the same when it is said again: then it counts once.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar, Unpack

import msgspec
from msgspec import UNSET, Struct

from allswell.domain.agents.cost import Expense
from allswell.domain.agents.denied import DecidedCall, Denied
from allswell.domain.duration import LONGEST, Duration, parse, show
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, TaskId, Token, question_id
from allswell.domain.lease.audit import AfterAudit
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.cost import EndCostly, Spend, limit_of, token_limit_of
from allswell.domain.lease.holder import Orders
from allswell.domain.lease.model import NO_LIMIT, lapses_at, stop_margin, tells_every
from allswell.domain.lease.suspension import Continue, NoteRefusal, NoteRepeats, Suspend
from allswell.domain.lease.verification import SAID_MAX, WHY_MAX, AfterCheck, verify_of
from allswell.domain.mesh.request import InboxItem
from allswell.domain.question import Option, Question
from allswell.domain.rules.command import (
    Ask,
    CheckIn,
    Command,
    Complete,
    Delegate,
    EndIdle,
    Fail,
    HolderCommand,
    NewTask,
    RecordReceipt,
    Recover,
    Release,
    Verified,
)
from allswell.domain.service.classify import failure_of, named_class
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import OPEN, Attempt, RequestAnswer, TaskRow
from allswell.domain.values import to_json
from allswell.engine.backend import Backend
from allswell.engine.budget import Budgets, hold_to_budgets
from allswell.engine.ids import Ids, task_for_key
from allswell.engine.mesh import COMES_WITHIN, Caller, FallbackClaim, Mesh, Requested, RequestOptions
from allswell.errors import AllswellError, Bug, LeaseLost, Refused

LastWord = Complete | Verified | Fail | Release | Recover | EndIdle | EndCostly | Ask | Spend | RecordReceipt
"""What is recorded when an attempt ends: how it ended, what it cost, and which receipt it left."""


def answers_for(row: TaskRow, token: int) -> list[RequestAnswer]:
    """Of the answers of other agents, those that the holder of an attempt has not heard by its claim or by waiting."""
    lease = row.lease
    if lease is None or lease.token != token:
        return []
    answers = [one for one in row.task.record.answers if one.at >= lease.granted_at]
    return [one for one in answers if not one.waited or one.token != token]


class Held:
    """One attempt at one task, held by an agent."""

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

    async def _say(self, said: HolderCommand | Suspend | Continue | NoteRefusal | NoteRepeats) -> object:
        """Say something after which the attempt goes on."""
        return await self._engine.do(said)

    async def _end(self, said: HolderCommand | EndCostly) -> object:
        """Say something that ends the attempt."""
        return await self._engine.do(said)

    async def _send(self, said: HolderCommand | EndCostly | Spend) -> object:
        """Have a command decided and committed."""
        return await self._engine.do(said)

    def _command(self, given: str | None = None) -> CommandId:
        return self._ids.command() if given is None else CommandId(given)

    def new_command(self) -> CommandId:
        """An id for a command that is made now, and may be sent more than once."""
        return self._ids.command()

    # --- what can be said ---------------------------------------------------------------------------------------------

    async def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress; the answer says how much time is left and whether a check-in is owed."""
        return await self._check_in(CheckIn(self.task, self.token, self.agent, True, note, progress))

    async def renew(self) -> Orders:
        """Prove life, not progress."""
        return await self._check_in(CheckIn(self.task, self.token, self.agent, proof=False))

    async def suspend(self, by: str, *, ago: int = 0) -> None:
        """A person has stopped the command, with this signal, so many milliseconds ago: its limit stands."""
        await self._say(Suspend(self._command(), self.task, self.token, self.agent, by, ago))

    async def go_on(self) -> Orders:
        """The command goes on, if it was stopped; its limit is later by the time that it stood."""
        await self._say(Continue(self._command(), self.task, self.token, self.agent))
        return await self.renew()

    async def note_refusal(self, words: str) -> None:
        """The provider refuses the command's client, which tries again by itself; nothing: it goes on."""
        await self._say(NoteRefusal(self._command(), self.task, self.token, self.agent, words))

    async def note_repeats(
        self, words: str, *, asks: bool = False, question: QuestionId | None = None, command: str | None = None
    ) -> QuestionId | None:
        """The agent does the same again and again; nothing: it does so no more, and the `question` is taken back.

        With `asks` a human is asked about it, and the answer is the question; the attempt goes on meanwhile.
        """
        said = NoteRepeats(self._command(command), self.task, self.token, self.agent, words, asks, question)
        asked = await self._say(said)
        return QuestionId(asked) if isinstance(asked, str) else None

    async def complete(self, result: object = None, *, command: str | None = None, warning: str = "") -> None:
        """The task is done; `warning` is what a human should know of the attempt all the same."""
        await self._end(self.completion(result, self._command(command), warning))

    async def verified(  # noqa: PLR0913 - all are keywords
        self,
        *,
        passed: bool,
        why: str,
        said: str = "",
        elapsed: int = 0,
        by: str = "",
        result: object = UNSET,
        hold: bool = False,
        warning: str = "",
    ) -> AfterCheck:
        """Report the verdict of this attempt's verification; the answer says what follows from it.

        `why` is its exit code in words, `said` the end of what it printed, `elapsed` in ms. Without `result`, what the
        holder brought when it said that it was done stands. With `hold` the holder keeps a task that it has to mend.
        """
        brought = None if result is UNSET else to_json(result, "result")
        word = (self._command(), self.task, self.token, self.agent)
        verdict = Verified(*word, passed, why[:WHY_MAX], said[-SAID_MAX:], elapsed, by, brought, hold, warning)
        followed = await (self._say(verdict) if hold else self._end(verdict))
        return followed if isinstance(followed, AfterCheck) else AfterCheck(AfterAudit.ACCEPT, 0, 0)

    def completion(self, result: object, command: CommandId, warning: str = "") -> Complete:
        """The command that says the task is done."""
        said = "null" if result is None else to_json(result, "result")
        return Complete(command, self.task, self.token, self.agent, said, warning)

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

    async def release(
        self, reason: str = "released", *, delay: Duration = 0, command: str | None = None, awaits: str | None = None
    ) -> None:
        """Give the task back: neither a failure nor a timeout. With `awaits` it waits for that task's end."""
        after, other = parse(delay, where="delay"), None if awaits is None else TaskId(awaits)
        await self._end(Release(self._command(command), self.task, self.token, self.agent, reason, after, other))

    async def repeat(self, command: LastWord) -> object:
        """Send a command that was made before, under the id that it has: it counts once, however often it is sent."""
        return await (self._send(command) if isinstance(command, RecordReceipt | Spend) else self._end(command))

    async def recover(self) -> None:
        """The agent was marked as stalled and has been ended for real: take its task back (O8)."""
        await self._end(Recover(self._command(), self.task, self.token, self.agent))

    async def end_idle(self, idle: int | None = None, said: str = "", repeats: str = "") -> None:
        """This attempt was ended without progress for `idle`: its task is ready again, and the end is counted (O4).

        `said` is what it printed last, for the human who is asked about it; `repeats` what it did again.
        """
        limit = None if idle is None else Millis(idle)
        await self._end(EndIdle(self._command(), self.task, self.token, self.agent, limit, said, repeats))

    async def spend(self, expense: Expense) -> bool:
        """What this attempt has cost so far, also after its end; whether its task has reached what it may."""
        return bool(await self._send(Spend(self._command(), self.task, self.token, self.agent, expense)))

    async def end_costly(self) -> None:
        """The task has cost what it may, and this attempt was ended for it: a human is asked."""
        await self._end(EndCostly(self._command(), self.task, self.token, self.agent))

    async def keep(self, receipt: str, status: str, path: str = "") -> None:
        """Have the journal know of a receipt; also after the lease has ended."""
        await self._send(RecordReceipt(self._command(), self.task, self.token, self.agent, receipt, status, path))

    async def ask(
        self,
        text: str,
        options: Sequence[Option] = (),
        *,
        hold: bool = False,
        command: str | None = None,
        denied: Denied | None = None,
        result: object = UNSET,
    ) -> QuestionId:
        """Ask a human; unless `hold`, this attempt ends and the task waits for the answer.

        `denied` are calls that the agent's program refused: the human may allow one of them for the next attempt.
        `result` is what the attempt brought: the human may accept that instead of an answer.
        """
        brought = None if result is UNSET else to_json(result, "result")
        said = Ask(
            *(self._command(command), self.task, self.token, self.agent, text, tuple(options), hold, denied),
            result=brought,
        )
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
        **wishes: Unpack[RequestOptions],
    ) -> Requested:
        """Ask another agent, any agent of a role (`role:NAME`), or an address, and wait for the answer.

        If no answer comes, this attempt is over and its task waits for the request. `next` is then another task, of
        `roles` (by default this task's role), claimed with `lease`.
        """
        sent = await self.send_request(to, kind, summary, waits=COMES_WITHIN, **wishes)
        return await self.wait_for(sent, roles=roles, lease=lease)

    async def kind_for(self, to: str) -> str:
        """What is meant by a request of which only whom it is for was said: an agent that is known is asked itself."""
        return await self._mesh.kind_for(to)

    async def send_request(
        self, to: str, kind: str, summary: str, *, waits: int = 0, **wishes: Unpack[RequestOptions]
    ) -> TaskId:
        """Ask, and go on. `waits` is how long, in ms, the caller may take to come back when no answer has come."""
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
        wait: Duration | None = None,
    ) -> Requested:
        """Wait for a request that this attempt has asked; without `claims` nothing else is claimed if it blocks.

        With `wait` the call waits that long at most; a request without an answer is then `open`.
        """
        length = None if lease is None else parse(lease, where="lease")
        caller = Caller(self.task, self.token, self.agent)
        ended = await self._mesh.wait(
            caller,
            TaskId(request),
            FallbackClaim(None if roles is None else tuple(roles), length, claims),
            patience=None if wait is None else parse(wait, where="wait") / 1_000,
            checkin=self.checkin,
            renew=self.renew,
        )
        if ended.blocked:
            self._blocked(ended.request_id)
        return ended

    def _blocked(self, request: TaskId) -> None:
        """A request without an answer has ended the attempt."""

    async def is_exhausted(self, request: str) -> bool | None:
        """Whether a request has no answer and is about to block the task; None: it has ended, or has blocked it."""
        return await self._mesh.is_exhausted(TaskId(request))

    async def inbox(self, *, roles: Sequence[str] = (), mesh: bool = False) -> list[InboxItem]:
        """The requests for the holder of this attempt, which has these roles; with `mesh` those for others."""
        return await self._mesh.inbox(self.agent, roles, mesh=mesh)

    async def respond(self, request: str, answer: object = None, *, roles: Sequence[str] = ()) -> None:
        """Answer a request as the holder of this attempt."""
        await self._mesh.respond(request, answer, agent=self.agent, roles=roles)

    async def decline(self, request: str, reason: str = "", *, roles: Sequence[str] = ()) -> None:
        """Decline a request that is addressed to the holder of this attempt."""
        await self._mesh.decline(request, reason, agent=self.agent, roles=roles)

    # --- what became of it --------------------------------------------------------------------------------------------

    async def requested(self, request: TaskId) -> tuple[str, str | None]:
        """How a request of this task's stands: `open`, `blocked` or its end, and its result or the reason, as JSON."""
        row = await self._engine.store.view_task(request)
        if row is None or row.task.spec.origin is None or row.task.spec.origin.task != self.task:
            raise Refused("unknown_request", f"{request} is not a request of this task", where="request")
        task, progress = row.task, row.task.record.request
        if task.state == "done":
            return "done", (await self._engine.store.view_payload(request))[1]
        if task.state == OPEN and progress is not None and progress.blocked_at is not None:
            return "blocked", None
        return task.state, None if task.state == OPEN else to_json(task.record.reason, "reason")

    async def answered(self) -> list[RequestAnswer]:
        """What other agents have answered during this attempt that it did not wait for."""
        row = await self._engine.store.view_task(self.task)
        return [] if row is None else answers_for(row, self.token)

    async def question(self, question: QuestionId) -> Question | None:
        """A question as it stands: what became of one that was asked while the task was kept."""
        return await self._engine.store.view_question(question)

    async def past(self) -> Attempt | None:
        """How the store has ended this attempt; None while it has not."""
        ended = await self._engine.store.view_attempts(self.task)
        return next((one for one in ended if one.token == self.token), None)


# A holder's handle on its lease: what it may say, how long it may trust it, and that it is renewed in time.
#
# A holder trusts its lease only until the moment it *sent* its last accepted renewal plus the lease's length, on its
# own monotonic clock, so it stops before the store gives the work to someone else.

T = TypeVar("T")
FOLLOWED = 0.7
"""Seconds between two looks at whether a lease is still its holder's."""
_CONFIRM = 2.0
"""Seconds in which the store must have said that a limit has moved."""


@dataclass(slots=True)
class OwnCheckins:
    """The check-ins that one handle has sent."""

    last: int = 0
    """When the last of them was, on the store's clock."""
    on_their_way: int = 0
    """So many have no answer yet."""


class Lease(Held):
    """The right to one attempt at one task."""

    __slots__ = {
        "_deadline": None,
        "_ending": None,
        "_ends": None,
        "_lost": None,
        "_over": None,
        "_renewed": None,
        "_slept": None,
        "answers": "What other agents have answered to requests of the task's, as far as was known at its claim.",
        "attempt": "The number of the attempt, from 1.",
        "blocked_on": None,
        "by_run": None,
        "checkins": None,
        "granted": None,
        "handover": "What the last attempt left behind.",
        "length": None,
        "name": "The task's name.",
        "notes": "What humans added for this attempt.",
        "on_end": None,
        "reserve": None,
        "role": "The task's role.",
        "run": "The run that the task belongs to.",
        "send": None,
    }
    """With what `help` and the reference say of those that are for users."""

    def __init__(self, engine: Backend, ids: Ids, granted: Granted, sent: float, mesh: Mesh | None = None) -> None:
        lease = granted.lease
        super().__init__(engine, ids, lease.task, lease.token, lease.agent, mesh)
        self.granted = granted
        """What the claim was answered with."""
        task, record = granted.task, granted.task.record
        self.name = task.name
        self.role = task.role
        self.run = task.run
        self.handover = record.handover
        self.notes: Sequence[str] = record.notes
        self.answers: Sequence[RequestAnswer] = record.answers
        self.checkins = OwnCheckins()
        """Those that were sent by this handle: all others are its agent's, by a way of its own."""
        self.length = lease.length
        self.attempt: int = lease.token
        self._deadline: int = lease.deadline
        self.by_run = lease.own is not None
        """Whether its limit is that of its run, which moves while the run's clock stands."""
        self._ends = sent + (lease.deadline - granted.told_at) / 1000
        self._renewed = sent - (granted.told_at - lease.renewed_at) / 1000
        self._slept = self._slept_so_far()
        self.reserve = 0
        """How long its holder needs to stop, in ms: it must have begun so long before the lease ends."""
        self._lost: LeaseLost | None = None
        self._over = False
        self._ending = 0
        """How many commands are on their way that end the attempt."""
        self.blocked_on: TaskId | None = None
        """The unanswered request for which its holder was ended."""
        self.on_end: Callable[[], None] | None = None
        """Called when it is lost or over, so that no caller has to poll."""
        self.send: Callable[[Command], Awaitable[object]] = engine.do
        """How its commands reach the store; a supervisor puts its own here, which keeps them on disk first."""

    def __repr__(self) -> str:
        return f"<Lease {self.name!r} task={self.task} token={self.token} remaining={self.remaining} ms>"

    @property
    def lost(self) -> LeaseLost | None:
        """Why the lease is lost, once the store has said so."""
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
    def payload(self) -> Any:  # noqa: ANN401 - whatever the submitter put in
        """What was submitted with the task."""
        return msgspec.json.decode(self.granted.payload)

    def payload_as(self, shape: type[T]) -> T:
        """What was submitted with the task, as this; `msgspec.ValidationError` where it is something else."""
        return msgspec.json.decode(self.granted.payload, type=shape)

    @property
    def decided_call(self) -> DecidedCall | None:
        """The call that a human has allowed or refused for this attempt, and for no other."""
        call = self.granted.task.record.decided_call
        return call if call is not None and call.token == self.token else None

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
            slept = self._slept_so_far() - self._slept
            end = min(end, self._renewed + (self.length - slept) / 1000)
        return max(0, int((end - asyncio.get_running_loop().time()) * 1000))

    @property
    def until_stop(self) -> int:
        """How long its holder can still work before it must stop, in ms, unless the lease is renewed before."""
        if self.length is None or self._over or self._lost is not None:
            return self.remaining
        slept = self._slept_so_far() - self._slept
        end = self._renewed + (self.length - slept - self.reserve) / 1000
        return max(0, int((end - asyncio.get_running_loop().time()) * 1000))

    def _slept_so_far(self) -> int:
        """For how long this machine has slept, in ms: a lease goes on meanwhile, and the loop's clock does not."""
        clock = self._engine.clock
        return clock.boottime() - clock.monotonic()

    @property
    def limit(self) -> int | None:
        """How long the attempt may take in all, in ms; None: it has no limit."""
        length = self._deadline - self.granted.lease.granted_at
        return None if length >= LONGEST else length

    @property
    def until_limit(self) -> int:
        """How long it is to the attempt's hard limit, in ms, whether or not the lease can be trusted until then.

        It is a number to calculate with: where there is no `limit`, centuries are left.
        """
        return max(0, int((self._ends - asyncio.get_running_loop().time()) * 1000))

    @property
    def own_limit(self) -> int | None:
        """What the task itself gives an attempt, in ms; its run may leave it less. None: any time."""
        return self.granted.task.timeout

    @property
    def limit_reached(self) -> tuple[str, int | None]:
        """That its time is up, in words, and the limit: as it was given, and not as much of it as was left."""
        if self.by_run:
            return "the deadline of its run has passed", self.limit
        limit = self.own_limit or self.limit
        return f"its limit of {show(limit or 0)} was reached", limit

    @property
    def asks(self) -> tuple[int, int]:
        """How often the holder is asked for a check-in, and how long it has to answer, in milliseconds."""
        return self.granted.lease.ask_every, self.granted.lease.ask_wait

    @property
    def idle_override(self) -> int | None:
        """How long a human lets it go without progress, in milliseconds, where one has raised that."""
        return self.granted.task.record.idle_override

    @property
    def max_cost(self) -> int | None:
        """What the attempts at the task may cost together, in millionths of a dollar; None: anything."""
        return limit_of(self.granted.task)

    @property
    def max_tokens(self) -> int | None:
        """How many tokens the attempts at the task may use together; None: any number."""
        return token_limit_of(self.granted.task)

    @property
    def verify(self) -> tuple[str, ...]:
        """The command that must pass before "done" counts; empty: the holder's word is enough."""
        return verify_of(self.granted.task)

    @property
    def verify_timeout(self) -> int:
        """How long that may take, in milliseconds."""
        return self.granted.task.spec.policy.verify_timeout

    async def hold_to_budgets(self, budgets: Budgets) -> list[str]:
        """Shut what has cost what it may, of its role, its run and the day; in words what was reached."""
        return await hold_to_budgets(self._engine, self._ids, self.role, self.run, budgets)

    @property
    def tells_every(self) -> int:
        """How often a watcher tells the store that the holder's protocol shows progress, in milliseconds."""
        return tells_every(self.granted.lease)

    @property
    def renew_at(self) -> float | None:
        """When the next renewal is due on the loop's clock: a third of what its holder may work without one."""
        return None if self.length is None or self.over else self._renewed + (self.length - self.reserve) / 3000

    def heard(self, answer: object, sent: float) -> Orders | AllswellError:
        """Take note of the answer to a renewal that was sent at this moment."""
        if isinstance(answer, Orders):
            self._obey(answer, sent)
            return answer
        if isinstance(answer, LeaseLost):
            self._not_renewed(answer)
        return answer if isinstance(answer, AllswellError) else Bug(f"a check-in was answered with {answer!r}")

    async def _check_in(self, said: CheckIn) -> Orders:
        sent = asyncio.get_running_loop().time()
        self.checkins.on_their_way += 1
        try:
            orders = await self._engine.check_in(said)
        except LeaseLost as lost:
            self._not_renewed(lost)
            raise
        finally:
            self.checkins.on_their_way -= 1
        if said.proof:
            self.checkins.last = max(self.checkins.last, orders.at)
        self._obey(orders, sent)
        return orders

    def _not_renewed(self, lost: LeaseLost) -> None:
        """The store has no such lease: it was taken away, unless its holder is about to hear that it has ended it."""
        if not self._ending:
            self.lost = lost

    def _obey(self, orders: Orders, sent: float) -> None:
        if sent >= self._renewed:
            self._renewed, self._slept = sent, self._slept_so_far()
        if orders.deadline != self._deadline:
            self._deadline, self.by_run = orders.deadline, orders.by_run
            left = NO_LIMIT if orders.remaining_ms is None else orders.remaining_ms
            self._ends = sent + left / 1000

    async def confirm(self) -> bool:
        """The limit is reached: ask once whether it has moved, as a run's does while its clock stands."""
        known = self._deadline
        if not self.by_run or self.lost is not None or self.over:
            return False
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(_CONFIRM):
                await self.renew()
        return self._deadline > known

    async def renew_in_time(self) -> bool:
        """Its holder must stop unless the lease is renewed now: ask once, with the time there is for that."""
        if self.length is None or self.lost is not None or self.over:
            return False
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(stop_margin(self.length) / 2_000):
                await self.renew()
        return self.until_stop > 0

    async def _send(self, said: HolderCommand | EndCostly | Spend) -> object:
        return await self.send(said)

    async def _say(self, said: HolderCommand | EndCostly | Suspend | Continue | NoteRefusal | NoteRepeats) -> object:
        try:
            return await self.send(said)
        except LeaseLost as lost:
            self.lost = lost
            raise

    async def _end(self, said: HolderCommand | EndCostly) -> object:
        with self.being_ended():
            answer = await self._say(said)
        self.over = True
        return answer

    @contextlib.contextmanager
    def being_ended(self) -> Iterator[None]:
        """Its holder has sent its last word: that a renewal beside it is refused meanwhile does not mean it is lost."""
        self._ending += 1
        try:
            yield
        finally:
            self._ending -= 1

    async def follow(self, every: float = FOLLOWED) -> None:
        """Look once in a while whether the store still has it, until it does not: then it is `lost`.

        A long lease is renewed so seldom that a holder which relies on the renewal alone goes on for minutes with a
        task that was cancelled. A look reads one row and writes nothing; that it is lost is said by the renewal, as
        always.
        """
        while self._lost is None and not self._over:
            await asyncio.sleep(every)
            with contextlib.suppress(AllswellError):
                row = await self._engine.store.view_task(self.task)
                held = None if row is None else row.lease
                if (held is None or held.token != self.token) and not self._ending and not self._over:
                    await self.renew()

    async def wait_for(
        self,
        request: str,
        *,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        claims: bool = True,
        wait: Duration | None = None,
    ) -> Requested:
        """Wait for a request that this attempt has asked; what is claimed instead is renewed as this lease is."""
        return await super().wait_for(
            request, roles=roles, lease=self.length if lease is None else lease, claims=claims, wait=wait
        )

    def _blocked(self, request: TaskId) -> None:
        self.blocked_on = request
        self.over = True

    async def decline(self, request: str, reason: str = "", *, roles: Sequence[str] = ()) -> None:
        """Decline a request that is addressed to the holder of this attempt; where it is this task, it is over."""
        with self.being_ended() if request == self.task else contextlib.nullcontext():
            await super().decline(request, reason, roles=roles)
        if request == self.task:
            self.over = True

    def ended(self, answer: object) -> AllswellError | None:
        """Take note of the answer to a command that ends the attempt."""
        if not isinstance(answer, AllswellError):
            self.over = True
            return None
        if isinstance(answer, LeaseLost):
            self.lost = answer
        return answer


# A check-in of a caller that keeps no state between two calls: the answer holds what came for it meanwhile.
#
# A supervisor sees answers and requests come in, and tells its agent of them. A holder that makes single calls (over
# HTTP, over MCP, by a command) has no such loop: so a check-in looks, and all doors give the same answer.

if TYPE_CHECKING:
    from allswell.engine.watch import Watch

_ASKED_MOST = 20
"""So many of a task's last questions are looked at for answers."""


class HolderUpdate(Struct, frozen=True):
    """The answer to a holder: its orders, and what came for it while it worked."""

    orders: Orders
    order: str | None = None
    """What keeps the lease, in words."""
    answered: tuple[Question, ...] = ()
    """Questions of this attempt that were answered while it went on."""
    inbox: tuple[TaskId, ...] = ()
    """Requests of other agents that wait for its answer."""
    requests: tuple[RequestAnswer, ...] = ()
    """What other agents have answered while it went on."""


async def check_in(
    watch: Watch, held: Held, note: str = "", *, progress: float | None = None, proof: bool = True
) -> HolderUpdate:
    """Prove progress, or without `proof` life alone; then look what the store knows that concerns the holder."""
    orders = await (held.checkin(note, progress=progress) if proof else held.renew())
    row = await watch.task(held.task)
    if row is None or row.lease is None:
        return HolderUpdate(orders)
    inbox = (await watch.inboxes({held.agent: ()}, payloads=False))[held.agent]
    return HolderUpdate(
        orders,
        _order(row, await watch.now()),
        tuple(await _answered(watch, row)),
        tuple(item.request_id for item in inbox if not item.mesh),
        tuple(answers_for(row, held.token)),
    )


async def _answered(watch: Watch, row: TaskRow) -> list[Question]:
    last, lease = row.task.record.questions, row.lease
    numbers = range(max(1, last - _ASKED_MOST + 1), last + 1)
    found = [await watch.question(question_id(row.task.id, number)) for number in numbers]
    return [
        one
        for one in found
        if one is not None and one.closed_at is not None and lease is not None and one.asked_at >= lease.granted_at
    ]


def _order(row: TaskRow, now: int) -> str | None:
    """The next sign that the holder has to give; nothing where only its deadline ends the lease."""
    end = None if row.lease is None else lapses_at(row.lease)
    if end is None or row.lease is None or end >= row.lease.deadline:
        return None
    return f"Check in again within {max(0, end - now) // 1_000}s, or the task is given to another."
