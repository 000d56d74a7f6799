"""The life of a supervisor.

    register     its name is taken, or refused: of two with one name, one runs
    settle       what an earlier one left: trees ended, work kept, leases given back, what was said to be done verified
    work         a dispatcher for each agent, one look at everything a second, the gauge, reminders
    stop         in good order: nothing new, those at work may finish for a while, then they are ended and their tasks
                 given back. A second order is immediate.

Nothing it knows is needed to go on after it was killed: leases lapse or are given back by the next one, reapers end
their trees, and what it had seen is in the store.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

from msgspec.structs import replace

from allswell.domain.agents.fleet import AgentSpec, holders
from allswell.domain.agents.status import (
    PACE,
    AgentCondition,
    AgentSlot,
    Survivors,
    blocks,
    have_ended,
    named,
    still_run,
)
from allswell.domain.agents.usage import Act, Usage, UsageLevel
from allswell.domain.check.fleet import folders_apart
from allswell.domain.ids import AgentId, Millis, TaskId
from allswell.domain.lease.cost import is_paid_up
from allswell.domain.mesh.request import InboxItem, told_to_agent
from allswell.domain.question import Question
from allswell.domain.rules.event import Event
from allswell.domain.service.service import ServiceRow, shut
from allswell.domain.task.model import TaskFilter
from allswell.engine.lease import Lease
from allswell.engine.wakeup import Signal, either
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused
from allswell.runtime.agents import find_function
from allswell.runtime.attempt import SharedSampler
from allswell.runtime.attempt.orphans import noted, reconcile, still_running
from allswell.runtime.attempt.outcome import LEAVING
from allswell.runtime.attempt.record import work_folder
from allswell.runtime.host import PER_ATTEMPT, attempts_that_fit
from allswell.runtime.process import KEEPER, allowed_environment, checked_cwd, find_program
from allswell.runtime.supervisor.attempt import FAILED_PAUSE, AttemptSupervisor, SharedServices, collecting
from allswell.runtime.supervisor.console import ConsoleReporter
from allswell.runtime.supervisor.dispatch import Dispatcher, Slot, SupervisorPlan
from allswell.runtime.supervisor.presence import Registered, register
from allswell.runtime.supervisor.recovery import SupervisorRecovery
from allswell.runtime.supervisor.usage import Accounts, AccountSessions, UsageMonitor
from allswell.timing.loops import Nursery

# Telling agents at work what other agents ask of them: each delivery once, in every way that an agent can hear.
#
# It is heard as a check-in is asked for: by the answer to any call at the socket, by a line on its input, in its file.


class Mailbox:
    """The inboxes of a supervisor's agents."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._told: dict[tuple[str, int], dict[str, int]] = {}
        """For each attempt under way: the requests it has heard of, each with which delivery that was."""

    async def deliver(self, attended: Sequence[AttemptSupervisor]) -> None:
        """Bring what is new in their inboxes to all agents at work."""
        self._told = {(one.lease.task, one.lease.token): self._known(one) for one in attended}
        if not attended:
            return
        inboxes = await self._watch.inboxes({one.lease.agent: _roles(one) for one in attended}, payloads=False)
        now = await self._watch.now() if any(inboxes.values()) else Millis(0)
        for one in attended:
            mine = [item for item in inboxes[one.lease.agent] if item.request_id != one.lease.task]
            await self._tell(one, mine, now)

    def _known(self, one: AttemptSupervisor) -> dict[str, int]:
        return self._told.get((one.lease.task, one.lease.token), {})

    async def _tell(self, one: AttemptSupervisor, inbox: Sequence[InboxItem], now: Millis) -> None:
        run, lease, known = one.run, one.lease, self._known(one)
        if run is None:
            return
        run.inbox = tuple(item.request_id for item in inbox if not item.mesh)
        for item in inbox:
            if known.get(item.request_id) == item.attempt:
                continue
            has_more = (await self._watch.views.view_payload(item.request_id))[0] is not None
            known[item.request_id] = item.attempt
            left = None if item.expires_at is None else max(item.expires_at - now, 0)
            words = told_to_agent(item, left, has_more=has_more)
            told = {"request": item.request_id, "heard_by": ", ".join(run.ask(words))}
            with contextlib.suppress(AllswellError):
                await self._watch.notice(Event("request_told", lease.task, lease.run, lease.agent, lease.token, told))


