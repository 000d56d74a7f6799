"""One attempt at a step, from its lease to its receipt: work, finalize, route (F13).

    begin      what the steps before gave is looked up and put in
    work       the command, the agent or the function; with an audit, again until it passes, three times at most (C2)
    finalize   outputs are looked for and measured; at a timeout, what F9 lists is kept; the receipt is written
    route      the store is told: done, failed, timed out, interrupted; what follows from it is its decision

The receipt is written before the store is told that the step is done: a crash in between leaves a receipt of a step
that will be run again, and never a step that is done without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from allswell.domain.audit import AfterAudit, Audited, Decided, Judged, after_verdict, failed_audits
from allswell.domain.capture import FinalAction, Phase
from allswell.domain.model_usage import plus
from allswell.domain.question import ESCALATION_OPTIONS
from allswell.domain.receipt import Verification
from allswell.domain.step_receipt import Artifact, GitPlace, StepReceipt, StepStatus, Tokens
from allswell.domain.task import OPEN
from allswell.engine.handle import Lease
from allswell.errors import LeaseLost, Refused
from allswell.flows.run.agents import find_agent, order_of_agent
from allswell.flows.run.artifacts import collect
from allswell.flows.run.auditing import audit
from allswell.flows.run.base import stamp
from allswell.flows.run.command import CommandWork
from allswell.flows.run.function import FunctionWork
from allswell.flows.run.job import Job, StepResult
from allswell.flows.run.place import git_place
from allswell.flows.run.site import Site
from allswell.flows.run.timeouts import Capturing
from allswell.flows.run.values import Results, filled, lookup
from allswell.flows.run.verifying import say_verdict, verified
from allswell.flows.run.work import Came, Doing, failed
from allswell.flows.spec import Command, Function, Prompt
from allswell.runtime.attempt import AttemptLimits, Order, order_for
from allswell.runtime.attempt.handed import VARIABLE as HANDOVER
from allswell.runtime.attempt.handed import handed_over

_SETTLING = 10.0
"""Seconds in which the store must have noticed that an attempt's time is up."""
_LOOK = 0.02
_LIMIT_NEAR = 1_000
"""Milliseconds by which the store's clock may be behind ours when a limit is reached."""


@cache
def engine_name() -> str:
    """What receipts name as the engine."""
    from importlib.metadata import version

    return f"allswell {version('allswell')}"


class _Found(msgspec.Struct, frozen=True):
    """What was found wrong with the last try, for the next one."""

    variable: str
    text: str
    words: str = ""
    """Before it, in a prompt."""


