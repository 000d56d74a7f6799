"""The Python face of the watch: what programs and all other front doors call.

It translates (names to ids, durations to milliseconds, objects to JSON) and decides nothing. Arguments and results are
plain values: callers see nothing of the engine, its store and its transactions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, Unpack

import msgspec

from allswell.domain.duration import Duration, parse
from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, QuestionId, RunId, TaskId, Token
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.holder import Orders
from allswell.domain.lease.model import Agent
from allswell.domain.mesh.request import FIGURES, InboxItem, MeshFigures
from allswell.domain.question import Question
from allswell.domain.rules.command import (
    AcquireFlow,
    Admit,
    Answer,
    AskForHelp,
    Cancel,
    CheckIn,
    Claim,
    EndRun,
    NewTask,
    Notice,
    OpenRun,
    Park,
    Report,
    Submit,
    Unpark,
)
from allswell.domain.rules.event import Entry, Event, Position
from allswell.domain.run.run import Run
from allswell.domain.service.breaker import BreakerPolicy, CallOutcome, Permit
from allswell.domain.service.calls import ServiceReply
from allswell.domain.service.retry import ErrorClass
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.answer import DismissQuestion, DismissTask
from allswell.domain.task.model import Attempt, Policy, State, TaskFilter, TaskRow
from allswell.domain.task.resubmit import Resubmit
from allswell.engine.backend import Backend
from allswell.engine.budget import limit_run, money
from allswell.engine.flow import FlowHold, new_flow
from allswell.engine.ids import Ids, run_for_key, task_for_key
from allswell.engine.lease import Held, Lease
from allswell.engine.mesh import Mesh, Requested, RequestOptions
from allswell.engine.submission import BulkSubmission, RunLookup, Submitted, TaskMaker, named, renewals, with_ids
from allswell.engine.timings import Timings
from allswell.engine.wakeup import Signal, Waiter, either
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.store.views import Outbox, Views
from allswell.timing.clock import Clock
from allswell.timing.loops import OwnLoop

# Following the journal: every event once, in order, from where one left off.
#
# A follower with a name has a durable cursor. Its handler is called with events in order; the cursor moves on when it
# has returned, so an event is delivered at least once: after a crash the last few may come again, with the same
# positions. A handler that fails is called again with the same events after a pause; other followers go on.

CHUNK = 500
log = logging.getLogger(__name__)


async def events(engine: Backend, after: Position, *, follow: bool) -> AsyncIterator[Entry]:
    """The journal after a position; with `follow`, for ever."""
    if follow:
        engine.hear()
    while True:
        news = engine.journal.listen()
        try:
            entries = await engine.store.journal(after, CHUNK)
        except Unavailable:
            if not follow:
                raise
            entries = []
        for entry in entries:
            yield entry
            after = entry.position
        if len(entries) == CHUNK:
            continue
        if not follow:
            return
        await either(news, engine.pace.follow_poll * (0.75 + engine.rng() / 2))


async def follow(engine: Backend, name: str, handler: Callable[[Sequence[Entry]], Awaitable[None]]) -> None:
    """Hand the journal to `handler`, chunk by chunk, until cancelled; progress is kept under `name`."""
    engine.hear()
    pause = engine.pace.retry_first
    after: Position | None = None
    while True:
        news = engine.journal.listen()
        try:
            if after is None:
                after = await engine.store.cursor(name)
            entries = await engine.store.journal(after, CHUNK)
            if entries:
                await handler(entries)
                await engine.store.advance(name, entries[-1].position)
                after = entries[-1].position
                pause = engine.pace.retry_first
                continue
            wait = engine.pace.follow_poll * (0.75 + engine.rng() / 2)
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a follower that fails must not stop others
            log.warning("follower %s failed and will try again in %.2f s: %r", name, pause, error)
            wait = pause
            pause = min(pause * 2, engine.pace.retry_most)
        await either(news, wait)


# The reading half of a watch: what can be looked at, and what tells that it is worth looking again.
#
# Everything here is plain values. Reading changes nothing and waits for no writer.


class WatchViews:
    """What can be looked at in an open watch."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine

    @property
    def views(self) -> Views:
        """Everything that can be looked at, as the command line and the explanations read it."""
        return self._engine.store

    @property
    def outbox(self) -> Outbox:
        """What sinks have to deliver: for those who deliver it, and those who look after them."""
        return self._engine.store

    async def now(self) -> Millis:
        """The store's clock, in milliseconds since the epoch."""
        return (await self._engine.store.view_agenda()).now

    async def task(self, task: str) -> TaskRow | None:
        """One task as it stands."""
        return await self._engine.store.view_task(TaskId(task))

    async def payload(self, task: str) -> Any:  # noqa: ANN401 - whatever the submitter put in
        """What was submitted with a task; None for what is no task."""
        payload, _ = await self._engine.store.view_payload(TaskId(task))
        return None if payload is None else msgspec.json.decode(payload)

    async def result(self, task: str) -> Any:  # noqa: ANN401 - whatever the holder gave
        """The result of a task that is done; what its holder reports counts only once it is verified."""
        _, result = await self._engine.store.view_payload(TaskId(task))
        row = None if result is None else await self._engine.store.view_task(TaskId(task))
        return None if result is None or row is None or row.task.state != State.DONE else msgspec.json.decode(result)

    async def tasks(self, which: TaskFilter | None = None) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return await self._engine.store.view_tasks(which or TaskFilter())

    async def attempts(self, task: str) -> list[Attempt]:
        """How each attempt at a task ended."""
        return await self._engine.store.view_attempts(TaskId(task))

    async def counts(self) -> dict[str, int]:
        """How many tasks stand where."""
        return await self._engine.store.view_counts()

    async def question(self, question: str) -> Question | None:
        """One question as it stands."""
        return await self._engine.store.view_question(QuestionId(question))

    async def questions(self, *, open_only: bool = True) -> list[Question]:
        """What waits for a human, the oldest first."""
        return await self._engine.store.view_questions(open_only=open_only)

    async def run(self, run: str) -> Run | None:
        """One run as it stands."""
        return await self._engine.store.view_run(RunId(run))

    async def runs(self) -> list[Run]:
        """Runs, the newest first."""
        return await self._engine.store.view_runs()

    async def agents(self) -> list[Agent]:
        """Agents that have missed check-ins."""
        return await self._engine.store.view_agents()

    async def services(self) -> list[ServiceRow]:
        """Services that something is, or was, held against."""
        return list((await self._engine.store.view_services()).values())

    async def unaccounted(self) -> list[TaskId]:
        """Open tasks that nothing will ever move again. There are none: that is the promise, and this checks it."""
        return await self._engine.store.view_orphans()

    def events(self, *, after: Position | None = None, follow: bool = False) -> AsyncIterator[Entry]:
        """The journal, from the start or after a position; with `follow`, it goes on as things happen."""
        return events(self._engine, after or Position(), follow=follow)

    def follow(self, name: str, handler: Callable[[Sequence[Entry]], Awaitable[None]]) -> None:
        """Hand the journal to `handler` from where it last was, for as long as this watch is open."""
        self._engine.start(follow(self._engine, name, handler), name=f"follower {name}")

    # --- when to look again: listen first, then look, then wait, and no call is lost ----------------------------------

    def on_ready(self) -> Waiter:
        """What rings when a task may have become ready. It is a hint: its caller must also look at intervals."""
        return self._engine.ready.listen()

    def on_event(self) -> Waiter:
        """What rings when the journal may have grown. It is a hint, as `on_ready` is."""
        return self._engine.journal.listen()


