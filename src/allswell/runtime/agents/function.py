"""An attempt by an async function, in our own loop: called, asked, and cancelled at its limit.

Python cannot end a function that will not be cancelled: after its grace it is given up, fenced by its token, and its
slot is free. What it leaves is a receipt like anybody else's.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import logging
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from contextvars import copy_context
from functools import partial
from typing import Any, Unpack

import msgspec

from allswell.domain.agents.cost import Expense, told_expense
from allswell.domain.agents.evidence import BARE_CHECKIN, EvidenceKind
from allswell.domain.agents.fleet import AgentSpec, longer_idle
from allswell.domain.agents.status import Survivor, named
from allswell.domain.duration import Duration, parse
from allswell.domain.ids import Millis, QuestionId, TaskId, is_request
from allswell.domain.lease.holder import Orders
from allswell.domain.mesh.request import InboxItem
from allswell.domain.question import Option
from allswell.domain.receipts.receipt import End
from allswell.domain.service.classify import failure_of
from allswell.domain.task.model import OPEN
from allswell.domain.values import to_json
from allswell.engine.lease import Lease
from allswell.engine.mesh import COMES_WITHIN, Requested, RequestOptions
from allswell.errors import AllswellError, Refused
from allswell.runtime import agent_socket
from allswell.runtime.agent_socket import say
from allswell.runtime.attempt import AttemptLimits, AttemptOutcome
from allswell.runtime.attempt.launch import Brief, LaunchSpec
from allswell.runtime.attempt.record import settled_alone
from allswell.runtime.attempt.runner import AttemptLife, in_thread
from allswell.runtime.calls import contained
from allswell.runtime.guard.transport import ExchangeLedger, expense_of, in_ledger
from allswell.runtime.process import allowed_environment
from allswell.runtime.process.leftovers import Spawner, install, spawner
from allswell.runtime.propagation import in_attempt
from allswell.runtime.receipts import StateDir
from allswell.timing.clock import Clock
from allswell.timing.scopes import Scope, run

_POLL = 0.25
"""Seconds between two looks at a request."""


class TaskBrief(msgspec.Struct, frozen=True):
    """What a function is told about its task."""

    task: TaskId
    name: str
    payload: Any
    attempt: int
    agent: str
    role: str
    prompt: str
    handover: str
    """What earlier attempts and humans have left, in words."""
    folder: str


class _TaskInHands:
    """What a function can read of its task."""

    def __init__(self, told: TaskBrief) -> None:
        self.told = told
        self.task = told.task
        self.name = told.name
        self.payload = told.payload
        self.attempt = told.attempt
        self.handover = told.handover
        self.folder = told.folder


class Work(_TaskInHands):
    """A task in the hands of an async function.

        async def review(work: allswell.Work) -> dict:
            for page in work.payload["pages"]:
                await work.checkin(f"page {page}", progress=...)
            return {"verdict": "fine"}          # completes the task; an exception fails it

    A sync function has the same with plain calls (`SyncWork`); it runs in a process of its own.
    """

    def __init__(
        self, told: TaskBrief, lease: Lease, heard: Callable[[str], None], spent: Callable[[Expense], None]
    ) -> None:
        super().__init__(told)
        self.asked = ""
        """What the watch wants to hear, while it does."""
        self._lease = lease
        self._heard = heard
        self._spent = spent
        self._on_asked: Callable[[str], None] | None = None
        self.waits_for: list[TaskId] = []
        """The requests of its own that it waits for now."""

    @property
    def remaining(self) -> int:
        """How long the attempt has, in milliseconds."""
        return self._lease.remaining

    def on_asked(self, callback: Callable[[str], None]) -> None:
        """Call this when the watch asks for a check-in."""
        self._on_asked = callback

    def ask_for_checkin(self, words_: str) -> tuple[str, ...]:
        """For the watch: ask the function for a check-in."""
        self.asked = words_
        if self._on_asked is None:
            return ("work.asked",)
        self._on_asked(words_)
        return ("callback",)

    async def checkin(self, note: str = "", *, progress: float | None = None) -> Orders:
        """Prove progress."""
        orders = await self._lease.checkin(note, progress=progress)
        self.asked = ""
        self._heard(f"“{note}”" if note else BARE_CHECKIN)
        return orders

    def spend(
        self, cost_usd: float | None = None, *, tokens_in: int | None = None, tokens_out: int | None = None
    ) -> None:
        """Say what more it has cost; tokens of guarded model calls are counted by themselves."""
        self._spent(told_expense(cost_usd, tokens_in, tokens_out))

    async def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> QuestionId:
        """Ask a human; unless `hold`, this attempt is over then, and the function should return."""
        return await self._lease.ask(text, options, hold=hold)

    async def delegate(
        self, role: str, name: str, *, payload: object = None, timeout: Duration | None = None
    ) -> TaskId:
        """Hand a focused request to an expert, and keep working; without a timeout it has `delegation_timeout`."""
        return await self._lease.delegate(role, name, payload=payload, timeout=timeout)

    async def request(self, to: str, kind: str, summary: str, **wishes: Unpack[RequestOptions]) -> Requested:
        """Ask another agent, and wait for the answer; where it is blocked, this attempt is over: return then."""
        request = await self._lease.send_request(to, kind, summary, waits=COMES_WITHIN, **wishes)
        self.waits_for.append(request)
        try:
            return await self._lease.wait_for(request, claims=False)
        finally:
            self.waits_for.remove(request)

    async def inbox(self, *, mesh: bool = False) -> list[InboxItem]:
        """What this agent is asked by others; with `mesh`, what others are asked and it may answer."""
        return await self._lease.inbox(roles=self._roles, mesh=mesh)

    async def respond(self, request: str, answer: object = None) -> None:
        """Answer a request."""
        await self._lease.respond(request, answer, roles=self._roles)

    async def decline(self, request: str, reason: str = "") -> None:
        """Decline a request that is addressed to this agent."""
        await self._lease.decline(request, reason, roles=self._roles)

    @property
    def _roles(self) -> tuple[str, ...]:
        return (self.told.role,) if self.told.role else ()


class SyncWork(_TaskInHands):
    """A task in the hands of a sync function, in a process of its own."""

    def __init__(self, told: TaskBrief, socket: str) -> None:
        super().__init__(told)
        self.is_over = False
        """Whether the attempt is over, whatever the function returns."""
        self._socket = socket

    def checkin(self, note: str = "", *, progress: float | None = None) -> agent_socket.AgentNotice | None:
        """Prove progress; the answer carries the watch's orders."""
        return say(self._socket, agent_socket.CheckInMessage(note=note, progress=progress)).orders

    def spend(
        self, cost_usd: float | None = None, *, tokens_in: int | None = None, tokens_out: int | None = None
    ) -> None:
        """Say what more it has cost; tokens of guarded model calls are counted by themselves."""
        say(self._socket, agent_socket.SpendMessage(cost_usd=cost_usd, tokens_in=tokens_in, tokens_out=tokens_out))

    def ask(self, text: str, options: Sequence[Option] = (), *, hold: bool = False) -> str | None:
        """Ask a human; unless `hold`, this attempt is over then, and the function should return."""
        asked = say(self._socket, agent_socket.AskMessage(text=text, options=tuple(options), hold=hold)).question
        self.is_over = self.is_over or not hold
        return None if asked is None else asked.id

    def request(self, to: str, kind: str, summary: str, **wishes: Unpack[RequestOptions]) -> Requested:
        """Ask another agent, and wait for the answer; where it is blocked, this attempt is over: return then."""
        timeout, again, kept = wishes.get("timeout"), wishes.get("again"), wishes.get("kept")
        word = agent_socket.AskAgentMessage(
            to=to,
            kind=kind,
            summary=summary,
            payload=msgspec.Raw(to_json(wishes.get("payload"), f"payload of {summary!r}").encode()),
            retries=wishes.get("retries"),
            role=wishes.get("role", ""),
            key=wishes.get("key"),
            blocks=wishes.get("blocks", True),
            timeout=None if timeout is None else parse(timeout, where="timeout"),
            again=None if again is None else parse(again, where="again"),
            kept=None if kept is None else parse(kept, where="kept"),
        )
        request = TaskId(say(self._socket, word).request or "")
        while True:
            reply = say(self._socket, agent_socket.LookMessage(request=request))
            state = reply.state or OPEN
            if state == "done":
                return Requested(request, state, msgspec.json.decode(reply.result))
            if state == "blocked" or (reply.orders is not None and reply.orders.stop is not None):
                self.is_over = True
                return Requested(request, "blocked", blocked=True, fallback="next_task")
            if state != OPEN:
                return Requested(request, state, reason=str(msgspec.json.decode(reply.result)))
            time.sleep(_POLL)

    def inbox(self, *, mesh: bool = False) -> tuple[InboxItem, ...]:
        """What this agent is asked by others; with `mesh`, what others are asked and it may answer."""
        return say(self._socket, agent_socket.InboxMessage(mesh=mesh)).inbox

    def respond(self, request: str, answer: object = None) -> None:
        """Answer a request."""
        raw = msgspec.Raw(msgspec.json.encode(answer))
        say(self._socket, agent_socket.RespondMessage(request=TaskId(request), answer=raw))

    def decline(self, request: str, reason: str = "") -> None:
        """Decline a request that is addressed to this agent."""
        say(self._socket, agent_socket.DeclineMessage(request=TaskId(request), reason=reason))
        self.is_over = self.is_over or request == self.task

    @property
    def remaining(self) -> int | None:
        """How long the attempt has, in milliseconds; None: it has no limit."""
        orders = say(self._socket, agent_socket.LookMessage()).orders
        return 0 if orders is None else orders.remaining_ms


