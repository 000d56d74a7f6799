"""One attempt in a slot, from the claim to what is said about it.

    alone      when nothing is left of an earlier attempt at the task
    brief      the prompt, what came before, where it works
    run        the agent, whatever kind it is; what it did well in a worktree of its own is brought home
    say        what follows for the task: done, failed, ready again, or nothing where the store has said it
    file       the receipt is known to the journal

What the store decides by itself (a limit, a stall, a lost lease) it decides in any case; the supervisor ends the agent
for real and leaves the verdict to the store.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import msgspec

from allswell.domain.agents.evidence import AGENT_REPEATS, EvidenceKind, EvidenceState, ProviderRefusal
from allswell.domain.agents.handover import NeedDone
from allswell.domain.agents.refusal import UsageLimit
from allswell.domain.agents.session import BEGINNINGS, Warmth
from allswell.domain.agents.status import (
    EXPLAINED,
    AgentCondition,
    AgentSlot,
    AgentVerdict,
    AttemptFacts,
    Survivors,
    in_words,
    judge,
)
from allswell.domain.agents.usage import Usage
from allswell.domain.duration import show
from allswell.domain.ids import Millis, TaskId
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.question import SKIP, AnswerAction, Option, Question, without_output
from allswell.domain.receipts.receipt import End
from allswell.domain.rules.event import Event
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import OPEN, State, TaskRow, raised
from allswell.domain.task.submit import NAME_MAX
from allswell.engine.ids import task_for_key
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost, Refused, Unavailable
from allswell.runtime.agents import CommandRun, FunctionRun, Running, find_function, prepare_order
from allswell.runtime.attempt import AttemptOutcome, SharedSampler
from allswell.runtime.attempt.control import QuotaTracker
from allswell.runtime.attempt.launch import OutputListeners, brief_for, has_refused_session, is_gone, told_of_warmth
from allswell.runtime.attempt.outcome import (
    OutcomeReport,
    ask_at_end,
    finish,
    offer,
    refused_receipt,
    report,
    tell_expense,
    was_taken_away,
)
from allswell.runtime.attempt.record import settled_alone
from allswell.runtime.attempt.runner import FOLDER_ANSWERS, in_thread
from allswell.runtime.attempt.warm import REFUSED
from allswell.runtime.calls import in_time, is_async
from allswell.runtime.supervisor.console import ConsoleReporter, ended, given_back, handed_over, met_limit, too_late
from allswell.runtime.supervisor.dispatch import Slot, SupervisorPlan
from allswell.runtime.supervisor.usage import Accounts
from allswell.runtime.supervisor.worktrees import ConflictingNeed, NeedWork, TaskTree, tree_for
from allswell.runtime.workspace.worktree import in_worktree
from allswell.timing.clock import look_at

# The words in which an agent is asked for a check-in; both forms of the original protocol are understood (O2, O3).

FAILED_PAUSE = 60_000
"""Milliseconds until a task is taken again whose attempt the supervisor could not attend to: what one did, the next
one will do, and each may cost money."""
_FORM = """CHECKPOINT: {task}
Status: ...
Completed: ...
Remaining: ...
Files Modified: ...
Estimated Progress: ...%"""


def asking(task: str, wait: int, left: int | None) -> str:
    """The reminder for an agent that owes a check-in; `left` is None if it has no limit."""
    time = "you have no limit" if left is None else f"{show(left)} of your time are left"
    return (
        f"Please check in on {task}: answer within {show(wait)}; {time}."
        f' Run `allswell checkin "what you have done" --progress 0.5`, or write:\n{_FORM.format(task=task)}'
    )


def nudging(task: str, evidence: str) -> str:
    """The reminder for an agent that has become quiet."""
    return (
        f"Allswell has seen no progress on {task} ({evidence}). If you are at work, say so:"
        f' `allswell checkin "what you are doing"`, or write:\n{_FORM.format(task=task)}'
    )


def collecting(task: str, why: str, wait: int) -> str:
    """The message to every agent at work when the context or the session runs out."""
    return f"Please check in now ({why}): answer within {show(wait)} with\n{_FORM.format(task=task)}"


# What the attempts of one supervisor share.


@dataclass(frozen=True)
class SharedServices:
    """What the attempts of one supervisor share."""

    tower: SharedSampler
    starting: asyncio.Semaphore
    """So many are being started at a time: two hundred at once would keep the supervisor from renewing its leases."""
    gauged: Callable[[str, Usage | None], None]
    """Takes what an agent reports of its own usage; nothing, once it has ended."""
    voice: ConsoleReporter
    accounts: Accounts


_RECOVERING = 5_000
"""Milliseconds that a stalled agent has after SIGTERM: its task is taken back soon after in any case."""
_RESTING = 30.0
"""Seconds in which an agent that could not be started is not tried again."""
_AGAIN = 30_000
_NEEDS_TOLD = 20
"""How many needed tasks a brief names at most."""
_NEEDS_MOST = 1_000
"""How many tasks are looked at for what they have done."""
_QUESTION = 4_000
"""Characters of a question about a conflict, at most."""
NEEDS_CONFLICT = "needs_conflict"
"""Why a task is given back whose needs' work is to be merged by another agent."""
_RESOLVER_KEY = "conflict of {}"
RESOLVE = """The work of several tasks does not merge by itself; another task needs all of it, and waits for you.

Your folder is a git worktree. It holds their branches merged, as far as that went, and the first conflict: in the
files, between marks (<<<<<<< and >>>>>>>). Resolve it so that what both sides wanted holds, and take the marks away.
Then merge the branches that are not merged yet (git merge BRANCH), in their order, and have the tests pass. What is not
committed when you end is committed as the merge. Change nothing else.
"""
"""What the agent of `conflict_role` is asked to do; which branches and files it is about, its handover says."""
BEGIN = Option("begin", "Begin without it: the agent reads what is missing", AnswerAction.RETRY)
CONFLICT_OPTIONS = (
    Option("retry", "Merge again: it has been resolved", AnswerAction.RETRY),
    BEGIN,
    SKIP,
)
_LOGIN_TRIES = 2
"""A login that a client was refused so often is refused: the first time it may have renewed its token."""


