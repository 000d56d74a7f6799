"""One attempt in a slot, from the claim to what is said about it.

    alone      when nothing is left of an earlier attempt at the task
    brief      the prompt, what came before, where it works
    run        the agent, whatever kind it is; what it did well in a worktree of its own is brought home
    say        what follows for the task: done, failed, back to the pool, or nothing where the store has said it
    file       the receipt is known to the journal

What the store decides by itself (a limit, a stall, a lost lease) it decides in any case; the supervisor ends the agent
for real and leaves the verdict to the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any, TypeVar

import msgspec

from allswell.domain.condition import Condition, Known, Verdict, judge
from allswell.domain.event import Event
from allswell.domain.listing import TaskRow
from allswell.domain.names import Millis
from allswell.domain.presence import Post
from allswell.domain.question import Question
from allswell.domain.receipt import End
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.task import OPEN, raised
from allswell.domain.usage import Usage
from allswell.domain.usage_limit import UsageLimit
from allswell.domain.verification import AfterCheck
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused
from allswell.runtime.agents import Heard, Running, brief_for, make_run
from allswell.runtime.agents.unstarted import unstarted
from allswell.runtime.attempt import Outcome
from allswell.runtime.attempt.allowance import Allowance
from allswell.runtime.attempt.consequence import finish, report
from allswell.runtime.supervisor.asking import asking, nudging
from allswell.runtime.supervisor.plan import Plan, Slot
from allswell.runtime.supervisor.resets import wait_for
from allswell.runtime.supervisor.shared import Shared
from allswell.runtime.supervisor.telling import ended, too_late
from allswell.runtime.supervisor.worktree import TaskTree, tree_for

T = TypeVar("T")
_RECOVERING = 5_000
"""Milliseconds that a stalled agent has after SIGTERM: its task is taken back soon after in any case."""
_RESTING = 30.0
"""Seconds in which an agent that could not be started is not tried again."""
_AGAIN = 30_000


class Attendance:
    """An attempt that is under way in a slot."""

    def __init__(
        self,
        watch: Watch,
        plan: Plan,
        slot: Slot,
        lease: Lease,
        shared: Shared,
        earlier: Sequence[asyncio.Event] = (),
    ) -> None:
        self.slot = slot
        self.lease = lease
        self.verdict = Verdict(Condition.SPAWNING, "it is being started")
        self.known = Known()
        self.note = ""
        """The last check-in, in the agent's words."""
        self.gone = asyncio.Event()
        """Set when nothing of it runs any more, and its receipt is written."""
        self._earlier = earlier
        self._watch = watch
        self._plan = plan
        self._shared = shared
        self._voice = shared.voice
        self._clock = plan.clock
        self._allowance = Allowance(plan.quota, plan.clock)
        """For what it says in its output; what it says at its socket has one of its own."""
        self._began = (plan.clock.wall(), plan.clock.monotonic())
        self._tree: TaskTree | None = None
        """The worktree of its task, where it has one."""
        self._run: Running | None = None
        self._stop: tuple[str, End, int | None] | None = None
        self._limit: UsageLimit | None = None
        self._nudged = False
        self._checked_in_at: int | None = None
        self._filed = False
        """Whether the journal knows of the receipt."""
        self._told: set[asyncio.Task[Any]] = set()

    # --- the pipeline -------------------------------------------------------------------------------------------------

    async def attend(self) -> None:
        """From the claim to what is said about it; raises nothing that concerns this attempt alone."""
        lease = self.lease
        self._voice.took(self.slot.holder, lease.name, lease.attempt)
        try:
            await self._alone()
            with ExitStack() as turn:
                await self._shared.starting.acquire()
                turn.callback(self._shared.starting.release)
                outcome = await self._bring_home(await self._run_agent(await self._brief(turn.close)))
        except (AllswellError, OSError) as error:
            spec, home, never, order = self.slot.spec, self._plan.home, error, self._stop
            stop = None if order is None else order[:2]
            outcome = await _in_thread(lambda: unstarted(spec, lease, home, self._clock, never, stop))
        finally:
            self.gone.set()
            self._shared.gauged(self.slot.holder, None)
        self.known = msgspec.structs.replace(self.known, ended=outcome.reason)
        try:
            outcome = await self._say(outcome)
        except AllswellError as error:
            self._plan.tell(f"how {lease.agent} ended “{lease.name}” could not be told: {error}")
            if outcome.verification is None:  # else it claims to be done, and is not begun anew: a human is asked
                with contextlib.suppress(AllswellError):
                    await lease.release("supervisor_failed")
        finally:
            lease.over = True  # its agent is gone, so nobody renews it: what could not be told lapses
        await self._file(outcome)
        if self._told:
            await asyncio.wait(self._told, timeout=5.0)

    async def _alone(self) -> None:
        """Until nothing is left of earlier attempts at this task here: two at once would work in one folder."""
        for gone in self._earlier:
            self.verdict = Verdict(Condition.SPAWNING, "the last attempt is still being ended")
            await gone.wait()

    async def _run_agent(self, run: Running) -> Outcome:
        asking_ = asyncio.ensure_future(self._ask_in_time())
        try:
            return await run.run()
        finally:
            asking_.cancel()
            await asyncio.gather(asking_, return_exceptions=True)

    async def _brief(self, started: Callable[[], None]) -> Running:
        spec, lease, home = self.slot.spec, self.lease, self._plan.home
        folder = spec.cwd
        if spec.worktree:
            self._tree = await _in_thread(lambda: tree_for(spec, lease, home))
            await self._tree.check_out()
            folder = self._tree.folder
        if lease.attempt > 1:  # what the last one left is read from files
            brief = await _in_thread(lambda: brief_for(spec, lease, home, folder))
        else:
            brief = brief_for(spec, lease, home, folder)
        heard = Heard(self._hear_checkpoint, self._hear_limit, self._hear_usage, started)
        self._run = make_run(
            spec, brief, lease, home, heard, tower=self._shared.tower, quota=self._plan.quota, clock=self._clock
        )
        if self._stop is not None:  # ordered while it was being prepared
            raise Refused("stopped", f"it was stopped before it began: {self._stop[0]}", where="supervisor")
        return self._run

    async def _bring_home(self, outcome: Outcome) -> Outcome:
        """What was done well in a worktree of its own is put where a person finds it, before anybody hears of it."""
        if self._tree is None or outcome.end is not End.DONE or self.lease.lost is not None:
            return outcome  # whoever has the task now finds the worktree as it is
        began_at, began = self._began
        try:
            kept, path = await self._tree.bring_home(outcome, began_at, self._clock.monotonic() - began)
        except (AllswellError, OSError) as error:
            trouble = f"the work in {self._tree.folder} could not be put on its branch, and stays there: {error}"
            return replace(outcome, warnings=(*outcome.warnings, trouble))
        return replace(outcome, receipt=kept, receipt_path=path)

    async def _say(self, outcome: Outcome) -> Outcome:
        """Say what follows, then tell it as the store has taken it: what comes too late is refused, and kept (O10)."""
        lease = self.lease
        followed: AfterCheck | None = None
        try:
            if outcome.said is None and not lease.over:
                followed = await (self._conclude(outcome) if lease.lost is None else self._offer(outcome))
            final = outcome.end in (End.FAILED, End.SIGNALLED) and await self._has_ended()
            told = ended(lease.agent, lease.name, outcome, followed, final=final)
        except LeaseLost as refused:
            told = too_late(lease.agent, lease.name, outcome, refused.reason)
            if outcome.end is End.DONE:
                outcome = replace(outcome, end=End.LEASE_LOST, reason=refused.reason)
        self._plan.tell(told)
        if outcome.end is End.FAILED:
            self._voice.not_handed_on(self.slot.spec)
        elif outcome.end in (End.ASKED, End.UNVERIFIED, End.COSTLY):
            for question in await self._watch.questions():
                self._voice.asks(question, about=lease.task)
        return outcome

    async def _has_ended(self) -> bool:
        """Whether the task is over, and not only this attempt at it."""
        row = await self._watch.task(self.lease.task)
        return row is not None and row.task.state != OPEN

    async def _offer(self, outcome: Outcome) -> AfterCheck | None:
        """What an agent brought that had ended by itself when its lease was lost."""
        run = self._run
        if outcome.end is End.DONE or (outcome.by_itself and outcome.exit_code == 0 and outcome.failure is None):
            return await finish(self.lease, outcome, None if run is None else run.result)
        if run is not None and run.failure is not None:
            await self.lease.fail(run.failure)

        return None

    async def _conclude(self, outcome: Outcome) -> AfterCheck | None:
        lease, run, limit = self.lease, self._run, self._limit
        limited = limit is not None and (limit.sure or outcome.end is End.FAILED)
        if outcome.end in (End.DONE, End.UNVERIFIED):
            return await finish(lease, outcome, None if run is None else run.result)
        if limited and limit is not None and self._plan.park_limits:
            await self._park(limit)
        elif outcome.end is End.STALLED:
            await lease.recover()
        elif outcome.end is End.NOT_STARTED:
            await self._not_started(outcome)
        elif outcome.end is End.INTERRUPTED:
            await lease.release("supervisor_stopped")
        elif run is not None and run.failure is not None and not outcome.over_cost:
            await lease.fail(run.failure)
        else:
            await report(lease, outcome)
            self._filed = True
        return None

    async def _not_started(self, outcome: Outcome) -> None:
        """What is wrong with the task is its failure; what is wrong with the agent costs the task no attempt."""
        error = outcome.error
        if isinstance(error, Refused) and error.code in ("bad_command", "bad_snapshot_name"):
            await self.lease.fail(Failure(ErrorClass.VALIDATION, str(error)))
            return
        self.slot.rests_until = asyncio.get_running_loop().time() + _RESTING
        await self.lease.release("not_started", delay=_AGAIN)

    async def _park(self, limit: UsageLimit) -> None:
        """A limit is weather: its account is parked, and the task goes back with no attempt spent."""
        account = self.slot.spec.limit_of()
        delay = wait_for(limit, self._clock.wall(), self._plan.limit_pause)
        told = {"account": account, "said": limit.said, "until": await self._watch.now() + delay}
        await self._watch.park(account, delay)
        await self._notice("usage_limit", **told)
        await self.lease.release("usage_limit")

    async def _file(self, outcome: Outcome) -> None:
        lease, receipt = self.lease, outcome.receipt
        with contextlib.suppress(AllswellError):
            if outcome.end is not End.DONE and outcome.result is not None and outcome.result.ending.value == "stopped":
                shown, killed = self.verdict.evidence, outcome.result.killed
                await self._notice("agent_stopped", reason=outcome.reason, evidence=shown, killed=killed)
            if receipt is not None and not self._filed:
                await lease.keep(receipt.id, receipt.status.value, str(outcome.receipt_path or ""))
            for reached in () if outcome.expense is None else await lease.hold_to_budgets(self._plan.budgets):
                self._plan.tell(f"{reached}; nothing more is begun under it: `allswell questions`")
        for warning in outcome.warnings:
            self._plan.tell(f"{lease.agent}: {warning}")

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _ask_in_time(self) -> None:
        """Ask at each multiple of the interval strictly before the limit (O2)."""
        every, wait = self.lease.asks
        loop = asyncio.get_running_loop()
        began = loop.time()
        number = 1
        while number * every < (loop.time() - began) * 1_000 + self.lease.until_limit:
            await asyncio.sleep(max(began + number * every / 1_000 - loop.time(), 0))
            if self.verdict.condition in (Condition.FOR_HUMAN, Condition.FOR_AGENT):
                self._tell(self.lease.checkin())  # it has asked, and cannot do more than wait
            self.ask(asking(self.lease.task, wait, self.lease.until_limit), "checkin_asked")
            number += 1

    def ask(self, words: str, kind: str) -> int:
        """Ask for a check-in in every way that the agent can hear; the moment, to see later whether it has answered."""
        moment = self._clock.monotonic()
        if self._run is not None:
            ways = ", ".join(self._run.ask(words))
            self._tell(self._notice(kind, heard_by=ways, evidence=self._judged().evidence))
        return moment

    @property
    def run(self) -> Running | None:
        """The agent at work; None where it is not yet, or no more."""
        return self._run if self.known.ended is None else None

    @property
    def is_over(self) -> bool:
        """Whether its agent has ended."""
        return self.known.ended is not None

    def has_answered(self, since: int) -> bool:
        """Whether it has given a check-in since then."""
        answer = None if self._run is None else self._run.standing.answer
        return answer is not None and answer.at >= since

    def _hear_checkpoint(self, text: str) -> None:
        self._tell(self._check_in(text))

    async def _check_in(self, text: str) -> None:
        self.note = text
        await self._allowance.check_in(self.lease, text)
        if self._run is not None:
            self._run.answered(text)

    def _hear_limit(self, limit: UsageLimit) -> None:
        self._limit = limit
        if limit.sure and self._plan.park_limits:
            self.known = msgspec.structs.replace(self.known, for_limit=limit.said)
            self.stop(f"usage limit: {limit.said}", End.INTERRUPTED)

    def _hear_usage(self, usage: Usage) -> None:
        self._shared.gauged(self.slot.holder, usage)

    # --- from the supervisor ------------------------------------------------------------------------------------------

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """End the agent for real."""
        self._stop = (reason, end, grace)
        if self._run is not None:
            self._run.stop(reason, end, grace=grace)

    def look(self, row: TaskRow | None, question: Question | None) -> None:
        """See how the store has its lease, and how the agent is; what is new is told."""
        held = None if row is None else row.lease
        if self.known.ended is None and not self.lease.over:
            if held is None or held.token != self.lease.token:
                self.stop("the task is not its holder's any more", End.LEASE_LOST)
            elif held.stalled_at is not None and not self.known.stalled:
                self.known = msgspec.structs.replace(self.known, stalled=True)
                self.stop("it missed too many check-ins", End.STALLED, grace=_RECOVERING)
        self._voice.asks(question)
        for_human = None if question is None else f"{question.id}: {question.text[:200]}"
        for_agent = None if self._run is None else self._run.waits_for
        self.known = msgspec.structs.replace(self.known, for_human=for_human, for_agent=for_agent)
        if held is not None and held.checkin_at is not None and held.checkin_at != self._checked_in_at:
            self._checked_in_at = held.checkin_at
            self.note = held.note
            if self._run is not None:  # it may have come another way than by its socket
                self._run.answered(held.note)
        verdict = self._judged()
        if verdict.condition is not self.verdict.condition:
            self._tell(self._notice("agent_state", state=verdict.condition.value, evidence=verdict.evidence))
            if verdict.condition is Condition.QUIET and not self._nudged:
                self._nudged = True
                self.ask(nudging(self.lease.task, verdict.evidence), "agent_nudged")
            elif verdict.condition is Condition.WORKING:
                self._nudged = False
        self.verdict = verdict

    def _judged(self) -> Verdict:
        standing = None if self._run is None else self._run.standing
        if standing is None and self.known.ended is None:
            return self.verdict
        return judge(standing, self.known, self._clock.monotonic())

    def post(self, now: Millis) -> Post:
        """What can be looked at."""
        spec, lease, standing = self.slot.spec, self.lease, None if self._run is None else self._run.standing
        since, idle = now - self._clock.monotonic(), raised(spec.idle, lease.idle_override)
        proof = None if standing is None else standing.progress
        return Post(
            *(spec.name, self.slot.holder, spec.kind, spec.role),
            *(lease.task, lease.name, lease.token),
            *(self.verdict.condition.value, self.verdict.evidence),
            None if proof is None else Millis(min(since + proof.at, now)),
            idle_at=None if standing is None or idle is None else Millis(since + standing.idle_at(idle)),
        )

    async def _notice(self, kind: str, **data: object) -> None:
        lease = self.lease
        await self._watch.notice(Event(kind, lease.task, lease.run, lease.agent, lease.token, data))

    def _tell(self, saying: Coroutine[Any, Any, object]) -> None:
        """Say something to the store beside everything else; that it cannot be said stops nobody."""

        async def said() -> None:
            with contextlib.suppress(AllswellError):
                await saying

        task = asyncio.ensure_future(said())
        self._told.add(task)
        task.add_done_callback(self._told.discard)


async def _in_thread(work: Callable[[], T]) -> T:
    return await asyncio.get_running_loop().run_in_executor(None, work)