class StepAttempt:
    """One attempt at one step."""

    def __init__(self, site: Site, lease: Lease, job: Job, worked: Callable[[], None]) -> None:
        """`worked` is called as soon as it is done, and only has to be written down."""
        self._worked = worked
        self.site = site
        self.lease = lease
        self.job = job
        self.number = job.tried + lease.attempt
        """Counted over all runs of the folder."""
        self.phase = Phase.WORK
        self.receipt: StepReceipt | None = None
        self._doing: Doing | None = None
        self._auditing: asyncio.Future[Audited | Came] | None = None
        self._stopped: tuple[str, bool] | None = None
        self._stops = asyncio.Event()
        self._reached = Phase.WORK
        """How far it came: where it was cut off or failed, or to its end."""
        self._capturing = Capturing(site.base, job, lease, self.number, site.clock, site.last_good)
        self._began = site.clock.wall()
        self._began_at = site.clock.monotonic()
        self._artifacts: tuple[Artifact, ...] = ()
        self._audits: list[Audited] = []
        self._tokens: Tokens | None = None

    def elapsed(self) -> int:
        """How long it has been at it, in milliseconds."""
        return self.site.clock.monotonic() - self._began_at

    def progress(self) -> str:
        """The last proof of progress, in words."""
        return "" if self._doing is None else self._doing.progress()

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """Order the stop: what there is is kept, and the step is given back."""
        self._stopped = (reason, at_once)
        self._stops.set()
        if self._doing is not None:
            self._doing.stop(reason, at_once=at_once)
        if self._auditing is not None:
            self._auditing.cancel()

    # --- the pipeline -------------------------------------------------------------------------------------------------

    async def run(self) -> StepStatus:
        """The whole attempt; how it ended."""
        self.site.tell("step_started", self.job.id, self.number, agent=self.job.agent)
        try:
            self.job = self._capturing.job = await self._begin()
            came = await self._work()
        except Refused as error:  # a value that is not there, a path that leads outside: it was never begun
            came = failed(error.message)
        came = await self._finalize(came)
        status = await self._route(came)
        data: dict[str, Any] = {"status": status, "phase": self._reached, "duration_ms": self.elapsed()}
        if came.error:
            data["error"] = came.error
        self.site.tell("step_ended", self.job.id, self.number, **data)
        return status

    async def _begin(self) -> Job:
        results: dict[str, StepResult | tuple[StepResult, ...]] = {}
        for name, tasks in self.job.uses.items():
            if isinstance(tasks, str):
                results[name] = await self._result(name, tasks)
            else:
                results[name] = tuple(await asyncio.gather(*(self._result(name, task) for task in tasks)))
        given: Results = results
        return filled(self.job, lookup(self.job, self.site.base, given))

    async def _result(self, name: str, task: str) -> StepResult:
        """What a step gave; one that somebody else completed gave whatever they said."""
        said = await self.site.watch.result(task)
        try:
            return msgspec.convert(said, StepResult)
        except msgspec.ValidationError:
            return StepResult(name, result=said)

    async def _work(self) -> Came:
        """Do it; with an audit, again with what was found, until it passes or has failed too often."""
        before = handed_over(self.lease)
        found = _Found(HANDOVER, before) if before else None
        history: list[Judged | Decided] = []
        if self.job.audit is not None and self.number > 1:
            await self.site.written()
            history = await self.site.aside(self._audited_before)
        while True:
            came = await self._try(found)
            if came.status is not StepStatus.DONE or came.said or self.job.audit is None:
                return came
            self._reach(Phase.FINALIZE)
            verdict = await self._audit()
            if isinstance(verdict, Came):
                return verdict
            self._audits.append(verdict)
            self.site.tell("step_audited", self.job.id, self.number, passed=verdict.passed)
            history.append(Judged(self.job.id, verdict.passed))
            failed = failed_audits(history, self.job.id)
            found = _Found("ALLSWELL_AUDIT", verdict.details, "The audit of your last try found: ")
            match after_verdict(passed=verdict.passed, failed=failed):  # a flow's step has no other builder
                case AfterAudit.ACCEPT:
                    return came
                case AfterAudit.ASK | AfterAudit.REASSIGN:
                    error = f"its audit failed {failed} times; the last said: {verdict.details}"
                    return msgspec.structs.replace(came, status=StepStatus.ASKED, error=error)
                case AfterAudit.MEND:
                    self._reach(Phase.WORK)

    def _reach(self, phase: Phase) -> None:
        self.phase = self._reached = self._capturing.phase = phase

    def _audited_before(self) -> list[Judged | Decided]:
        """The verdicts on its work in attempts before this one, and where a human decided about it (C2)."""
        history: list[Judged | Decided] = []
        for line in self.site.base.all_events():
            if line.step_id != self.job.id or line.attempt >= self.number:
                continue
            if line.event == "step_audited":
                history.append(Judged(self.job.id, bool(line.data.get("passed"))))
            elif line.event == "step_ended" and line.data.get("status") == StepStatus.ASKED:
                history.append(Decided())
        return history

    async def _audit(self) -> Audited | Came:
        if self._stopped is None:
            self._auditing = asyncio.ensure_future(audit(self.site, self.job, self.lease))
            await asyncio.wait({self._auditing})
            if not self._auditing.cancelled():
                return self._auditing.result()
        return Came(status=StepStatus.INTERRUPTED, error=self._stopped[0] if self._stopped else "it was cancelled")

    async def _try(self, found: _Found | None) -> Came:
        if self._stopped is not None:
            return Came(status=StepStatus.INTERRUPTED, error=self._stopped[0])
        self._doing = self._prepared(found)
        try:
            came = await self._doing.run()
        finally:
            self._doing = None
        done = came.status is StepStatus.DONE and not came.said
        if done and self.job.verify is not None and came.verification is None:
            came = await verified(came, self.site, self.job, self.lease, self._stops)
        if came.verification is not None:
            self.site.tell("step_verified", self.job.id, self.number, passed=came.verification.passed)
        self._tokens = plus(self._tokens, came.tokens)
        return came

    def _prepared(self, found: _Found | None) -> Doing:
        site, job, work = self.site, self.job, self.job.work
        cut = site.cut(self.lease, job)
        if isinstance(work, Function):
            return FunctionWork(job, work, self.lease, self._capturing, cut, site)
        return CommandWork(job, lambda: self._order(work, found), self.lease, self._capturing, cut, site)

    def _order(self, work: Command | Prompt, found: _Found | None) -> Order:
        """What to run; what an audit has found comes along."""
        job = self.job
        if isinstance(work, Prompt):
            spec = find_agent(work.agent, self.site.agents, job.id)
            prompt = work.prompt if found is None else f"{work.prompt}\n\n{found.words}{found.text}"
            file = self.site.base.llm / f"{job.id}-{self.number}.prompt"
            return replace(order_of_agent(spec, job, prompt, file, self.lease), verify=self._verify)
        env = job.env if found is None else {**job.env, found.variable: found.text}
        limits = AttemptLimits(grace=self.site.grace)
        order = order_for(work.argv, cwd=job.folder, env=env, limits=limits, folder=job.folder)
        return replace(order, verify=self._verify)

    @property
    def _verify(self) -> tuple[str, ...]:
        return () if self.job.verify is None else self.job.verify.argv

    async def _finalize(self, came: Came) -> Came:
        self.phase = Phase.FINALIZE
        if came.status is StepStatus.DONE:
            self._reached = Phase.FINALIZE
        if came.status is StepStatus.DONE and self.job.outputs:
            try:
                self._artifacts = await self.site.aside(lambda: collect(Path(self.job.folder), self.job.outputs))
            except Refused as error:
                came = msgspec.structs.replace(failed(error.message), streams=came.streams, exit_code=came.exit_code)
        cut = came.cut
        if cut is not None:
            if self._capturing.capture is None:
                await self.site.aside(lambda: self._capturing.begin(cut))
            await self.site.aside(lambda: self._capturing.complete(came.snapshot, came.streams))
        await self._keep_receipt(came)
        return came

    async def _keep_receipt(self, came: Came) -> None:
        if came.status is StepStatus.DONE and isinstance(self.job.work, Function):
            made = self._made(came)  # nothing has to be looked for
        else:
            made = await self.site.aside(lambda: self._made(came))
        if came.status is StepStatus.DONE:
            self._worked()
        await self.site.keep(made)
        self.receipt = made

    def _made(self, came: Came) -> StepReceipt:
        job, site = self.job, self.site
        bad = came.status is not StepStatus.DONE
        context = None
        if self._capturing.capture is not None:
            context = self._capturing.capture.context_for_resume
        elif bad and came.status in (StepStatus.INTERRUPTED, StepStatus.LOST):
            context = self._capturing.context(came.snapshot, came.streams)
        said = dict(came.streams)
        transcript = said.get("stdout") or said.get("llm")
        place = git_place(Path(job.folder)) if bad or not isinstance(job.work, Function) else None
        return StepReceipt(
            engine=engine_name(),
            provider=self._provider(),
            agent=job.agent,
            run_id=job.run,
            flow_key=job.flow,
            step_id=job.id,
            attempt=self.number,
            started_at=stamp(self._began),
            completed_at=stamp(site.clock.wall()),
            duration_ms=site.clock.monotonic() - self._began_at,
            status=came.status,
            phase=self._reached,
            tokens=self._tokens,
            error=came.error,
            transcript_path=None if transcript is None else site.base.shown(transcript),
            git=None if place is None else GitPlace(*place),
            exit_code=came.exit_code,
            artifacts=self._artifacts,
            audits=tuple(self._audits),
            verification=came.verification,
            recovery=None if came.recovery is None else site.base.shown(came.recovery),
            context_for_resume=context,
        )

    def _provider(self) -> str:
        """What did the work: a command, Python, or whose usage the agent has."""
        if isinstance(self.job.work, Prompt):
            spec = self.site.agents.get(self.job.work.agent)
            return "agent" if spec is None else spec.limit_of() or self.job.work.agent
        return "python" if isinstance(self.job.work, Function) else "command"

    # --- route --------------------------------------------------------------------------------------------------------

    async def _route(self, came: Came) -> StepStatus:
        """Tell the store; a lease that is lost by now belongs to somebody else, whatever was done."""
        self.phase = Phase.ROUTE
        status = came.status
        try:
            if came.said:
                pass
            elif came.verification is not None and status in (StepStatus.DONE, StepStatus.FAILED):
                status = await self._say_verdict(came, came.verification)
            elif status is StepStatus.DONE or (came.late and came.failure is None):  # late: refused, and kept (O10)
                await self.lease.complete(self._given(came))
            elif status is StepStatus.ASKED:
                await self.lease.ask(f"Step {self.job.id}: {came.error}. How should we proceed?", ESCALATION_OPTIONS)
            elif status is StepStatus.INTERRUPTED:
                await self.lease.release(f"interrupted: {came.error}")
            elif (status is StepStatus.FAILED or came.late) and came.failure is not None:
                await self.lease.fail(came.failure)
            elif status is StepStatus.TIMEOUT and (await self.lease.confirm() or self.lease.until_limit > _LIMIT_NEAR):
                # The scope of a function is not stretched; the run's clock stood meanwhile, so it has time for another.
                await self.lease.release("its time was over, and the run's was not")
        except LeaseLost as lost:
            if status is StepStatus.DONE:
                self._reached = Phase.ROUTE
            status = StepStatus.TIMEOUT if status is StepStatus.TIMEOUT else StepStatus.LOST
            await self._keep_receipt(msgspec.structs.replace(came, status=status, error=str(lost)))
        if status is StepStatus.DONE:
            self.site.finished.append(self.job.id)
        if came.cut is not None:
            action = await self._followed()
            await self.site.aside(lambda: self._capturing.close(action))
            self.site.tell(
                "step_timeout",
                self.job.id,
                self.number,
                scope=came.cut.scope,
                timeout_ms=came.cut.timeout_ms,
                final_action=action,
            )
        return status

    async def _say_verdict(self, came: Came, check: Verification) -> StepStatus:
        followed = await say_verdict(self.lease, check, came, self._given(came))
        if followed.follows is not AfterAudit.ASK:
            return came.status
        await self._keep_receipt(msgspec.structs.replace(came, status=StepStatus.ASKED))
        return StepStatus.ASKED

    def _given(self, came: Came) -> StepResult:
        return StepResult(self.job.id, came.stdout, came.printed_more, came.exit_code, came.result, self._artifacts)

    async def _followed(self) -> FinalAction:
        """What really follows a timeout: read off the task, once the store has ended the attempt."""
        end = asyncio.get_running_loop().time() + _SETTLING
        while True:
            row = await self.site.watch.task(self.lease.task)
            if row is None:
                return FinalAction.FAIL
            if row.lease is None or row.lease.token != self.lease.token:
                break
            if asyncio.get_running_loop().time() >= end:
                return FinalAction.RETRY
            await asyncio.sleep(_LOOK)
        if row.task.state != OPEN:
            return FinalAction.FAIL
        waits = any(wait.kind == "question" for wait in row.waits)
        return FinalAction.ESCALATE if waits else FinalAction.RETRY