log = logging.getLogger(__name__)

_LOOK = 0.5
"""Seconds between two looks at whether the lease still holds."""


def load_function(path: str, folder: str = "", *, where: str = "function") -> Callable[..., Any]:
    """The function that `module:name` means, looked for from this folder too; `Refused` says what is missing."""
    if folder and folder not in sys.path:
        sys.path.insert(0, folder)
    module, _, name = path.partition(":")
    try:
        found: object = importlib.import_module(module)
    except ModuleNotFoundError as error:
        needs = "" if error.name == module else f", which needs {error.name}, and that is not installed"
        raise Refused("no_function", f"there is no module {module}{needs}", where=where) from None
    except (Exception, SystemExit, KeyboardInterrupt) as error:
        text = f"the module {module} cannot be imported: {type(error).__name__}: {error}"
        raise Refused("no_function", text, where=where) from error
    for part in name.split("."):
        found = getattr(found, part, None)
    if not callable(found):
        raise Refused("no_function", f"{module} has no function {name}", where=where)
    return found


class FunctionCall:
    """A user's function, called for an attempt: it is told what came before, and what it asks and starts is known."""

    def __init__(self, attempt: str, handover: str, *, bodies: bool = True) -> None:
        """`attempt` names it, as `<task>.<attempt>`; with `bodies` what models were asked and answered is kept."""
        self.ledger = ExchangeLedger(bodies=bodies)
        self._handover = handover
        self._spawner = Spawner(attempt)

    def begin(self, call: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Have it called, in a task of its own that inherits all this."""
        install()
        context = copy_context()
        context.run(in_ledger.set, self.ledger)
        context.run(in_attempt.set, self._handover)
        context.run(spawner.set, self._spawner)
        return asyncio.get_running_loop().create_task(call, context=context)

    async def end_processes(self, grace: Callable[[], int]) -> tuple[Survivor, ...]:
        """End what it has started and left running, whose folder is the next one's; who that was."""
        if not self._spawner.close():
            return ()
        return await asyncio.shield(
            asyncio.get_running_loop().run_in_executor(None, lambda: self._spawner.end(grace()))
        )


def find_function(spec: AgentSpec) -> Callable[..., Any]:
    """An agent's function, looked for from its folder too, unless it is to be an installed one."""
    return load_function(spec.function, "" if spec.installed else spec.cwd)


def told_of(brief: Brief, lease: Lease) -> TaskBrief:
    """What a function is told about its task."""
    return TaskBrief(
        lease.task,
        lease.name,
        lease.payload,
        lease.attempt,
        lease.agent,
        lease.role,
        brief.prompt,
        brief.handover.text,
        brief.folder,
    )


class FunctionLife(AttemptLife):
    """One attempt by a function that is called in this process, inside a scope that bounds its end."""

    def __init__(self, order: LaunchSpec, lease: Lease, clock: Clock, handover: str, *, bodies: bool) -> None:
        super().__init__(order, lease, clock)
        self._call = FunctionCall(f"{lease.task}.{lease.attempt}", handover, bodies=bodies)

    async def _watched(self, working: asyncio.Future[Any], scope: Scope) -> AttemptOutcome:
        """Watch a call until it is over: it has ended by itself (done), or was cancelled for what this says.

        One that does not end within the grace is given up, and fenced, by its scope.
        """
        working.add_done_callback(lambda _: self._news.fire())

        async def by_itself() -> AttemptOutcome | None:
            return self._judge.so(End.DONE, "it has ended") if working.done() else self._look()

        ended = await self._judge.watch(self._news, by_itself, longest=_LOOK)
        while not working.done():
            if self._stopped or not scope.expired:  # at its own limit it has cancelled the call already
                left = self.lease.remaining
                scope.grace_ms = min(self._grace, left) if left else self._grace
                working.cancel(ended.reason)
            await self._news.listen().wait()
        if not working.cancelled():
            working.exception()  # heard, whether or not it is the reason
        return ended

    def _look(self) -> AttemptOutcome | None:
        """Why the call is to be ended while it goes on, if it is."""
        return None

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """Order the stop; a call that is being ended already is given no more than this grace."""
        super().stop(reason, end, grace=grace)
        self._news.fire()


class FunctionRun(FunctionLife):
    """One attempt by an async function."""

    def __init__(
        self, spec: AgentSpec, brief: Brief, lease: Lease, home: StateDir, started: Callable[[], None], clock: Clock
    ) -> None:
        limits = AttemptLimits(idle=spec.idle, grace=spec.grace, longer_idle=f"let it check in, or {longer_idle(spec)}")
        env = allowed_environment(spec.env, more=spec.pass_env)
        order = LaunchSpec((spec.function,), "", brief.folder, env, limits)
        super().__init__(order, lease, clock, brief.handover.text, bodies=False)
        self._gathering.silence = "it has not checked in"  # for nothing else can be seen of it
        self.inbox: tuple[str, ...] = ()
        self._spec = spec
        self._home = home
        self._started = started
        self._began_at = Millis(clock.wall())
        checked_in = partial(self._gathering.heard, EvidenceKind.CHECKIN)
        self._work = Work(told_of(brief, lease), lease, checked_in, self._gathering.spent)

    @property
    def waits_for(self) -> str | None:
        """Another agent's answer that it waits for."""
        return f"asked for help: {', '.join(self._work.waits_for)}" if self._work.waits_for else None

    def ask(self, words: str) -> tuple[str, ...]:
        """Ask by its callback, or by what it can look at."""
        return self._work.ask_for_checkin(words)

    def answered(self, note: str) -> None:
        """It has checked in, in its own output."""
        self._work.asked = ""
        super().answered(note)

    async def _life(self) -> AttemptOutcome:
        """Called, watched, cancelled where it has not ended; then verified, and its receipt written."""
        scope = Scope(None, kind="agent", name=self._spec.function)
        work = self._call.begin(run(scope, contained(find_function(self._spec)), self._work))
        self._started()
        outcome = await self._watched(work, scope)
        if outcome.end is End.DONE:
            outcome = self._ended(work)
        if left := await self._call.end_processes(lambda: self._grace):
            log.warning("%s left %s running; ended", self.lease.name, named(left))
        asked = expense_of(self._call.ledger.tokens)
        if asked is not None:
            self._gathering.meter.add(asked)
        outcome = await self._paid(outcome)
        outcome = await self.verifying.verified(outcome, self._judge.remaining, said=False)
        if outcome.end is not End.DONE or outcome.verification is not None:
            argv, cwd, began_at = self.order.argv, self.order.cwd, self._began_at
            outcome = await in_thread(
                lambda: settled_alone(
                    *(self.lease, self._home, self._clock, outcome), argv=argv, cwd=cwd, began_at=began_at
                )
            )
        return outcome

    def _look(self) -> AttemptOutcome | None:
        if self.lease.over:
            return self._judge.so(End.ASKED, "it let go of the task")
        if self._work.waits_for:
            self._gathering.heard(EvidenceKind.PROTOCOL, f"it waits for the answer to {self._work.waits_for[0]}")
        return None

    def _ended(self, work: asyncio.Future[Any]) -> AttemptOutcome:
        so = self._judge.so
        if work.cancelled():
            return so(End.INTERRUPTED, "it was cancelled from inside")
        error = work.exception()
        if error is None and not self.lease.over:
            return dataclasses.replace(so(End.DONE, "it returned"), value=work.result())
        if error is None and self.lease.blocked_on is not None:
            return so(End.RELEASED, f"blocked: no answer to {self.lease.blocked_on}")
        if error is None and is_request(self.lease.task):
            return so(End.RELEASED, "it declined it")
        if error is None or (isinstance(error, AllswellError) and self.lease.over):
            return so(End.ASKED, "it asked a human")
        return dataclasses.replace(
            so(End.FAILED, f"{type(error).__name__}: {error}"[:1_000]), failure=failure_of(error)
        )