# What guards ask of a watch and tell it: the breakers of services, which every process on one store shares.


class GuardWatch(WatchViews):
    """A watch as guards have it."""

    def __init__(self, engine: Backend, ids: Ids) -> None:
        super().__init__(engine)
        self._ids = ids

    async def admit(self, service: str, policy: BreakerPolicy) -> ServiceReply:
        """May this service be called now? The first caller that finds its breaker half-open makes the probe."""
        return _told(await self._engine.do(Admit(self._ids.command(), service, policy)))

    async def report(self, permit: Permit, outcome: CallOutcome, policy: BreakerPolicy) -> ServiceReply:
        """What came of a call that was let through."""
        return _told(await self._engine.do(Report(self._ids.command(), permit, outcome, policy)))

    async def park(self, service: str, delay: int) -> ServiceReply:
        """No call to this service for so many milliseconds."""
        return _told(await self._engine.do(Park(self._ids.command(), service, delay)))

    async def ask_for_help(
        self, service: str, cause: ErrorClass, reason: str, message: str = "", *, holds: bool = False
    ) -> None:
        """Calls to a service are given up for something that only a human can mend: ask, once per cause.

        With `holds` it is an account of agents, and they get nothing to do before the answer.
        """
        await self._engine.do(AskForHelp(self._ids.command(), service, cause, reason, message, holds))


