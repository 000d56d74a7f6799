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
from pathlib import Path

from allswell.domain.arithmetic.folders import folders_apart
from allswell.domain.condition import Condition
from allswell.domain.event import Event
from allswell.domain.fleet import AgentSpec, holders
from allswell.domain.listing import TaskFilter
from allswell.domain.names import AgentId, Millis, TaskId
from allswell.domain.paying import is_paid_up
from allswell.domain.presence import PACE, Post
from allswell.domain.question import Question
from allswell.domain.usage import Act, Level, Usage
from allswell.engine.handle import Lease
from allswell.engine.signal import Signal, either
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused
from allswell.runtime.agents import find_function
from allswell.runtime.attempt import Tower
from allswell.runtime.supervisor.asking import collecting
from allswell.runtime.supervisor.attending import Attendance
from allswell.runtime.supervisor.dispatch import Dispatch
from allswell.runtime.supervisor.gauge import Gauge
from allswell.runtime.supervisor.mailbox import Mailbox
from allswell.runtime.supervisor.plan import Plan, Slot
from allswell.runtime.supervisor.presence import Registered, register
from allswell.runtime.supervisor.settling import Settling
from allswell.runtime.supervisor.shared import Shared
from allswell.runtime.supervisor.telling import Voice
from allswell.runtime.warden import KEEPER, allowed_environment, checked_cwd, find_program
from allswell.timing.nursery import Nursery