def resolver_of(task: TaskId) -> TaskId:
    """The task in which the conflict of a task's needs is resolved: there is one at most."""
    return task_for_key(_RESOLVER_KEY.format(task))


class AttemptSupervisor:
    """An attempt that is under way in a slot."""

    def __init__(
        self,
        watch: Watch,
        plan: SupervisorPlan,
        slot: Slot,
        lease: Lease,
        shared: SharedServices,
        earlier: Sequence[asyncio.Event] = (),
    ) -> None:
        self.slot = slot
        self.lease = lease
        self.verdict = AgentVerdict(AgentCondition.SPAWNING, "it is being started")
        self.known = AttemptFacts()
        self.note = ""
        """The last check-in, in the agent's words."""
        self.gone = asyncio.Event()
        """Set when nothing of it runs any more, and its receipt is written."""
        self.survivors: Survivors | None = None
        """Who still runs of it, once it is over: then its slot takes nothing."""
        self._earlier = earlier
        self._watch = watch
        self._plan = plan
        self._shared = shared
        self._voice = shared.voice
        self._clock = plan.clock
        self._allowance = QuotaTracker(plan.quota, plan.clock)
        """For what it says in its output; what it says at its socket has one of its own."""
        self._began = look_at(plan.clock)
        self._tree: TaskTree | None = None
        """The worktree of its task, where it has one."""
        self._run: Running | None = None
        self._stop: tuple[str, End, int | None] | None = None
        self._limit: UsageLimit | None = None
        self._refusal: ProviderRefusal | None = None
        """What the provider has refused its client last, as far as it was seen to."""
        self._met_limit = ""
        """The usage limit that it has met, for which its account is parked."""
        self._account_asked = False
        """Whether it has ended because its provider refuses its account, which a human is asked about."""
        self._given_up = False
        """Whether that was its login, for which it was ended."""
        self._works: Sequence[NeedWork] = ()
        """What its needs have brought."""
        self._conflict: ConflictingNeed | None = None
        """Why its agent was not started: the work of a need does not merge."""
        self._resolver: TaskId | None = None
        """The task that was made of that, or had been."""
        self._unresolved: TaskId | None = None
        """The same, where it had been made before."""
        self._remark = ""
        """What was said of how it is watched."""
        self._nudged = False
        self._checked_in_at: int | None = None
        self._filed = False
        """Whether the journal knows of the receipt."""
        self._told: set[asyncio.Task[Any]] = set()
        self._report = OutcomeReport(lease, plan.home, plan.tell, plan.clock)
        """The report for the store when the attempt has ended, kept until the store has answered."""

    # --- the pipeline -------------------------------------------------------------------------------------------------

    async def attend(self) -> None:
        """From the claim to what is said about it; raises nothing that concerns this attempt alone."""
        try:
            await self._attend()
        finally:
            self._report.close()

    async def _attend(self) -> None:
        lease = self.lease
        self._voice.took(self.slot.holder, lease.name, lease.attempt)
        try:
            await self._alone()
            with ExitStack() as turn:
                await self._shared.starting.acquire()
                turn.callback(self._shared.starting.release)
                outcome = await self._bring_home(await self._run_warm_or_cold(turn.close))
        except ConflictingNeed as conflict:
            self._conflict = conflict
            outcome = AttemptOutcome(End.ASKED, str(conflict))
        except (AllswellError, OSError) as error:
            reason, end = (str(error), End.NOT_STARTED) if self._stop is None else self._stop[:2]
            refused = error if isinstance(error, AllswellError) else None
            standing, elapsed = EvidenceState(self._clock.monotonic()), self._clock.monotonic() - self._began.monotonic
            never = AttemptOutcome(end, reason, elapsed=elapsed, standing=standing, error=refused)
            outcome = await self._receipted(never)
        finally:
            self.gone.set()
            self._shared.gauged(self.slot.holder, None)
        self.survivors = outcome.survivors
        self.known = msgspec.structs.replace(self.known, ended=outcome.reason)
        lease.send = self._report.send
        try:
            outcome = await self._say_or_fail(outcome)
            await self._file(outcome)
        except Unavailable:
            pass  # its supervisor stops while the store is away: the report is left on disk
        finally:
            lease.over = True  # its agent is gone, so it is not renewed
        known = outcome.warning if outcome.end is End.DONE else ""  # by the line about its end
        for warning in outcome.warnings:
            if warning not in (known, self._remark):
                self._plan.tell(f"{lease.agent}: {warning}")
        if self._told:
            await asyncio.wait(self._told, timeout=5.0)

    async def _say_or_fail(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Say what follows; a result that the store does not take is the attempt's failure, and is not asked for again.

        Where the attempt claims to be done and that was verified, nothing more is said: a human is asked when its
        lease lapses.
        """
        lease = self.lease
        try:
            return await self._say(outcome)
        except Unavailable:
            raise
        except AllswellError as error:
            self._plan.tell(f"how {lease.agent} ended “{lease.name}” was refused: {error}")
            with contextlib.suppress(LeaseLost, Refused):
                if isinstance(error, Refused) and outcome.end is End.DONE and outcome.verification is None:
                    await lease.fail(Failure(ErrorClass.VALIDATION, f"its result was refused: {error.message}"))
                elif outcome.verification is None:
                    await lease.release("supervisor_failed", delay=FAILED_PAUSE)
        return outcome

    async def _alone(self) -> None:
        """Until nothing is left of earlier attempts at this task here: two at once would work in one folder."""
        for gone in self._earlier:
            self.verdict = AgentVerdict(AgentCondition.SPAWNING, "the last attempt is still being ended")
            await gone.wait()

    async def _run_agent(self, run: Running) -> AttemptOutcome:
        asking_ = asyncio.ensure_future(self._ask_in_time())
        try:
            return await run.run()
        finally:
            asking_.cancel()
            await asyncio.gather(asking_, return_exceptions=True)

    async def _run_warm_or_cold(self, started: Callable[[], None]) -> AttemptOutcome:
        """The agent's attempt; made once more with a new session where its client refuses to go on with the old one."""
        run = await self._brief(started)
        outcome = await self._run_agent(run)
        if self._stop is not None or isinstance(run, FunctionRun):
            return outcome
        if await has_refused_session(run.order, outcome, self.lease, self._plan.home):
            return await self._run_agent(await self._brief(started, cold=REFUSED))
        return outcome

    async def _brief(self, started: Callable[[], None], *, cold: str = "") -> Running:
        spec, lease, home = self.slot.spec, self.lease, self._plan.home
        folder = spec.cwd
        if spec.worktree:
            self._tree = await in_worktree(lambda: tree_for(spec, lease, home))
            await self._tree.check_out()
        works = await self._needs_done()
        done = [work.need for work in works]
        if self._tree is not None:
            if self._plan.bring_needs and works:
                done = await self._bring_needs(self._tree, works)
            tree = self._tree
            folder = await in_worktree(lambda: tree.folder)
        done = done[:_NEEDS_TOLD]
        if lease.attempt > 1 or lease.granted.task.spec.retry_of is not None:  # what was left is read from files
            brief = await in_thread(lambda: brief_for(spec, lease, home, folder, cold=cold, done=done))
        else:
            brief = brief_for(spec, lease, home, folder, done=done)
        self._tell_warmth(brief.warmth)
        self._check_goes_on()
        listeners = OutputListeners(self._hear_checkpoint, self._hear_limit, self._hear_usage)
        if spec.kind == "function" and is_async(find_function(spec)):
            self._run = FunctionRun(spec, brief, lease, home, started, self._clock)
        else:
            try:
                order = await in_time(
                    partial(prepare_order, spec, brief, lease), FOLDER_ANSWERS, f"the folder {folder}"
                )
            except Unavailable:
                brief.remove()  # it may still be writing
                raise
            tower, quota = self._shared.tower, self._plan.quota
            self._run = CommandRun(
                *(spec, brief, order, lease, home, listeners, started), tower=tower, quota=quota, report=self._report
            )
        return self._run

    async def _needs_done(self) -> list[NeedWork]:
        """What the task needs and got, in its order; what the store or this machine cannot say is left out.

        For a task that was split stand its parts, and for one that has left no branch what it needed itself.
        """
        brings = self._plan.bring_needs and self._tree is not None
        needs = self.lease.granted.task.spec.needs
        works: dict[TaskId, NeedWork] = {}
        named, left, seen = {*needs}, [*reversed(needs)], set[TaskId]()
        while left and len(seen) < (_NEEDS_MOST if brings else _NEEDS_TOLD):
            task = left.pop()
            if task in seen:
                continue
            seen.add(task)
            with contextlib.suppress(AllswellError):
                row = await self._watch.task(task)
                if row is not None and row.task.state == State.SPLIT:
                    left += reversed(row.task.record.replaced_by)
                    named |= {*row.task.record.replaced_by} if task in named else set()
                work = await self._work_of(task, with_result=len(works) < _NEEDS_TOLD)
                if row is None or work is None:
                    continue
                if work.branch is None and brings:
                    left += reversed(row.task.spec.needs)
                if work.branch is not None or task in named:
                    works[task] = work
        return [*works.values()]

    async def _bring_needs(self, tree: TaskTree, works: Sequence[NeedWork]) -> list[NeedDone]:
        """Have the task begin with what its needs have done; what the brief says of them."""
        lease, role, last = self.lease, self._plan.conflict_role, self.lease.handover
        begins = last is not None and last.reason == "asked" and last.answer == BEGIN.key
        if role and lease.role == role:
            return await tree.bring_needs(works, check=self._check_goes_on, on_conflict="keep")
        if role and (resolved := await self._work_of(resolver_of(lease.task))) is not None:
            works = [resolved, *works]
        self._works = works
        return await tree.bring_needs(works, check=self._check_goes_on, on_conflict="leave" if begins else "ask")

    async def _work_of(self, task: TaskId, *, with_result: bool = True) -> NeedWork | None:
        """What a task has brought; None where it is not done."""
        row = await self._watch.task(task)
        if row is None or row.task.state != State.DONE:
            return None
        kept = await in_thread(partial(self._plan.home.receipts.last_of, task))
        branch = None if kept is None else kept.branch
        result = await self._watch.result(task) if with_result else None
        return NeedWork(NeedDone(task, row.task.name, branch.name if branch else "", result), branch)

    def _check_goes_on(self) -> None:
        """Refuse to go on with an attempt that is over, or was stopped while it was being prepared."""
        if self._stop is not None:
            raise Refused("stopped", f"it was stopped before it began: {self._stop[0]}", where="supervisor")
        if is_gone(self.lease):
            raise Refused("stopped", "the agent no longer holds the task", where="supervisor")

    def _tell_warmth(self, warmth: Warmth) -> None:
        if (event := told_of_warmth(self.lease, warmth)) is not None:
            self._tell(self._watch.notice(event))
        self._voice.session(self.lease.agent, self.lease.name, warmth)

    async def _bring_home(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """What was done well in a worktree of its own is put where a person finds it, before its end is reported."""
        if self._tree is None or outcome.end is not End.DONE or self.lease.lost is not None:
            return outcome  # the task's next holder finds the worktree as it is
        elapsed = self._clock.monotonic() - self._began.monotonic
        try:
            kept, path = await self._tree.bring_home(outcome, self._began.wall, elapsed)
        except (AllswellError, OSError) as error:
            trouble = f"the work in {self._tree.folder} could not be put on its branch, and stays there: {error}"
            return replace(outcome, warnings=(*outcome.warnings, trouble))
        return replace(outcome, receipt=kept, receipt_path=path)

    async def _say(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """Say what follows, then tell it as the store has taken it: what comes too late is refused, and kept (O10)."""
        lease = self.lease
        followed: AfterCheck | None = None
        try:
            await self._report.send_pending()  # what could not be reported before: its agent's words, its cost
            outcome = await tell_expense(lease, outcome)
            if outcome.said is None and not lease.over:
                taken = was_taken_away(lease, outcome)
                followed = await (offer(lease, outcome) if taken else self._conclude(outcome))
            final = outcome.end in (End.FAILED, End.SIGNALLED) and await self._has_ended()
            line = ended(lease.agent, lease.name, outcome, followed, final=final)
            if self._met_limit and outcome.by_itself:
                line = met_limit(lease.agent, lease.name, self._met_limit, outcome)
            if self._resolver is not None:
                line = handed_over(lease.agent, lease.name, outcome.reason, self._plan.conflict_role, self._resolver)
            if self._account_asked:
                line = given_back(lease.agent, lease.name, self.slot.spec.limit_of(), outcome)
        except LeaseLost as refused:
            line = too_late(lease.agent, lease.name, outcome, refused.reason)
            if outcome.end is End.DONE:
                outcome = await self._came_too_late(outcome, refused.reason)
        self._plan.tell(line)
        if outcome.end is End.FAILED:
            self._voice.not_handed_on(self.slot.spec)
        denied = outcome.failure is not None and outcome.failure.denied is not None
        if denied or outcome.end in (End.ASKED, End.UNVERIFIED, End.COSTLY):
            with contextlib.suppress(Unavailable):  # it is asked all the same
                for question in await self._watch.questions():
                    self._voice.asks(question, about=lease.task)
        return outcome

    async def _came_too_late(self, outcome: AttemptOutcome, why: str) -> AttemptOutcome:
        """An attempt that was done, and whose task is another's by now: its receipt says so, too."""
        home, receipt, late = self._plan.home, outcome.receipt, replace(outcome, end=End.LEASE_LOST, reason=why)
        if receipt is None:
            return await self._receipted(late)
        kept = await in_thread(lambda: refused_receipt(home, receipt, why))
        return replace(late, receipt=kept or receipt)

    async def _receipted(self, outcome: AttemptOutcome) -> AttemptOutcome:
        """An outcome with its receipt, where there is none yet: also of an attempt that ended before its agent began.

        What became of an attempt stands in one place, however early it ended.
        """
        spec, home, began_at = self.slot.spec, self._plan.home, self._began.wall
        argv = spec.argv or (spec.function,)
        return await in_thread(
            lambda: settled_alone(*(self.lease, home, self._clock, outcome), argv=argv, cwd=spec.cwd, began_at=began_at)
        )

    async def _has_ended(self) -> bool:
        """Whether the task is over, and not only this attempt at it, as far as the store can be asked."""
        with contextlib.suppress(Unavailable):
            row = await self._watch.task(self.lease.task)
            return row is not None and row.task.state != OPEN
        return False

    async def _conclude(self, outcome: AttemptOutcome) -> AfterCheck | None:
        lease, limit = self.lease, self._limit
        if self._conflict is not None:
            await self._settle_conflict(self._conflict)
            return None
        limited = limit is not None and (limit.sure or outcome.end is End.FAILED)
        account_refused = self._refused_account(outcome)
        if self._was_answered():
            self._shared.accounts.answered(self.slot.spec.limit_of())
        if outcome.end in (End.DONE, End.UNVERIFIED):
            return await finish(lease, outcome)
        if limited and limit is not None and self._plan.park_limits:
            await self._park(limit)
        elif account_refused is not None and self._plan.park_limits:
            await self._ask_about_account(*account_refused)
        elif outcome.end is End.ASKED:
            await ask_at_end(lease, outcome)
        elif outcome.end is End.STALLED:
            await lease.recover()
        elif outcome.end is End.NOT_STARTED:
            await self._not_started(outcome)
        elif outcome.end is End.INTERRUPTED:
            await lease.release("supervisor_stopped")
        elif outcome.failure is not None and not outcome.over_cost:
            await lease.fail(outcome.failure)
        else:
            await report(lease, outcome)
            self._filed = True
        return None

    async def _settle_conflict(self, conflict: ConflictingNeed) -> None:
        """Hand work that does not merge over, once, or ask: no agent was started, so no attempt is spent."""
        resolver = await self._report.wait_for(self._hand_over_conflict)
        if resolver is not None:
            self._resolver = resolver
            await self.lease.release(NEEDS_CONFLICT, delay=_AGAIN, awaits=resolver)
            return
        need, tried = conflict.need, f" {self._unresolved} has not resolved that." if self._unresolved else ""
        text = (
            f"“{self.lease.name}” needs “{need.name}” ({need.task}), and the branch {need.branch} does not merge into"
            f" what it begins with: {conflict.conflict}.{tried} No agent was started. Merge it where the task begins,"
            f" in {conflict.folder} or in the repository, and answer `retry`; or let the agent begin without it."
        )
        await self.lease.ask(text[:_QUESTION], CONFLICT_OPTIONS)

    async def _hand_over_conflict(self) -> TaskId | None:
        """The task that resolves the conflict, made if there was none; None where it has ended, or there is no role."""
        task, role = self.lease.granted.task, self._plan.conflict_role
        if not role or task.role == role:
            return None
        row = await self._watch.task(resolver_of(task.id))
        if row is not None:
            self._unresolved = row.task.id
            return row.task.id if row.task.state == OPEN else None
        with contextlib.suppress(Refused):
            return await self._watch.submit(
                f"resolve what {task.name} needs"[:NAME_MAX],
                payload=RESOLVE,
                role=role,
                priority=task.priority,
                needs=[work.need.task for work in self._works],
                if_need_fails="run",
                run=task.run,
                key=_RESOLVER_KEY.format(task.id),
            )
        return None

    async def _not_started(self, outcome: AttemptOutcome) -> None:
        """What is wrong with the task is its failure; what is wrong with the agent costs the task no attempt."""
        error = outcome.error
        if isinstance(error, Refused) and error.code in ("bad_command", "bad_snapshot_name"):
            await self.lease.fail(Failure(ErrorClass.VALIDATION, str(error)))
            return
        self.slot.rests_until = asyncio.get_running_loop().time() + _RESTING
        await self.lease.release("not_started", delay=_AGAIN)

    async def _park(self, limit: UsageLimit) -> None:
        """A limit is no failure of the task: its account is parked, and the task goes back with no attempt spent."""
        spec = self.slot.spec
        until = await self._report.wait_for(lambda: self._shared.accounts.park(spec, limit))
        self._notice("usage_limit", account=spec.limit_of(), said=limit.said, until=until)
        self._met_limit = limit.said
        await self.lease.release("usage_limit")
        self._tell(self._shared.accounts.tell_parked(spec, until))

    async def _ask_about_account(self, cause: ErrorClass, message: str) -> None:
        """The provider refuses the account: one question for all its tasks, and this one goes back as it was."""
        spec = self.slot.spec
        question = await self._report.wait_for(lambda: self._shared.accounts.ask(spec, cause, message))
        self._account_asked = True
        await self.lease.release("account_refused")
        self._voice.asks(question)

    def _refused_account(self, outcome: AttemptOutcome) -> tuple[ErrorClass, str] | None:
        """Why the provider refuses the whole account, if that is how it ended."""
        refusal, failure = self._refusal, outcome.failure
        if self._given_up and refusal is not None:
            return refusal.error, refusal.message or refusal.words
        if failure is not None and failure.account and outcome.by_itself:
            return failure.error, failure.message
        return None

    def _was_answered(self) -> bool:
        """Whether the provider has answered it: it has done more than to begin."""
        last = None if self._run is None else self._run.standing.last.get(EvidenceKind.PROTOCOL)
        return last is not None and last.what not in BEGINNINGS

    async def _file(self, outcome: AttemptOutcome) -> None:
        lease, receipt = self.lease, outcome.receipt
        stopped = outcome.result is not None and outcome.result.ending.value == "stopped"
        if outcome.end is not End.DONE and outcome.result is not None and stopped and outcome.survivors is None:
            shown, killed = self.verdict.evidence, outcome.result.killed
            self._notice("agent_stopped", reason=outcome.reason, evidence=shown, killed=killed)
        with contextlib.suppress(LeaseLost, Refused):
            if receipt is not None and not self._filed:
                await lease.keep(receipt.id, receipt.status.value, str(outcome.receipt_path or ""))
        with contextlib.suppress(AllswellError):
            for reached in () if outcome.expense is None else await lease.hold_to_budgets(self._plan.budgets):
                self._plan.tell(f"{reached}; nothing more is begun under it: `allswell questions`")

    # --- asking -------------------------------------------------------------------------------------------------------

    async def _ask_in_time(self) -> None:
        """Ask at each multiple of the interval strictly before the limit (O2)."""
        every, wait = self.lease.asks
        loop = asyncio.get_running_loop()
        began = loop.time()
        number = 1
        while number * every < (loop.time() - began) * 1_000 + self.lease.until_limit:
            await asyncio.sleep(max(began + number * every / 1_000 - loop.time(), 0))
            if self.verdict.condition in (
                AgentCondition.FOR_HUMAN,
                AgentCondition.FOR_AGENT,
                AgentCondition.FOR_PROVIDER,
            ):
                self._tell(self.lease.checkin())  # it has asked, and cannot do more than wait
            left = None if self.lease.limit is None else self.lease.until_limit
            self.ask(asking(self.lease.task, wait, left), "checkin_asked")
            number += 1

    def ask(self, words: str, kind: str) -> int:
        """Ask for a check-in in every way that the agent can hear; the moment, to see later whether it has answered."""
        moment = self._clock.monotonic()
        if self._run is not None:
            ways = ", ".join(self._run.ask(words))
            self._notice(kind, heard_by=ways, evidence=self._judged().evidence)
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
        if self._limit is None or self._limit.at is None:  # an instant is not replaced by the same in words
            self._limit = limit
        if limit.sure and self._plan.park_limits:
            self.known = msgspec.structs.replace(self.known, for_limit=limit.said)
            self.stop(f"usage limit: {limit.said}", End.INTERRUPTED)

    def _hear_refusal(self, refusal: ProviderRefusal) -> None:
        """The provider refuses, and the client tries again: once is enough to begin nothing else of its account."""
        self._refusal = refusal
        if not self._plan.park_limits:
            return
        if refusal.error in (ErrorClass.AUTH, ErrorClass.PERMANENT) and (refusal.attempt or 1) >= _LOGIN_TRIES:
            self._given_up = True
            self.stop(f"its account is refused: {refusal.words}", End.INTERRUPTED)
        elif refusal.error in (ErrorClass.AUTH, ErrorClass.PERMANENT, ErrorClass.RATE_LIMIT):
            pause = self.lease.granted.task.spec.policy.retry.retry_after_default
            self._tell(self._shared.accounts.hold_back(self.slot.spec, refusal, pause))

    def _hear_usage(self, usage: Usage) -> None:
        self._shared.gauged(self.slot.holder, usage)

    # --- from the supervisor ------------------------------------------------------------------------------------------

    def stop(self, reason: str, end: End = End.INTERRUPTED, *, grace: int | None = None) -> None:
        """End the agent for real."""
        self._stop = (reason, end, grace)
        if self._run is not None:
            self._run.stop(reason, end, grace=grace)

    def leave(self) -> None:
        """Its supervisor stops: a store that is away is not waited for any more."""
        self._report.leave()

    def look(self, row: TaskRow | None, question: Question | None) -> None:
        """Read the lease from the store, look at the agent, and report what is new."""
        held = None if row is None else row.lease
        if self.known.ended is None and not self.lease.over:
            if held is None or held.token != self.lease.token:
                self.stop("the agent no longer holds the task", End.LEASE_LOST)
            elif held.stalled_at is not None and not self.known.stalled:
                self.known = msgspec.structs.replace(self.known, stalled=True)
                self.stop("it missed too many check-ins", End.STALLED, grace=_RECOVERING)
        self._voice.asks(question)
        waits = question is not None and question.kind != AGENT_REPEATS  # that one it does not even know of
        for_human = f"{question.id}: {without_output(question.text)[:200]}" if question is not None and waits else None
        for_agent = None if self._run is None else self._run.waits_for
        self.known = msgspec.structs.replace(self.known, for_human=for_human, for_agent=for_agent)
        own = self.lease.checkins
        new = held is not None and held.checkin_at is not None and held.checkin_at != self._checked_in_at
        if held is not None and new and not own.on_their_way:  # else it is not known yet whose it is
            self._checked_in_at = held.checkin_at
            self.note = held.note
            if self._run is not None and held.checkin_at != own.last:  # it came another way than by its socket
                self._run.answered(held.note)
        standing = None if self._run is None else self._run.standing
        if standing is not None and standing.refusal is not None and standing.refusal is not self._refusal:
            self._hear_refusal(standing.refusal)
        self._pass_on_remark()
        verdict = self._judged()
        if verdict.condition is not self.verdict.condition:
            self._notice("agent_state", state=verdict.condition.value, evidence=verdict.evidence)
            if verdict.condition in EXPLAINED:
                self._plan.tell(f"{self.lease.agent} is {in_words(verdict)}, at “{self.lease.name}”")
            if verdict.condition is AgentCondition.QUIET and not self._nudged:
                self._nudged = True
                self.ask(nudging(self.lease.task, verdict.evidence), "agent_nudged")
            elif verdict.condition is AgentCondition.WORKING:
                self._nudged = False
        self.verdict = verdict

    def _pass_on_remark(self) -> None:
        """Say once what is to be said of how it is watched."""
        if self._run is not None and self._run.remark and not self._remark:
            self._remark = self._run.remark
            self._plan.tell(f"{self.lease.agent}, at “{self.lease.name}”: {self._remark}")
            self._notice("reaper_stopped", evidence=self._remark)

    def _judged(self) -> AgentVerdict:
        standing = None if self._run is None else self._run.standing
        if standing is None and self.known.ended is None:
            return self.verdict
        doing = "" if self._run is None else self._run.doing
        known = msgspec.structs.replace(self.known, doing=doing) if doing else self.known
        return judge(standing, known, self._clock.monotonic())

    def post(self, now: Millis) -> AgentSlot:
        """What can be looked at."""
        spec, lease, standing = self.slot.spec, self.lease, None if self._run is None else self._run.standing
        since, idle = now - self._clock.monotonic(), raised(spec.idle, lease.idle_override)
        proof = None if standing is None else standing.progress
        return AgentSlot(
            *(spec.name, self.slot.holder, spec.kind, spec.role),
            *(lease.task, lease.name, lease.token),
            *(self.verdict.condition.value, self.verdict.evidence),
            None if proof is None else Millis(min(since + proof.at, now)),
            account=spec.limit_of(),
            idle_at=None if standing is None or idle is None else Millis(since + standing.idle_at(idle)),
            remark=self._remark,
        )

    def _notice(self, kind: str, **data: object) -> None:
        lease = self.lease
        self._tell(self._watch.notice(Event(kind, lease.task, lease.run, lease.agent, lease.token, data)))

    def _tell(self, saying: Coroutine[Any, Any, object]) -> None:
        """Report to the store in the background; a failure to do so stops nothing else."""

        async def said() -> None:
            with contextlib.suppress(AllswellError):
                await saying

        task = asyncio.ensure_future(said())
        self._told.add(task)
        task.add_done_callback(self._told.discard)
