"""The engine: carries commands to the store in batches, enforces time limits, and wakes waiting callers.

A commit wakes its waiters in two ways: those of this process at once, by its signals, and other processes by the
store's calls (`store/port.py`), which may be lost. Only an engine without a sweeper calls others about timers and
consequences: one with a sweeper handles its own.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Self, TypeVar

from msgspec.structs import replace

from allswell.domain.ids import NO_COMMAND, Millis, TaskId, can_name
from allswell.domain.lease.claim import Granted
from allswell.domain.lease.holder import Orders, said_again
from allswell.domain.lease.model import LeaseRow
from allswell.domain.question import NOTHING_HELD_BACK, Pause, PausedWork, held_back
from allswell.domain.rules.command import CheckIn, Claim, Command, RecordStep, Release
from allswell.domain.rules.decide import decide
from allswell.domain.rules.rule import LaneKey, RowSnapshot
from allswell.engine.backend import Claimed, TellsOfWait, log_wait, open_patiently
from allswell.engine.group_commit import Batch, Batcher
from allswell.engine.sweeper import Sweeper
from allswell.engine.timings import DEFAULT_PACE, Timings
from allswell.engine.unit_of_work import BatchPlan, BatchResult, CommitEffects, Wait, commit, perform
from allswell.engine.wakeup import Signal, either
from allswell.errors import AllswellError, LeaseLost, Unavailable
from allswell.store.clock import SetBack
from allswell.store.port import NOTHING, CommitUnknown, FastStepWriter, Recorded, Store, Transaction, Wakeup
from allswell.timing.clock import Clock, SystemClock
from allswell.timing.loops import Nursery

# How a process takes calls from others: at once while they are rare, ever more seldom while they lead to nothing.
#
# Every call costs each waiting process a look at the store. A fleet that waits for one kind of work would look ten
# thousand times for nothing while others are busy with another kind. So after each call the next one is heard only
# after a pause, which doubles up to the pace of polling; a look that found something, or a quiet while, takes it back
# to the beginning. What arrives during a pause is not lost: it is one call at its end.

_FIRST = 0.005


class Debouncer:
    """Passes calls on to `ring`, and bounds how often; `most` is the longest pause, in seconds."""

    def __init__(self, ring: Callable[[], None], *, most: float) -> None:
        self._ring = ring
        self._most = most
        self._pause = min(_FIRST, most)
        self._open_at = 0.0
        self._later: asyncio.TimerHandle | None = None
        self._closed = False

    def call(self) -> None:
        """Another process called."""
        if self._closed or self._later is not None:
            return
        loop = asyncio.get_running_loop()
        now = loop.time()
        if now >= self._open_at:
            if now >= self._open_at + self._most:
                self.rewarded()
            self._pass_on()
        else:
            self._later = loop.call_at(self._open_at, self._pass_on)

    def rewarded(self) -> None:
        """A look found something: calls are worth hearing."""
        self._pause = min(_FIRST, self._most)

    def close(self) -> None:
        """Hear nothing more."""
        self._closed = True
        if self._later is not None:
            self._later.cancel()
            self._later = None

    def _pass_on(self) -> None:
        self._later = None
        self._open_at = asyncio.get_running_loop().time() + self._pause
        self._pause = min(self._pause * 2, self._most)
        self._ring()


T = TypeVar("T")
_ONE_STEP = CommitEffects(steps=True)
TELL_STEPS_EVERY = 0.1
"""Seconds. No caller waits for a finished step; readers of the journal in other processes are woken for many steps at
once."""
HEAR_AFTER = 0.2
"""Seconds. A process that is over sooner and waits for nothing needs no ears; to open them costs a connection."""


class Engine:
    """One process's share of the watch. Any number of engines may work on one store."""

    def __init__(  # noqa: PLR0913 - each has a name
        self,
        store: Store,
        *,
        rng: Callable[[], float],
        clock: Clock | None = None,
        pace: Timings = DEFAULT_PACE,
        sweeping: bool = True,
        machine: str | None = None,
        pause_on_question: Pause = "task",
        tell_of_wait: TellsOfWait = log_wait,
    ) -> None:
        self.store = store
        self._tell_of_wait = tell_of_wait
        self.pause_on_question = pause_on_question
        self.pace = pace
        self.rng = rng
        self.clock = clock or SystemClock()
        self.loop: asyncio.AbstractEventLoop | None = None
        """Where it runs; None while it is not open."""
        self.ready = Signal()
        self.journal = Signal()
        self.sweeper = Sweeper(
            store, clock=self.clock, pace=pace, rng=rng, tell=self._tell, call=self._call, machine=machine
        )
        self._sweeping = sweeping
        self._hearing = False
        self._ready_elsewhere = Debouncer(self.ready.fire, most=pace.claim_poll)
        self._journal_elsewhere = Debouncer(self.journal.fire, most=pace.follow_poll)
        self._spreads_elsewhere = Debouncer(
            lambda: self.sweeper.hear(CommitEffects(spreads=True)), most=pace.sweep_most
        )
        self._lanes: dict[LaneKey, int] = {}
        self._decisions = Batcher[Command](
            self._commit,
            name="decisions",
            pace=pace,
            rng=rng,
            tell=self._tell,
            unwanted=self._give_back,
            max_parallel=store.max_parallel,
        )
        self._checkins = Batcher[CheckIn](
            partial(self._commit, durable=False),
            name="check-ins",
            pace=pace,
            rng=rng,
            tell=self._tell,
            unwanted=lambda _: None,
        )
        self._records = Batcher[RecordStep](
            self._record,
            name="steps",
            pace=pace,
            rng=rng,
            tell=self._tell_steps,
            unwanted=lambda _: None,
        )
        self._telling_steps: asyncio.TimerHandle | None = None
        self._short_way = store if isinstance(store, FastStepWriter) else None
        self._flows: dict[TaskId, LeaseRow] = {}
        """The leases of flows that have steps recorded here, as they were last seen."""
        self._nursery = Nursery()

    async def __aenter__(self) -> Self:
        await open_patiently(self.store, self.pace, self._tell_of_wait)
        self.loop = asyncio.get_running_loop()
        with contextlib.suppress(Unavailable):  # a store that is away now may be back for the first command
            await self.sweeper.look_back()
        await self._nursery.__aenter__()
        self._decisions.open()
        self._checkins.open()
        self._records.open()
        for number in range(self._decisions.max_parallel):
            self._nursery.start(self._decisions.work(), name=f"decisions {number + 1}")
        self._nursery.start(self._checkins.work(), name="check-ins")
        self._nursery.start(self._records.work(), name="steps")
        if self._sweeping:
            self._nursery.start(self.sweeper.work(), name="sweeper")
            self._nursery.start(self._hear_after_a_while(), name="ears")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._nursery.cancel()
        self.loop = None
        try:
            await self._nursery.__aexit__(kind, error, trace)
        finally:
            if self._telling_steps is not None:
                self._telling_steps.cancel()
                self._tell_steps_elsewhere()
            for ear in (self._ready_elsewhere, self._journal_elsewhere, self._spreads_elsewhere):
                ear.close()
            await self.store.close()

    def start(self, work: Coroutine[Any, Any, None], *, name: str) -> None:
        """Run something beside the engine for as long as it is open."""
        self._nursery.start(work, name=name)

    async def sweep(self) -> bool:
        """Do now what is due; whether nothing is left to do."""
        return await self.sweeper.sweep() > 0

    async def do(self, command: Command) -> object:
        """Have a command decided and committed; its answer, or its error."""
        return await self._decisions.ask(command)

    async def record(self, step: RecordStep) -> None:
        """Have a step of a flow recorded; it is durable when this returns."""
        await self._records.ask(step)

    def record_here(self, step: RecordStep) -> bool:
        """The short way for a step that comes from a thread; False: go the long way, through the engine's loop."""
        lease = self._flows.get(step.flow)
        if self._short_way is None or lease is None or self.sweeper.clocks.jumped:
            return False
        decide_it = partial(self._decide_step, step)
        try:
            recorded = self._short_way.record_here(lease, decide_it, self.pace.store_patience)
        except Exception:  # noqa: BLE001 - the long way meets it again, and has words for it
            return False
        if recorded and self._telling_steps is None and self.loop is not None:
            self.loop.call_soon_threadsafe(self._tell_steps, _ONE_STEP)
        return recorded

    def _decide_step(self, step: RecordStep, lease: LeaseRow, now: Millis) -> Recorded | None:
        """What recording a step comes to on this lease; None for whatever is not plain, which goes the long way."""
        decision = decide(RowSnapshot(now, leases={step.flow: lease}, lanes=self._lanes), step)
        if decision.error is not None:
            return None
        (made,), (event,) = decision.recorded, decision.events
        return Recorded(made, event, now)

    async def check_in(self, command: CheckIn) -> Orders:
        """Renew a lease; the orders for its holder."""
        try:
            orders = await self._checkins.ask(command)
        except LeaseLost as lost:
            again = said_again(command, lost)
            if again is None:
                raise
            orders = await self.do(again)
        assert isinstance(orders, Orders)  # noqa: S101 - for the type checker
        return orders

    async def do_many(self, commands: Sequence[Command]) -> list[object]:
        """Have commands decided together; an answer or an error for each."""
        return await self._decisions.ask_many(commands)

    async def check_in_many(self, commands: Sequence[CheckIn]) -> list[object]:
        """Renew leases together; orders or an error for each."""
        answers = await self._checkins.ask_many(commands)
        for place, (command, answer) in enumerate(zip(commands, answers, strict=True)):
            again = said_again(command, answer) if isinstance(answer, LeaseLost) else None
            if again is not None:
                (answers[place],) = await self.do_many([again])
        return answers

    async def claim(self, claim: Claim, *, wait: float = 0.0) -> Claimed:
        """Claim tasks, waiting up to `wait` seconds for the first to be there."""
        loop = asyncio.get_running_loop()
        until = loop.time() + wait
        if wait > 0:
            self.hear()
        while True:
            news = self.ready.listen()
            sent = loop.time()
            back = await self.held_back()
            granted: list[Granted] = []
            if not back.everything:
                granted = await self._claim_now(replace(claim, outside=back.runs) if back.runs else claim)
                if self.sweeper.owes and len(granted) < claim.count and (not granted or claim.id == NO_COMMAND):
                    granted += await self._claim_what_was_freed(claim, granted, back)
            left = until - loop.time()
            if granted:
                self._ready_elsewhere.rewarded()
            if granted or left <= 0:
                return Claimed(granted, sent)
            await either(news, min(left, self.pace.claim_poll * (0.75 + self.rng() / 2)))

    async def claim_each(self, claims: Sequence[Claim]) -> tuple[list[list[Granted] | AllswellError], float]:
        """Claims that name their tasks, decided together: what was granted, or an error, for each; when it was sent."""
        sent = asyncio.get_running_loop().time()
        if self.sweeper.owes:
            with contextlib.suppress(Unavailable, CommitUnknown, SetBack):  # the sweeper tries again by itself
                await self.sweeper.work_off()
        back = await self.held_back()
        if back.everything:
            return [[] for _ in claims], sent
        if back.runs:
            claims = [replace(claim, outside=back.runs) for claim in claims]
        asked: asyncio.Future[Any] = self._decisions.ask_many(claims)
        return await self._unless_cancelled(asked, self._give_back), sent

    async def _claim_now(self, claim: Claim) -> list[Granted]:
        asked: asyncio.Future[list[Granted]] = self._decisions.ask(claim, weight=claim.count)
        return await self._unless_cancelled(asked, lambda granted: self._give_back([granted]))

    async def _claim_what_was_freed(self, claim: Claim, already: list[Granted], back: PausedWork) -> list[Granted]:
        """It finds what this process has freed itself, even before the dependents are updated."""
        try:
            await self.sweeper.work_off()
            return await self._claim_now(replace(claim, outside=back.runs, count=claim.count - len(already)))
        except (Unavailable, CommitUnknown, SetBack):
            return []  # the claim itself was answered; its caller keeps what it got
        except BaseException:
            self._give_back([already])
            raise

    async def _unless_cancelled(self, asked: asyncio.Future[T], give_back: Callable[[T], None]) -> T:
        try:
            return await asked
        except asyncio.CancelledError:
            if asked.done() and not asked.cancelled() and asked.exception() is None:
                give_back(asked.result())  # cancelled in the very moment it was answered
            raise

    async def held_back(self) -> PausedWork:
        """What open questions hold back; if each holds back its own task only, no look is needed."""
        if self.pause_on_question == "task":
            return NOTHING_HELD_BACK
        return held_back(self.pause_on_question, await self.store.view_questions())

    async def _record(self, batch: Batch[RecordStep], wait: Wait) -> BatchResult:
        if len(batch.commands) == 1 and await self._record_alone(batch.commands[0]):
            return BatchResult([None], _ONE_STEP)
        performed = await self._commit(batch, wait, silent=True)
        for step, answer in zip(batch.commands, performed.answers, strict=True):
            if isinstance(answer, LeaseRow):
                self._flows[step.flow] = answer
        return performed

    async def _record_alone(self, step: RecordStep) -> bool:
        """The short way for a step that comes by itself; False: it goes the long way, which knows it if it was done."""
        lease = self._flows.get(step.flow)
        if self._short_way is None or lease is None or self.sweeper.clocks.jumped:
            return False
        try:
            return await self._short_way.record(lease, partial(self._decide_step, step))
        except Exception:  # noqa: BLE001 - the long way meets it again, and has words for it
            return False

    async def _commit(
        self, batch: Batch[Any], wait: Wait, *, durable: bool = True, silent: bool = False
    ) -> BatchResult:
        """Have a batch decided and committed, once the clocks are in order; `silent` if others are woken later."""
        plan = batch.plan
        await self._learn_lanes(plan)
        tried = False

        def work(tx: Transaction) -> Coroutine[Any, Any, BatchResult]:
            nonlocal tried
            careful, tried = tried, True
            return perform(tx, plan, self._lanes, self.rng, careful=careful)

        call = _nothing if silent else self._call
        clocks = self.sweeper.clocks
        while True:
            try:
                return await commit(self.store, work, clocks=clocks, call=call, durable=durable, wait=wait)
            except SetBack:  # seen by this process, or before it was there
                await (self.sweeper.mind_the_clock() if clocks.jumped else self.sweeper.settle())

    async def _learn_lanes(self, plan: BatchPlan) -> None:
        """Have the store intern the lanes that are new to us; what no store can hold is refused when it is decided."""
        wanted = [lane for lane in plan.lanes if lane not in self._lanes]
        wanted = [(role, services) for role, services in wanted if all(map(can_name, (role, *services)))]
        if wanted:
            found = await self.store.intern_lanes(wanted)
            self._lanes.update(zip(wanted, found, strict=True))

    def _give_back(self, answers: Sequence[object]) -> None:
        """Tasks granted to a claimer that no longer waits become ready again at once.

        Not those of a claim with an id: its caller means to ask again, and is answered with the same lease.
        """
        for answer in answers:
            for granted in answer if isinstance(answer, list) else ():
                if isinstance(granted, Granted) and granted.lease.command == NO_COMMAND:
                    lease = granted.lease
                    gone = Release(NO_COMMAND, lease.task, lease.token, lease.agent, "claim cancelled by caller")
                    self._decisions.ask(gone).add_done_callback(_forget)

    def _tell(self, news: CommitEffects) -> None:
        if news.ready:
            self.ready.fire()
        if news.events:
            self.journal.fire()
        if news.spreads or news.due is not None:
            self.sweeper.owe(news)
            self.sweeper.hear(news)

    def _call(self, news: CommitEffects) -> Wakeup:
        """The wake-up call to other processes about a commit."""
        if self._sweeping:
            return Wakeup(news.ready, news.events)
        return Wakeup(news.ready, news.events, news.spreads, news.due)

    def _tell_steps(self, news: CommitEffects) -> None:
        if not news.steps:
            return
        self.journal.fire()
        if self._telling_steps is None and self.loop is not None:
            self._telling_steps = self.loop.call_later(TELL_STEPS_EVERY, self._tell_steps_elsewhere)

    def _tell_steps_elsewhere(self) -> None:
        self._telling_steps = None
        self.store.announce(Wakeup(journal=True))

    def hear(self) -> None:
        """Receive the wake-up calls of other processes from now on; to be called before waiting for them."""
        if not self._hearing:
            self._hearing = True
            self.store.hear(self._heard)

    async def _hear_after_a_while(self) -> None:
        await asyncio.sleep(HEAR_AFTER)
        self.hear()

    def _heard(self, call: Wakeup) -> None:
        if call.ready:
            self._ready_elsewhere.call()
        if call.journal:
            self._journal_elsewhere.call()
        if call.spreads:
            self._spreads_elsewhere.call()
        if call.due is not None:
            self.sweeper.hear(CommitEffects(due=call.due))


def _nothing(_: CommitEffects) -> Wakeup:
    return NOTHING


def _forget(future: asyncio.Future[object]) -> None:
    """No caller waits for this answer; whatever it is, the lease ends by itself."""
    if not future.cancelled():
        future.exception()