_LOOK = 1.0
"""Seconds between two looks at everything; what happens in this process is looked at sooner."""
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

    def __init__(self, watch: Watch, plan: Plan) -> None:
        self._watch = watch
        self._plan = plan
        self._attended: dict[Attendance, None] = {}
        """In the order in which they were taken. A task can be there twice: what its last attempt ran is still being
        ended while the next one holds it."""
        self._remote = [spec for spec in plan.fleet.agents.values() if spec.kind == "remote"]
        self._dispatchers = [self._dispatcher(spec) for spec in plan.fleet.agents.values() if spec.kind != "remote"]
        self._settling = Settling(watch, plan, [slot for one in self._dispatchers for slot in one.slots])
        self._level = Level()
        self._registered: Registered | None = None
        self._stopping = Signal()
        self._stops = 0
        self._nursery = Nursery()
        self._told: object = None
        self._told_at = float("-inf")
        self._gauge: Gauge | None = None
        self._shared: Shared | None = None
        self._mailbox = Mailbox(watch)

    # --- from outside -------------------------------------------------------------------------------------------------

    def stop(self) -> None:
        """Stop in good order; a second call is immediate."""
        self._stops += 1
        self._plan.tell("stopping: agents may finish" if self._stops == 1 else "stopping at once")
        if self._stops > 1:
            for attended in self._attended:
                attended.stop("its supervisor was told to stop at once", grace=0)
        self._stopping.fire()

    @property
    def slots(self) -> int:
        """How many tasks it can hold at once."""
        return sum(len(dispatcher.slots) for dispatcher in self._dispatchers)

    def check(self) -> None:
        """Refuse, before anything runs, agents that could never be started."""
        for dispatcher in self._dispatchers:
            spec = dispatcher.spec
            try:
                folder = checked_cwd(spec.cwd)
                if spec.function:
                    find_function(spec)
                elif "{" not in spec.command[0]:
                    find_program(spec.command[0], folder, allowed_environment(spec.env, more=spec.pass_env))
            except Refused as error:
                raise Refused(error.code, f"agent {spec.name}: {error.message}", where=f"agents.{spec.name}") from None

    # --- the life -----------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """From taking the name to giving it back."""
        self.check()
        plan = self._plan
        self._registered, before = await register(self._watch, plan.name, plan.host, PACE)
        if before is not None:
            self._level = before.level
        left = await self._settling.settle()
        await asyncio.get_running_loop().run_in_executor(None, KEEPER.ensure)
        told = {"supervisor": plan.name, "host": plan.host, "slots": self.slots, "left_over": left}
        await self._notice("supervisor_started", **told)
        for shared in folders_apart(plan.fleet, str(Path.cwd())):
            plan.tell(f"{shared.says} {shared.fix}")
        fleet = plan.fleet
        self._gauge = Gauge(
            fleet.usage,
            fleet.compaction,
            plan.thresholds,
            level=self._level,
            now=self._watch.now,
            act=self._act,
            tell=plan.tell,
        )
        self._shared = Shared(Tower(), asyncio.Semaphore(_STARTS), self._gauge.report, Voice(plan.tell))
        how = "in good order"
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
                            self._settling.work(self._at_work),
                        ),
                        *(duty(self._watch) for duty in plan.beside),
                    )
                ]
                try:
                    await self._until_stopped([*dispatching, *looking])
                    await _cancelled(dispatching)
                    await self._let_finish()
                finally:
                    await _cancelled([*dispatching, *looking])
                    for attended in self._attended:
                        attended.stop("its supervisor ended")
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
        paid_up = is_paid_up(await self._watch.views.view_services(), await self._watch.now())
        while page := await self._watch.tasks(TaskFilter(states=("ready", "held", "delayed"), after=after)):
            able = [row.task for row in page if row.lease is not None or not paid_up(row.task)]
            if any(one.takes(task.role) for one in self._dispatchers for task in able):
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
        while self._attended:
            if self._stops > 1:
                for attended in self._attended:
                    attended.stop("its supervisor was told to stop at once", grace=0)
            await either(self._stopping.listen(), _SOON)

    async def _leave(self, how: str) -> None:
        with contextlib.suppress(AllswellError):
            if self._registered is not None:
                await self._registered.beat(self._gauge.level if self._gauge else self._level, (), gone=True)
            await self._notice("supervisor_stopped", supervisor=self._plan.name, how=how)

    # --- slots --------------------------------------------------------------------------------------------------------

    def _dispatcher(self, spec: AgentSpec) -> Dispatch:
        slots = [Slot(spec, AgentId(name)) for name in holders(spec, self._plan.name)]
        lease = self._plan.lease
        return Dispatch(self._watch, spec, slots, lease=lease, take=self._take, may=self._may_dispatch)

    def _may_dispatch(self) -> bool:
        return not self._stops and not (self._gauge is not None and self._gauge.level.paused)

    def _take(self, slot: Slot, lease: Lease) -> None:
        assert self._shared is not None  # noqa: S101 - nothing is dispatched before
        earlier = [one.gone for one in self._attended if one.lease.task == lease.task]
        attended = Attendance(self._watch, self._plan, slot, lease, self._shared, earlier)
        self._attended[attended] = None
        self._nursery.start(self._attend(attended), name=f"{slot.holder} on {lease.task}")

    async def _attend(self, attended: Attendance) -> None:
        try:
            await attended.attend()
        except asyncio.CancelledError:
            raise
        except Exception as error:  # noqa: BLE001 - a bug in one attempt must not take the fleet along
            self._plan.tell(f"“{attended.lease.name}” could not be attended to: {error!r}")
            with contextlib.suppress(AllswellError):
                await attended.lease.release("supervisor_failed")
        finally:
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
                raise  # the name is somebody else's: whoever goes on now would run beside it
            except AllswellError:
                pass  # the store is away; it is looked at again
            began = loop.time()
            await either(news, _LOOK)
            await asyncio.sleep(max(self._least() - (loop.time() - began), 0))

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
        await self._beat()

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

    def _posts(self, now: Millis) -> tuple[Post, ...]:
        busy = {one.slot.holder: one.post(now) for one in self._attended}
        posts = []
        for dispatcher in self._dispatchers:
            spec = dispatcher.spec
            for slot in dispatcher.slots:
                idle = Post(
                    spec.name, slot.holder, spec.kind, spec.role, waits=dispatcher.waits, account=spec.limit_of()
                )
                posts.append(busy.get(slot.holder) or idle)
        for spec in self._remote:
            names = holders(spec, self._plan.name)
            posts += [Post(spec.name, name, spec.kind, spec.role, condition=Condition.UNKNOWN.value) for name in names]
        return tuple(posts)

    # --- thresholds and reminders -------------------------------------------------------------------------------------

    async def _act(self, act: Act, usage: Usage) -> None:
        gauge = self._gauge
        if gauge is None:
            return
        if act == "resume":
            self._plan.tell("the session has room again: going on")
            await self._notice("session_resumed")
            for dispatcher in self._dispatchers:
                dispatcher.news.fire()
            return
        left = usage.context if act == "compact" else usage.session
        why = f"{left:g} % of the {'context' if act == 'compact' else 'session'} is left"
        self._plan.tell(f"{why}: collecting check-ins")
        if act == "pause":
            await self._beat(urgent=True)  # saved before anything else: a restart now must not dispatch
        collected = await self._collect(why)
        if act == "compact":
            outcome, message = await gauge.compact(collected)
            self._plan.tell(f"compaction: {outcome}")
            await self._notice("context_compacted", outcome=outcome, message=message)
        else:
            self._plan.tell("nothing new is dispatched until the session is reset")
            await self._notice("session_paused", remaining=left, until=gauge.level.until)

    async def _collect(self, why: str) -> list[dict[str, object]]:
        """Ask everybody at work, and go on without the silent ones after the time to answer."""
        asked = list(self._attended)
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


async def _cancelled(working: Sequence[asyncio.Future[None]]) -> None:
    for work in working:
        work.cancel()
    for answer in await asyncio.gather(*working, return_exceptions=True):
        if isinstance(answer, LeaseLost):
            raise answer