def _roles(one: AttemptSupervisor) -> tuple[str, ...]:
    """For which roles its agent may answer."""
    return tuple(dict.fromkeys(role for role in (one.slot.spec.role, one.lease.role) if role))


_LOOK = 1.0
"""Seconds between two looks at everything; what happens in this process is looked at sooner."""
_MISSES = 0.5
"""Seconds between two looks at which check-ins were missed."""
_SOON = 0.1
_LOOK_AGAIN = 0.25
"""Seconds between two looks at least, however much happens."""
_LOOK_EACH = 0.005
"""That grows by so much with each attempt under way, up to a second: a big fleet always has news."""
_WORD = 2
"""There is one word to the store for so many looks of a big fleet; for any fleet, one in a second."""
_STARTS = 2 * (os.cpu_count() or 1)
"""How many agents are being started at a time."""
_COLLECTING = 0.2


class Supervisor:
    """One supervisor with its fleet; `run` returns when it has stopped."""

    def __init__(self, watch: Watch, plan: SupervisorPlan) -> None:
        self._watch = watch
        self._plan = plan
        self._attended: dict[AttemptSupervisor, None] = {}
        """In the order in which they were taken. A task can be there twice: what its last attempt ran is still being
        ended while the next one holds it."""
        self._remote = [spec for spec in plan.fleet.agents.values() if spec.kind == "remote"]
        self._dispatchers = [self._dispatcher(spec) for spec in plan.fleet.agents.values() if spec.kind != "remote"]
        self._settling = SupervisorRecovery(watch, plan, [slot for one in self._dispatchers for slot in one.slots])
        self._too_many: frozenset[str] = frozenset()
        """Slots beyond what this process can have open; they take nothing."""
        self._survivors: list[Survivors] = []
        """Whose processes still run, and keep folder and slot."""
        self._level = UsageLevel()
        self._misses: dict[str, int] = {}
        """Check-ins that each agent has missed in a row, as last reported."""
        self._misses_looked = 0.0
        self._collecting = False
        """Whether check-ins are being collected: nothing is dispatched meanwhile."""
        self._registered: Registered | None = None
        self._stopping = Signal()
        self._stops = 0
        self._nursery = Nursery()
        self._told: object = None
        self._told_at = float("-inf")
        self._gauge: UsageMonitor | None = None
        self._shared: SharedServices | None = None
        self._mailbox = Mailbox(watch)

    # --- from outside -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop in good order; a second call is immediate."""
        self._stops += 1
        self._plan.tell("stopping: agents may finish" if self._stops == 1 else "stopping at once")
        if self._stops > 1:
            for attended in self._attended:
                attended.stop("its supervisor was told to stop at once", grace=0)
                attended.leave()
        self._stopping.fire()

    @property
    def slots(self) -> int:
        """How many tasks it can hold at once."""
        return sum(len(dispatcher.slots) for dispatcher in self._dispatchers)

    def _fit(self) -> None:
        """Use no more slots than this process can have files open for, some of each agent; say so if that is fewer."""
        fit, limit = attempts_that_fit()
        if self.slots <= fit:
            return
        rows = [[slot.holder for slot in dispatcher.slots] for dispatcher in self._dispatchers]
        turns = [holder for turn in zip_longest(*rows) for holder in turn if holder is not None]
        self._too_many = frozenset(turns[fit:])
        text = f"{fit} of {self.slots} slots are used: this process may have {limit} files open"
        self._plan.tell(f"{text}, and each agent takes about {PER_ATTEMPT}; raise the hard limit (ulimit -Hn) for more")

    def check(self) -> None:
        """Refuse, before anything runs, agents that could never be started."""
        for dispatcher in self._dispatchers:
            spec = dispatcher.spec
            try:
                folder = checked_cwd(spec.cwd)
                if spec.function:
                    find_function(spec)
                elif "{" not in spec.argv[0]:
                    find_program(spec.argv[0], folder, allowed_environment(spec.env, more=spec.pass_env))
            except Refused as error:
                raise Refused(error.code, f"agent {spec.name}: {error.message}", where=f"agents.{spec.name}") from None

    # --- the life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From taking the name to giving it back."""
        self.check()
        self._fit()
        plan = self._plan
        self._registered, before = await register(self._watch, plan.name, plan.host, PACE)
        if before is not None:
            self._level = before.level
        left = await self._settling.settle(before)
        self._survivors = await reconcile(self._watch, plan.home)
        for survivors in self._survivors:
            plan.tell(blocks(survivors))
        await asyncio.get_running_loop().run_in_executor(None, KEEPER.ensure)
        told = {"supervisor": plan.name, "host": plan.host, "slots": self.slots, "left_over": left}
        await self._notice("supervisor_started", **told)
        for shared in folders_apart(plan.fleet, str(Path.cwd())):
            plan.tell(f"{shared.says} {shared.fix}")
        fleet = plan.fleet
        self._gauge = UsageMonitor(
            fleet.usage,
            fleet.compaction,
            plan.thresholds,
            level=self._level,
            now=self._watch.now,
            act=self._act,
            tell=plan.tell,
        )
        accounts = Accounts(self._watch, plan, self._halt)
        self._gauge.sessions = AccountSessions(accounts, plan, self._collect, self._notice)
        self._shared = SharedServices(
            SharedSampler(), asyncio.Semaphore(_STARTS), self._report_usage, ConsoleReporter(plan.tell), accounts
        )
        how = "normally"
        try:
            async with self._nursery as nursery:
                dispatching = [asyncio.ensure_future(dispatcher.work()) for dispatcher in self._dispatchers]
                looking = [
                    asyncio.ensure_future(work)
                    for work in (
                        *(
                            self._look_for_ever(),
                            self._gauge.work(),
                            self._remind_for_ever(),
                            self._tell_of_outages(),
                            self._settling.work(self._at_work),
                        ),
                        *(duty(self._watch) for duty in plan.beside),
                    )
                ]
                try:
                    await self._until_stopped([*dispatching, *looking])
                    await _cancelled(dispatching)
                    await self._let_finish()
                except LeaseLost:
                    await self._end_all(dispatching)
                    raise
                finally:
                    for attended in self._attended:
                        attended.stop("its supervisor ended")
                        attended.leave()
                    await _cancelled([*dispatching, *looking])
                del nursery
        except LeaseLost as lost:
            how = f"its name was taken: {lost.reason}"
            raise
        finally:
            self._shared.tower.close()
            await self._leave(how)

    def _at_work(self) -> set[TaskId]:
        return {attended.lease.task for attended in self._attended}

    async def _until_stopped(self, working: Sequence[asyncio.Future[None]]) -> None:
        """Until an order comes, nothing is left to do, or one of our own duties fails, which must not happen."""
        while not self._stops:
            news = self._stopping.listen()
            for work in working:
                if work.done():
                    await work
            busy = self._attended or self._settling.is_busy
            if self._plan.drain and not busy and not await self._anything_to_do():
                return
            await either(news, 0.2 if self._plan.drain else _LOOK)

    async def _anything_to_do(self) -> bool:
        """Whether there is a task that one of our agents could take, now or soon."""
        after = ""
        services, now = await self._watch.views.view_services(), await self._watch.now()
        paid_up = is_paid_up(services, now)
        takers = [one for one in self._dispatchers if not _waits_for_human(services.get(one.spec.limit_of()), now)]
        while page := await self._watch.tasks(TaskFilter(states=("ready", "held", "delayed"), after=after)):
            able = [row.task for row in page if row.lease is not None or not paid_up(row.task)]
            if any(one.takes(task.role) for one in takers for task in able):
                return True
            after = page[-1].task.id
        return False

    async def _let_finish(self) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + self._plan.stop / 1_000
        while self._attended and self._stops < 2 and loop.time() < end:
            await either(self._stopping.listen(), min(_SOON, max(end - loop.time(), 0)))
        for attended in self._attended:
            attended.stop("its supervisor was told to stop", grace=0 if self._stops > 1 else None)
            attended.leave()
        while self._attended:
            if self._stops > 1:
                for attended in self._attended:
                    attended.stop("its supervisor was told to stop at once", grace=0)
            await either(self._stopping.listen(), _SOON)

    async def _end_all(self, dispatching: Sequence[asyncio.Future[None]]) -> None:
        """Our name is another's: whatever is at work here is ended, and its task given back, before we go."""
        with contextlib.suppress(LeaseLost):
            await _cancelled(dispatching)
        for attended in self._attended:
            attended.stop("another supervisor has the name of its own")
            attended.leave()
        while self._attended:
            await either(self._stopping.listen(), _SOON)

    async def _leave(self, how: str) -> None:
        with contextlib.suppress(AllswellError, TimeoutError):  # it stops even if the store is away
            async with asyncio.timeout(LEAVING):
                if self._registered is not None:
                    await self._registered.beat(self._gauge.level if self._gauge else self._level, (), gone=True)
                await self._notice("supervisor_stopped", supervisor=self._plan.name, how=how)

    # --- slots --------------------------------------------------------------------------------------------------------

    def _dispatcher(self, spec: AgentSpec) -> Dispatcher:
        slots = [Slot(spec, AgentId(name)) for name in holders(spec, self._plan.name)]
        lease = self._plan.lease
        return Dispatcher(
            *(self._watch, spec, slots),
            lease=lease,
            take=self._take,
            hindrance=self._hindrance,
            trusted=self._trusted,
            kept=self._kept,
        )

    def _kept(self, slot: Slot) -> str:
        """Why a slot takes nothing: too few files can be open, or processes of an earlier attempt still run there."""
        if slot.holder in self._too_many:
            return "too few files can be open for one more agent (ulimit -n)"
        for left in self._survivors:
            own = "" if slot.spec.worktree else os.path.realpath(work_folder(Path(slot.spec.cwd or ".")) or "")
            if left.holder == slot.holder or (own and left.folder and os.path.realpath(left.folder) == own):
                return still_run(left.processes)
        return ""

    def _hindrance(self) -> str:
        """Why nothing new is claimed; empty: nothing is in the way."""
        if self._stops or (self._gauge is not None and self._gauge.level.paused):
            return "the fleet is paused"
        if self._collecting:
            return "check-ins are being collected"
        return "" if self._trusted() else "the store does not answer"

    def _halt(self) -> None:
        """A slot that waits for a task checks first whether it may still take one."""
        for dispatcher in self._dispatchers:
            dispatcher.halt.fire()

    def _trusted(self) -> float:
        """For how many seconds our name is certainly ours: a supervisor that has lost it must claim nothing more."""
        return 0.0 if self._registered is None else self._registered.trusted

    def _take(self, slot: Slot, lease: Lease) -> None:
        assert self._shared is not None  # noqa: S101 - nothing is dispatched before
        earlier = [one.gone for one in self._attended if one.lease.task == lease.task]
        attended = AttemptSupervisor(self._watch, self._plan, slot, lease, self._shared, earlier)
        self._attended[attended] = None
        self._nursery.start(self._attend(attended), name=f"{slot.holder} on {lease.task}")

    async def _attend(self, attended: AttemptSupervisor) -> None:
        try:
            await attended.attend()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug in one attempt must not take the fleet along
            self._plan.tell(f"“{attended.lease.name}” could not be attended to: {error!r}")
            with contextlib.suppress(AllswellError):
                await attended.lease.release("supervisor_failed", delay=FAILED_PAUSE)
        finally:
            if attended.survivors is not None:
                self._survivors.append(attended.survivors)
                self._plan.tell(blocks(attended.survivors))
            del self._attended[attended]
            for dispatcher in self._dispatchers:
                if attended.slot in dispatcher.slots:
                    dispatcher.freed(attended.slot)

    # --- looking ------------------------------------------------------------------------------------------------------

    async def _look_for_ever(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            news = self._watch.on_event()
            try:
                await self._look()
            except LeaseLost:
                raise  # another process has the name: going on now would run beside it
            except AllswellError:
                pass  # the store is away; it is looked at again
            began = loop.time()
            await either(news, _LOOK)
            await asyncio.sleep(max(self._least() - (loop.time() - began), 0))

    async def _tell_of_outages(self) -> None:
        """Say that the store does not take our word any more, and that it does again."""
        away = False
        while True:
            await asyncio.sleep(_LOOK)
            if away == (self._trusted() == 0):
                continue
            away = not away
            lapse = "nothing new is begun, and agents are ended before their leases lapse → allswell doctor"
            self._plan.tell(f"the store cannot be written: {lapse}" if away else "the store can be written again")

    def _least(self) -> float:
        """Seconds between two looks at least."""
        return min(max(_LOOK_AGAIN, len(self._attended) * _LOOK_EACH), _LOOK)

    async def _look(self) -> None:
        attended = list(self._attended)
        rows = {}
        if attended:
            ids = tuple(dict.fromkeys(one.lease.task for one in attended))
            rows = {row.task.id: row for row in await self._watch.tasks(TaskFilter(ids=ids, limit=len(ids)))}
        asked: dict[TaskId, Question] = {}
        if any(row.task.record.questions for row in rows.values()):
            for question in await self._watch.questions():
                if question.task is not None:
                    asked[question.task] = question
        for one in attended:
            one.look(rows.get(one.lease.task), asked.get(one.lease.task))
        await self._mailbox.deliver(attended)
        await self._look_at_misses(attended)
        await self._look_at_survivors()
        await self._beat()

    async def _look_at_misses(self, attended: Sequence[AttemptSupervisor]) -> None:
        """Say of agents that they did not answer when they were asked for a check-in, from the first time on."""
        loop = asyncio.get_running_loop()
        if not attended or loop.time() < self._misses_looked + _MISSES:
            return
        self._misses_looked = loop.time()
        missed = {agent.id: agent.misses for agent in await self._watch.views.view_agents() if agent.misses}
        for one in attended:
            holder, name = one.lease.agent, one.lease.name
            count, most = missed.get(holder, 0), one.lease.granted.task.spec.policy.stall_threshold
            if count > self._misses.get(holder, 0) and count < most:
                stalled = f"{most} in a row mean that it is stalled"
                asked = f"when asked for a check-in on “{name}” ({count} of {most})"
                self._plan.tell(f"{holder} did not answer {asked}; {stalled}")
            self._misses[holder] = count

    async def _look_at_survivors(self) -> None:
        """Processes that still run after their attempt: as long as they do, folder and slot are kept."""
        home = self._plan.home
        if not self._survivors and not await asyncio.to_thread(lambda: any(noted(home))):
            return
        before, self._survivors = self._survivors, await reconcile(self._watch, home)
        kept = {(left.task, left.attempt) for left in self._survivors}
        gone = [left for left in before if (left.task, left.attempt) not in kept]
        for left in gone:
            why = (
                f"{named(left.processes)} may still run"
                if still_running(left).processes
                else have_ended(left.processes)
            )
            self._plan.tell(f"{why}; {left.holder} and {left.folder} are free again")
        if gone:
            for dispatcher in self._dispatchers:
                dispatcher.news.fire()

    async def _beat(self, *, urgent: bool = False) -> None:
        """Say how things stand, when it is new or time."""
        loop = asyncio.get_running_loop()
        if self._registered is None or self._gauge is None:
            return
        since = loop.time() - self._told_at
        if since < max(self._least() * _WORD, _LOOK) and not urgent:
            return
        now = await self._watch.now()
        posts = self._posts(now)
        level = self._gauge.level
        plain = (level, tuple((post.holder, post.task, post.condition, post.waits) for post in posts))
        if plain == self._told and since < PACE / 2_000:
            return
        await self._registered.beat(level, posts, stopping=self._stops > 0)
        self._told, self._told_at = plain, loop.time()

    def _posts(self, now: Millis) -> tuple[AgentSlot, ...]:
        busy = {one.slot.holder: one.post(now) for one in self._attended}
        posts = []
        for dispatcher in self._dispatchers:
            spec = dispatcher.spec
            for slot in dispatcher.slots:
                waits = self._kept(slot) or dispatcher.waits
                idle = AgentSlot(spec.name, slot.holder, spec.kind, spec.role, waits=waits, account=spec.limit_of())
                posts.append(busy.get(slot.holder) or idle)
        for spec in self._remote:
            names = holders(spec, self._plan.name)
            posts += [
                AgentSlot(spec.name, name, spec.kind, spec.role, condition=AgentCondition.UNKNOWN.value)
                for name in names
            ]
        return tuple(posts)

    # --- thresholds and reminders -------------------------------------------------------------------------------------

    async def _act(self, act: Act, usage: Usage) -> None:
        gauge = self._gauge
        if gauge is None:
            return
        if act == "resume":
            self._plan.tell("the session has room again: going on")
            await self._notice("session_resumed", account="")
            for dispatcher in self._dispatchers:
                dispatcher.news.fire()
            return
        left = usage.context if act == "compact" else usage.session
        why = f"{left:g} % of the {'context' if act == 'compact' else 'session'} is left"
        self._plan.tell(f"{why}: collecting check-ins")
        self._collecting = True
        self._halt()
        try:
            if act == "pause":
                await self._beat(urgent=True)  # saved before anything else: a restart now must not dispatch
            collected = await self._collect(why)
        finally:
            self._collecting = False
            for dispatcher in self._dispatchers:
                dispatcher.news.fire()
        if act == "compact":
            outcome, message = await gauge.compact(collected)
            self._plan.tell(f"compaction: {outcome}")
            await self._notice("context_compacted", outcome=outcome, message=message)
        else:
            of_whom = "; the account is not known: set [usage] account, so that agents of other accounts go on"
            self._plan.tell(f"nothing new is dispatched until the session is reset{of_whom}")
            await self._notice("session_paused", remaining=left, until=gauge.level.until, account="")

    def _report_usage(self, holder: str, usage: Usage | None) -> None:
        """What an agent says of its usage: its session is that of its own account."""
        if self._gauge is None:
            return
        if usage is not None:
            own = [one.spec for one in self._dispatchers for slot in one.slots if slot.holder == holder]
            usage = replace(usage, account=own[0].limit_of() if own else "")
        self._gauge.report(holder, usage)

    async def _collect(self, why: str, account: str = "") -> list[dict[str, object]]:
        """Ask all agents at work, or those of an account, and go on without the silent ones when the time is up."""
        asked = [one for one in self._attended if account in ("", one.slot.spec.limit_of())]
        wait = max((one.lease.asks[1] for one in asked), default=0)
        moments = {one: one.ask(collecting(one.lease.task, why, wait), "checkin_asked") for one in asked}
        loop = asyncio.get_running_loop()
        end = loop.time() + wait / 1_000
        while loop.time() < end and not all(one.is_over or one.has_answered(at) for one, at in moments.items()):
            await either(self._stopping.listen(), _COLLECTING)
        await self._look()
        answered = [one for one, at in moments.items() if one.has_answered(at)]
        silent = [one.lease.agent for one in asked if one not in answered]
        heard = [one.lease.agent for one in answered]
        await self._notice("checkpoints_collected", why=why, answered=heard, silent=silent)
        return [
            {"agent_id": one.lease.agent, "task_id": one.lease.task, "name": one.lease.name, "checkpoint": one.note}
            for one in answered
        ]

    async def _remind_for_ever(self) -> None:
        """Say now and then that questions wait; the first time at once."""
        if self._plan.reminder is None:
            return
        while True:
            with contextlib.suppress(AllswellError):
                questions = [one for one in await self._watch.questions() if one.dismissed_at is None]
                if questions:
                    told = {"count": len(questions), "oldest": questions[0].id, "since": questions[0].asked_at}
                    are = "1 question waits" if len(questions) == 1 else f"{len(questions)} questions wait"
                    self._plan.tell(f"{are} for you: `allswell questions`")
                    await self._notice("questions_open", **told)
            await asyncio.sleep(self._plan.reminder / 1_000)

    async def _notice(self, kind: str, **data: object) -> None:
        await self._watch.notice(Event(kind, data=data))


def _waits_for_human(account: ServiceRow | None, now: Millis) -> bool:
    """Whether agents of this account get nothing to do before a human has answered."""
    closed = None if account is None else shut(account, now)
    return closed is not None and closed.until is None


async def _cancelled(working: Sequence[asyncio.Future[None]]) -> None:
    for work in working:
        work.cancel()
    for answer in await asyncio.gather(*working, return_exceptions=True):
        if isinstance(answer, LeaseLost):
            raise answer