def _told(answer: object) -> ServiceReply:
    assert isinstance(answer, ServiceReply)  # noqa: S101 - for the type checker
    return answer


# A watch as agents have it that ask and answer each other; and as those who speak for one.


class MeshWatch(GuardWatch):
    """What agents say to each other, through an open watch."""

    def __init__(self, engine: Backend, ids: Ids, mesh: Mesh) -> None:
        super().__init__(engine, ids)
        self._mesh = mesh

    def held(self, task: str, token: int, agent: str) -> Held:
        """A handle on an attempt that is held. The store is not asked before the first call on it."""
        return Held(self._engine, self._ids, TaskId(task), Token(token), AgentId(agent), self._mesh)

    async def request(
        self,
        to: str,
        kind: str,
        summary: str,
        *,
        held: Held,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        **wishes: Unpack[RequestOptions],
    ) -> Requested:
        """Ask another agent on behalf of an attempt's holder, and wait for the answer: as `Lease.request`."""
        return await held.request(to, kind, summary, roles=roles, lease=lease, **wishes)

    async def inbox(
        self, agent: str, *, roles: Sequence[str] = (), wait: Duration = 0, mesh: bool = False
    ) -> list[InboxItem]:
        """The requests that are addressed to this agent, which has these roles; `wait` is as of `claim`.

        With `mesh` also those addressed to others for which all agents were asked for help. A delivery that was listed
        before is not `new`, and ends no wait.
        """
        return await self._mesh.inbox(agent, roles, wait=parse(wait, where="wait") / 1_000, mesh=mesh)

    async def inboxes(
        self, agents: Mapping[str, Sequence[str]], *, payloads: bool = True
    ) -> dict[str, list[InboxItem]]:
        """What each of these agents, with its roles, can answer: one look for all of them.

        Without `payloads` these are not read, and None.
        """
        return await self._mesh.inboxes(agents, payloads=payloads)

    async def respond(
        self, request: str, answer: object = None, *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Answer a request, as this agent; the first answer counts, and a late one too."""
        await self._mesh.respond(request, answer, agent=agent, roles=roles, command=command)

    async def decline(
        self, request: str, reason: str = "", *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Decline a request that is addressed to this agent; the agent that asked learns of it at once."""
        await self._mesh.decline(request, reason, agent=agent, roles=roles, command=command)


# Renewing what a watch holds, for as long as it is open.
#
# A lease is due at a third of its length. Those that would be due soon after come along: so the leases of a fleet,
# taken at two hundred different moments, are renewed in a few batches and soon all at once, and not in two hundred.

_SOON = 6_000
"""A lease comes along that would be due within a sixth of its length (which is in milliseconds)."""
_NOTHING_HELD = 60.0


class RenewalQueue:
    """The leases of one watch that have to be renewed."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine
        self._held: dict[tuple[str, int], Lease] = {}
        self._sooner = Signal()
        self._next = 0.0
        """When the next look is due, on the loop's clock."""

    def hold(self, lease: Lease) -> None:
        """Renew this one too, from now on."""
        self._held[(lease.task, lease.token)] = lease
        due = lease.renew_at
        if due is not None and due < self._next:
            self._sooner.fire()

    async def work(self) -> None:
        """Renew every lease in time, for ever."""
        loop = asyncio.get_running_loop()
        while True:
            news = self._sooner.listen()
            self._held = {key: lease for key, lease in self._held.items() if not lease.over and lease.lost is None}
            moments = [(due, lease) for lease in self._held.values() if (due := lease.renew_at) is not None]
            now = loop.time()
            self._next = min((due for due, _ in moments), default=now + _NOTHING_HELD)
            if self._next > now:
                await either(news, self._next - now)
                continue
            due_soon = [lease for due, lease in moments if due <= now + (lease.length or 0) / _SOON]
            try:
                answers = await say_many(self._engine, due_soon, proof=False)
            except AllswellError:
                answers = []  # the store is away: the leases lapse, or it comes back in time
            if not any(isinstance(answer, Orders) for answer in answers):
                await asyncio.sleep(self._engine.pace.retry_first)


async def say_many(engine: Backend, leases: Sequence[Lease], *, proof: bool) -> list[Orders | AllswellError]:
    """Check in on many leases at once; orders, or what went wrong, for each."""
    sent = asyncio.get_running_loop().time()
    said = [CheckIn(lease.task, lease.token, lease.agent, proof) for lease in leases]
    answers = await engine.check_in_many(said)
    return [lease.heard(answer, sent) for lease, answer in zip(leases, answers, strict=True)]


# A watch as those have it who do the work: take tasks, hold them, prove progress on many, complete many.


class Claiming(MeshWatch):
    """What is claimed through an open watch, and held for as long as it is open."""

    def __init__(self, engine: Backend, ids: Ids, mesh: Mesh) -> None:
        super().__init__(engine, ids, mesh)
        self._renewing = RenewalQueue(engine)

    async def claim(
        self,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: Duration = 0,
        lease: Duration | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> Lease | None:
        """Take one task; None if none becomes ready within `wait`.

        With `task` it is that one or none.
        """
        got = await self.claim_many(1, agent=agent, roles=roles, wait=wait, lease=lease, command=command, task=task)
        return got[0] if got else None

    async def claim_many(
        self,
        count: int,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: Duration = 0,
        lease: Duration | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> list[Lease]:
        """Take up to `count` tasks. With `lease`, they are renewed for as long as this watch is open, or else lapse."""
        seconds = parse(wait, where="wait") / 1_000
        length = None if lease is None else parse(lease, where="lease")
        if isinstance(roles, str):
            raise Refused("bad_field", "roles must be a list", where="roles")
        wanted = {
            "id": command or NO_COMMAND,
            "agent": agent,
            "roles": None if roles is None else tuple(roles),
            "count": count,
            "length": length,
            "task": task,
        }
        try:
            claim = msgspec.convert(wanted, Claim)
        except msgspec.ValidationError as error:
            raise Refused("bad_field", f"this cannot be claimed: {error}", where="claim") from None
        granted = await self._engine.claim(claim, wait=seconds)
        return [self.hold(one, granted.sent) for one in granted.granted]

    async def claim_each(
        self, tasks: Sequence[TaskId], *, agent: str, lease: int | None = None
    ) -> list[Lease | AllswellError | None]:
        """Take these tasks, each if it can be had; a lease, None, or what is wrong, for each."""
        claims = [Claim(NO_COMMAND, AgentId(agent), length=lease, task=task) for task in tasks]
        answers, sent = await self._engine.claim_each(claims)
        got: list[Lease | AllswellError | None] = []
        for answer in answers:
            if isinstance(answer, AllswellError):
                got.append(answer)
            else:
                got.append(self.hold(answer[0], sent) if answer else None)
        return got

    def hold(self, granted: Granted, sent: float) -> Lease:
        """A handle on what was granted when this was sent; renewed for as long as this watch is open, if it need be."""
        held = Lease(self._engine, self._ids, granted, sent, self._mesh)
        if held.length is not None:
            self._renewing.hold(held)
        return held

    async def checkin_many(self, leases: Sequence[Lease]) -> list[Orders | AllswellError]:
        """Prove progress on many leases at once; orders, or what went wrong, for each."""
        return await say_many(self._engine, leases, proof=True)

    async def renew_many(self, leases: Sequence[Lease]) -> list[Orders | AllswellError]:
        """Renew many leases at once, without proof of progress; orders, or what went wrong, for each."""
        return await say_many(self._engine, leases, proof=False)

    async def complete_many(self, done: Sequence[tuple[Lease, object]]) -> list[AllswellError | None]:
        """Complete many tasks at once, each with its result; what went wrong, or None, for each."""
        # One word about many tasks: each knows it again by its own lease. Of the same task twice it would be two words.
        one = self._ids.command() if len({lease.task for lease, _ in done}) == len(done) else None
        commands = [lease.completion(result, one or self._ids.command()) for lease, result in done]
        answers = await self._engine.do_many(commands)
        return [lease.ended(answer) for (lease, _), answer in zip(done, answers, strict=True)]


# A watch as those have it who look after ended work: hand it over again, or say that it was seen.


class DecisionWatch(Claiming):
    """What is decided about work that has ended, through an open watch."""

    async def retry(
        self,
        task: str,
        *,
        dependents: bool = False,
        again: bool = False,
        run: str | None = None,
        by: str = "",
        command: str | None = None,
    ) -> dict[TaskId, TaskId]:
        """Hand an ended task over again as a new one, which carries its history; the new ids by the old ones.

        With `dependents`, those that were skipped because of it, too; one that is done only with `again`. The new ones
        are in the run of the old ones, which must be open, or in `run`. Under the same `command` it is done once, and
        answered with the same ids.
        """

        def new_id(old: TaskId) -> TaskId:
            return self._ids.task() if command is None else task_for_key(f"retry {command} {old}")

        made = await renewals(self.views, TaskId(task), new_id, dependents=dependents, run=run)
        await self._engine.do(Resubmit(self._command(command), made, again, by))
        return named(made)

    async def dismiss(self, what: str, by: str, *, command: str | None = None) -> None:
        """Mark a question (it stays open) or the end of a task as seen: it is no longer listed as needing a human."""
        id_ = self._command(command)
        seen = DismissQuestion(id_, QuestionId(what), by) if what[:2] == "q_" else DismissTask(id_, TaskId(what), by)
        await self._engine.do(seen)

    async def unpark(self, service: str, by: str, *, command: str | None = None) -> None:
        """Have a service called again that asked to wait, or that failed: a human knows that it works."""
        await self._engine.do(Unpark(self._command(command), service, by))

    def _command(self, given: str | None) -> CommandId:
        return self._ids.command() if given is None else CommandId(given)


def to_nobody(*_: object) -> None:
    """Called where no callback was given."""


class Watch(DecisionWatch):
    """An open watch: submit work, hold it, answer questions, look."""

    def __init__(
        self,
        engine: Backend,
        ids: Ids,
        *,
        policies: Mapping[str, Policy] | None = None,
        mesh: MeshFigures = FIGURES,
    ) -> None:
        super().__init__(engine, ids, Mesh(engine, ids, policies=policies or {}, figures=mesh, hold=self.hold))
        self._maker = TaskMaker(ids, policies or {})
        self._own_loop: OwnLoop | None = None

    async def __aenter__(self) -> Self:
        await self._engine.__aenter__()
        self._own_loop = OwnLoop()
        self._engine.start(self._renewing.work(), name="renewals")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._own_loop = None
        await self._engine.__aexit__(kind, error, trace)

    # --- work -------------------------------------------------------------------------------------------------------

    async def submit(  # noqa: PLR0913 - all keywords, each a field of the task
        self,
        name: str,
        *,
        payload: object = None,
        role: str = "",
        services: Iterable[str] = (),
        priority: int = 0,
        needs: Iterable[str] = (),
        barred: Iterable[str] = (),
        run: str | None = None,
        not_before: int | None = None,
        critical: bool = False,
        if_need_fails: Literal["skip", "run"] = "skip",
        policy: Policy | None = None,
        timeout: Duration | None = None,
        idle: Duration | None = None,
        retries: int | None = None,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
        verify: str | Sequence[str] | None = None,
        key: str | None = None,
    ) -> TaskId:
        """Hand a task to the watch; when this returns, it is durable. Under the same `key` it is made once.

        What it needs is named by id, or by name where only one task has it.
        """
        fields = {
            "payload": payload,
            "role": role,
            "services": services,
            "priority": priority,
            "needs": needs,
            "barred": barred,
            "run": run,
            "not_before": not_before,
            "critical": critical,
            "if_need_fails": if_need_fails,
            "policy": policy,
            "timeout": timeout,
            "idle": idle,
            "retries": retries,
            "max_cost_usd": max_cost_usd,
            "max_tokens": max_tokens,
            "verify": verify,
            "key": key,
        }
        return (await self.submit_many([{"name": name, **fields}]))[0]

    async def submit_many(self, tasks: Iterable[Mapping[str, Any]]) -> list[TaskId]:
        """Hand over many tasks at once, all or none."""
        made = await self.prepare(tasks)
        await self.submit_prepared(made)
        return [new.id for new in made]

    async def submit_all(
        self,
        tasks: Iterable[Mapping[str, Any]],
        *,
        run_timeout: Duration | None = None,
        run_cost: float | None = None,
        told: Callable[[Sequence[TaskId]], None] = to_nobody,
        progress: Callable[[int, int | None], None] = to_nobody,
    ) -> Submitted:
        """Hand over any number of tasks in parcels; all are looked at before the first is handed over.

        `tasks` is gone through more than once, and where it can be, no more than a parcel is held at a time; a parcel
        is accepted whole or not at all. A task's `run` may be a name here: the run that is open under it is joined, or
        a new one opened, with `run_timeout` and `run_cost` (USD). `told` hears the ids, in the order of the tasks;
        `progress` how many were looked at, and then how many of how many were submitted.
        """
        joining = RunLookup(self.views, None if run_timeout is None else parse(run_timeout, where="run_timeout"))
        bulk = BulkSubmission(
            self._maker,
            self.views,
            joining,
            submit=self.submit_prepared,
            open_run=lambda name, limit, key: self.open_run(name, timeout=limit, key=key, max_cost_usd=run_cost),
            told=told,
            progress=progress,
        )
        return await bulk.submit(list(tasks) if isinstance(tasks, Iterator) else tasks)

    async def prepare(self, tasks: Iterable[Mapping[str, Any]]) -> tuple[NewTask, ...]:
        """Tasks from plain mappings, with ids, for `submit_prepared`; nothing is handed over yet."""
        made = self._maker.new_tasks(tasks)
        return await with_ids(self.views, made) if any(new.needs for new in made) else made

    async def submit_prepared(self, tasks: Sequence[NewTask]) -> None:
        """Hand over tasks that have their ids already, all or none; those that are there already stay as they are."""
        if tasks:
            await self._engine.do(Submit(self._ids.command(), tuple(tasks)))

    def policy_for(self, role: str) -> Policy:
        """The policy of a role's tasks that set nothing by themselves."""
        return self._maker.policy_for(role)

    async def cancel(self, task: str, reason: str = "cancelled", *, command: str | None = None) -> None:
        """Cancel a task, held or not."""
        await self._engine.do(Cancel(self._command(command), TaskId(task), reason))

    async def open_run(
        self,
        name: str,
        *,
        timeout: Duration | None = None,
        key: str | None = None,
        run: str | None = None,
        after: str | None = None,
        max_cost_usd: float | None = None,
    ) -> RunId:
        """Open a run; nothing in it outlives its timeout. Under the same `key` or `run` it is opened once.

        It goes on with the work of a run that has ended, if `after` names one.
        """
        limit = None if timeout is None else parse(timeout, where="timeout")
        id_ = RunId(run) if run is not None else self._ids.run() if key is None else run_for_key(key)
        command = self._ids.command() if run is key is None else CommandId(f"open.{id_}")
        before = None if after is None else RunId(after)
        await limit_run(self._engine, id_, max_cost_usd)
        return RunId(str(await self._engine.do(OpenRun(command, id_, name, limit, before))))

    async def end_run(self, run: str, reason: str = "ended", *, command: str | None = None) -> None:
        """End a run and everything in it that is still open."""
        await self._engine.do(EndRun(self._command(command), RunId(run), reason))

    async def answer(  # noqa: PLR0913 - all but three are keywords
        self,
        question: str,
        option: str,
        text: str = "",
        *,
        subtasks: Iterable[Mapping[str, Any]] = (),
        timeout: Duration | None = None,
        by: str = "",
        command: str | None = None,
        max_cost_usd: float | None = None,
        max_tokens: int | None = None,
    ) -> None:
        """Decide a question; the option acts."""
        row = await self.question(question)
        run = row.run if row is not None else None
        made = await self.prepare([{"run": run, **fields} for fields in subtasks])
        limit: Millis | None = None if timeout is None else parse(timeout, where="timeout")
        id_, cost = self._command(command), None if max_cost_usd is None else money(max_cost_usd, "max_cost_usd")
        await self._engine.do(Answer(id_, QuestionId(question), option, text, made, limit, by, cost, max_tokens))

    # --- for those who speak for others: supervisors, flows, the command line -----------------------------------------

    def new_run(self) -> RunId:
        """An id for a run that is to be opened later, by `open_run(…, run=…)`."""
        return self._ids.run()

    async def take_up(
        self, run: RunId, name: str, *, limit: int, length: int, agent: str, is_dead: Callable[[str], bool]
    ) -> FlowHold:
        """Run a Python flow; a new one is made, and one that another process runs is `Refused`.

        `limit` bounds this attempt, `length` is how often the hold is renewed, both in ms. `is_dead` says of a holder
        whether it is certain that its process is gone; then its time is not waited out.
        """
        new = new_flow(run, name, limit)
        row = await self.task(new.id)
        dead: Token | None = None
        if row is not None and row.lease is not None and is_dead(row.lease.agent):
            dead = row.lease.token
        sent = asyncio.get_running_loop().time()
        granted = await self._engine.do(AcquireFlow(self._ids.command(), new, AgentId(agent), length, dead))
        return FlowHold(self._engine, run, self.hold(granted, sent) if isinstance(granted, Granted) else None)

    async def notice(self, event: Event) -> None:
        """Write into the journal what was seen or done; it changes nothing else."""
        await self._engine.do(Notice(self._ids.command(), event))

    async def recall(self, key: str) -> str | None:
        """What the watch keeps about itself under a key."""
        return await self._engine.store.get(key)

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept under a key; False if that is not there any more."""
        return await self._engine.store.compare_and_set(key, before, after)

    async def sweep_once(self) -> bool:
        """Do now what is due: lapsed leases, reached limits, consequences. Whether nothing is left to do."""
        return await self._engine.sweep()

    # --- how it was opened --------------------------------------------------------------------------------------------

    @property
    def own_loop(self) -> OwnLoop | None:
        """Where it lives; None while it is not open."""
        return self._own_loop

    @property
    def pace(self) -> Timings:
        """How patient it is."""
        return self._engine.pace

    @property
    def clock(self) -> Clock:
        """The clock of this process that it goes by."""
        return self._engine.clock

    def draw(self) -> float:
        """A number by chance, from 0 to 1: repeatable where the watch is."""
        return self._engine.rng()
