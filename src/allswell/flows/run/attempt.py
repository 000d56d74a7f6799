"""One attempt at a step, from its lease to its receipt: work, finalize, route (F13).

    begin      what the steps before gave is looked up and put in
    work       the command, the agent or the function; with an audit, again until it passes, three times at most (C2)
    finalize   outputs are looked for and measured; at a timeout, what F9 lists is kept; the receipt is written
    route      the store is told: done, failed, timed out, interrupted; what follows from it is its decision. Where it
               is away, that is kept on disk, and told when it is back, by whoever then runs or resumes (ADR 72)

The receipt is written before the store is told that the step is done: a crash in between leaves a receipt of a step
that will be run again, and never a step that is done without one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from allswell.domain.agents.cost import Tokens, plus
from allswell.domain.lease.audit import AfterAudit, Audited, AuditVerdict, HumanDecision, after_verdict, failed_audits
from allswell.domain.question import ESCALATION_OPTIONS, full_stop
from allswell.domain.receipts.receipt import Verification
from allswell.domain.receipts.step import Artifact, FinalAction, GitPlace, Phase, StepReceipt, StepStatus
from allswell.domain.rules.command import Command as StoreCommand
from allswell.domain.task.model import OPEN
from allswell.domain.values import QUOTED_IS_DATA, quoted
from allswell.engine.lease import Lease
from allswell.errors import LeaseLost, Refused, Unavailable
from allswell.flows.reader import outside
from allswell.flows.run.command import CommandWork, audit, find_agent, order_of_agent, say_verdict
from allswell.flows.run.context import RunContext, StepOutcome, failed
from allswell.flows.run.folder import RunBase, collect
from allswell.flows.run.function import FunctionWork
from allswell.flows.run.plan import MemberJob, StepResult
from allswell.flows.run.timeouts import Capturing
from allswell.flows.spec import AgentPrompt, Function, Lookup, OutputSpec, RunCommand, ValueReference, fill, fill_text
from allswell.runtime.attempt import AttemptLimits, order_for
from allswell.runtime.attempt.launch import PLACE, LaunchSpec, handover_of, shortened
from allswell.runtime.attempt.outcome import OutcomeReport, past_limit
from allswell.runtime.attempt.warm import last_receipt
from allswell.runtime.receipts import StateDir
from allswell.runtime.workspace.files import stamp
from allswell.runtime.workspace.git import branch_of, find_top, head_of

# What `{{ }}` stands for when a step begins.

Results = Mapping[str, StepResult | tuple[StepResult, ...]]
"""What the steps before gave: one result, or those of all members of a matrix."""


def lookup(job: MemberJob, base: RunBase, results: Results) -> Lookup:
    """Finds the value of a reference; the loader has made sure that there is one, as far as a file can tell."""

    def find(reference: ValueReference) -> object:
        name = reference.path[0]
        match reference.root:
            case "inputs":
                return job.inputs[name]
            case "matrix":
                return job.values[name]
            case "run":
                return {"id": job.run, "base": str(base.path), "folder": job.folder}[name]
            case _:
                given = results[name]
                path = reference.path[1:]
                if isinstance(given, tuple):
                    return [_of(one, path, reference) for one in given]
                return _of(given, path, reference)

    return find


def _of(given: StepResult, path: tuple[str, ...], reference: ValueReference) -> object:
    match path[0]:
        case "stdout":
            if given.printed_more:
                text = f"{reference} is too long for a value; let {given.step} write it to a file, and use that"
                raise Refused("too_large", text, where=str(reference))
            return given.stdout
        case "exit_code":
            return given.exit_code
        case "outputs":
            kept = [one.path for one in given.artifacts if one.name == path[1]]
            if not kept:
                text = f"{reference} is not there: {given.step} was not done by its own command"
                raise Refused("no_value", text, where=str(reference), hint="let a step of the flow leave the file")
            return kept[0]
        case _:
            return _into(given.result, path[1:], reference)


def _into(value: object, path: tuple[str, ...], reference: ValueReference) -> object:
    for key in path:
        if isinstance(value, Mapping) and key in value:
            value = value[key]
        elif isinstance(value, list) and key.isdigit() and int(key) < len(value):
            value = value[int(key)]
        else:
            text = f"{reference} is not there: what the step returned has no {key!r}"
            raise Refused("no_value", text, where=str(reference))
    return value


def filled(job: MemberJob, find: Lookup) -> MemberJob:
    """The job with every value put in."""
    outputs = tuple(OutputSpec(one.name, _checked(fill_text(one.path, find))) for one in job.outputs)
    env = {name: fill_text(value, find) for name, value in job.env.items()}
    audit = job.audit
    if audit is not None:
        audit = _filled_text(audit, find)
    verify = job.verify
    if verify is not None:
        verify = RunCommand(tuple(fill_text(word, find) for word in verify.argv))
    work = job.work
    if isinstance(work, Function):
        inputs = fill(work.inputs, find)
        work = msgspec.structs.replace(work, inputs=inputs if isinstance(inputs, dict) else {})
    else:
        work = _filled_text(work, find)
    return msgspec.structs.replace(job, work=work, env=env, outputs=outputs, audit=audit, verify=verify)


def _filled_text(work: RunCommand | AgentPrompt, find: Lookup) -> RunCommand | AgentPrompt:
    if isinstance(work, RunCommand):
        return RunCommand(tuple(fill_text(word, find) for word in work.argv))
    return AgentPrompt(work.agent, fill_text(work.prompt, find))


def _checked(path: str) -> str:
    if why := outside(path):
        raise Refused("bad_output", f"the output {path!r} {why}", where=path)
    return path


# Where a repository stands, read without git, which takes longer and may run other people's programs.


def git_place(folder: Path) -> tuple[str | None, str | None] | None:
    """The commit and the branch at HEAD; None where there is no repository."""
    top = find_top(folder)
    if top is None:
        return None
    return head_of(top), branch_of(top)


_SETTLING = 10.0
"""Seconds in which the store must have noticed that an attempt's time is up."""
_LIMIT_NEAR = 1_000
"""Milliseconds by which the store's clock may be behind ours when a limit is reached."""


@cache
def engine_name() -> str:
    """What receipts name as the engine."""
    from importlib.metadata import version

    return f"allswell {version('allswell')}"


class _LastFailure(msgspec.Struct, frozen=True):
    """What was found wrong with the last try, for the next one."""

    variable: str
    text: str
    words: str = ""
    """Before it, in a prompt."""


class StepAttempt:
    """One attempt at one step."""

    def __init__(self, site: RunContext, lease: Lease, job: MemberJob, worked: Callable[[], None]) -> None:
        """`worked` is called as soon as it is done, and only has to be written down."""
        self._worked = worked
        self.site = site
        self.lease = lease
        self.job = job
        self.number = job.tried + lease.attempt
        """Counted over all runs of the folder."""
        self.phase = Phase.WORK
        self.receipt: StepReceipt | None = None
        self._doing: CommandWork | FunctionWork | None = None
        self._auditing: asyncio.Future[Audited | StepOutcome] | None = None
        self._stopped: tuple[str, bool] | None = None
        self._reached = Phase.WORK
        """How far it came: where it was cut off or failed, or to its end."""
        self._capturing = Capturing(site.base, job, lease, self.number, site.clock, site.last_good)
        self._began = site.clock.wall()
        self._began_at = site.clock.monotonic()
        self._artifacts: tuple[Artifact, ...] = ()
        self._audits: list[Audited] = []
        self._tokens: Tokens | None = None
        self._handover, self._urgent = "", False
        """What earlier attempts and humans have left for this one."""
        self._send = lease.send
        self._report = OutcomeReport(lease, StateDir(job.home), self._say_kept, site.clock)
        """What the store is to be told, where it was away when the step ended."""

    def elapsed(self) -> int:
        """How long it has been at it, in milliseconds."""
        return self.site.clock.monotonic() - self._began_at

    def progress(self) -> str:
        """The last proof of progress, in words."""
        last = None if self._doing is None else self._doing.standing.answer
        return "" if last is None else last.what

    def stop(self, reason: str, *, at_once: bool = False) -> None:
        """Order the stop: what there is is kept, and the step is given back."""
        self._stopped = (reason, at_once)
        self._report.leave()
        if self._doing is not None:
            self._doing.stop(reason, grace=0 if at_once else None)
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
        self.lease.send = self._tell_store
        try:
            status = await self._route(came)
        finally:
            self._report.close()
        data: dict[str, Any] = {"status": status, "phase": self._reached, "duration_ms": self.elapsed()}
        if came.error:
            data["error"] = came.error
        self.site.tell("step_ended", self.job.id, self.number, **data)
        return status

    async def _begin(self) -> MemberJob:
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

    async def _work(self) -> StepOutcome:
        """Do it; with an audit, again with what was found, until it passes or has failed too often."""
        home = StateDir(self.job.home)
        self._handover, self._urgent = handover_of(self.lease, last_receipt(self.lease, home), home, self.number)
        found: _LastFailure | None = None
        history: list[AuditVerdict | HumanDecision] = []
        if self.job.audit is not None and self.number > 1:
            await self.site.written()
            history = await self.site.aside(self._audited_before)
        while True:
            came = await self._try(found)
            if came.status is not StepStatus.DONE or came.said or self.job.audit is None:
                return came
            self._reach(Phase.FINALIZE)
            verdict = await self._audit()
            if isinstance(verdict, StepOutcome):
                return verdict
            self._audits.append(verdict)
            self.site.tell("step_audited", self.job.id, self.number, passed=verdict.passed)
            history.append(AuditVerdict(self.job.id, verdict.passed))
            failed = failed_audits(history, self.job.id)
            found = _LastFailure("ALLSWELL_AUDIT", verdict.details, "Fix what the audit of your last try found:")
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

    def _audited_before(self) -> list[AuditVerdict | HumanDecision]:
        """The verdicts on its work in attempts before this one, and where a human decided about it (C2)."""
        history: list[AuditVerdict | HumanDecision] = []
        for line in self.site.base.all_events():
            if line.step_id != self.job.id or line.attempt >= self.number:
                continue
            if line.event == "step_audited":
                history.append(AuditVerdict(self.job.id, bool(line.data.get("passed"))))
            elif line.event == "step_ended" and line.data.get("status") == StepStatus.ASKED:
                history.append(HumanDecision())
        return history

    async def _audit(self) -> Audited | StepOutcome:
        if self._stopped is None:
            self._auditing = asyncio.ensure_future(audit(self.site, self.job, self.lease))
            await asyncio.wait({self._auditing})
            if not self._auditing.cancelled():
                return self._auditing.result()
        return StepOutcome(
            status=StepStatus.INTERRUPTED, error=self._stopped[0] if self._stopped else "it was cancelled"
        )

    async def _try(self, found: _LastFailure | None) -> StepOutcome:
        if self._stopped is not None:
            return StepOutcome(status=StepStatus.INTERRUPTED, error=self._stopped[0])
        self._reach(Phase.WORK)
        self._doing = self._prepared(found)
        self._doing.verifying.on_begin = lambda _: self._reach(Phase.FINALIZE)
        try:
            came = await self._doing.came()
        finally:
            self._doing = None
        if came.verification is not None and not came.verification.passed:
            self._reach(Phase.FINALIZE)
        if came.verification is not None:
            self.site.tell("step_verified", self.job.id, self.number, passed=came.verification.passed)
        self._tokens = plus(self._tokens, came.tokens)
        return came

    def _prepared(self, found: _LastFailure | None) -> CommandWork | FunctionWork:
        site, job, work, lease = self.site, self.job, self.job.work, self.lease
        cut = site.cut(lease, job)
        if isinstance(work, Function):
            return FunctionWork(job, work, lease, self._capturing, cut, site, self._handover)
        return CommandWork(job, self._order(work, found), lease, self._capturing, cut, site)

    def _order(self, work: RunCommand | AgentPrompt, found: _LastFailure | None) -> LaunchSpec:
        """What to run; what an audit has found comes along."""
        job, handover = self.job, self._handover
        if isinstance(work, AgentPrompt):
            spec = find_agent(work.agent, self.site.agents, job.id)
            prompt = work.prompt.replace(PLACE, handover)
            if handover and PLACE not in work.prompt:
                prompt = f"{prompt}\n\n{handover}"
            if found is not None:
                prompt = f"{prompt}\n\n{found.words}\n{quoted(found.text)}\n\n{QUOTED_IS_DATA}"
            file = self.site.base.llm / f"{job.id}-{self.number}.prompt"
            order = order_of_agent(spec, job, prompt, file, self.lease, shortened(handover))
            return replace(order, verify=self._verify, handover=handover)
        env = job.env if found is None else {**job.env, found.variable: found.text}
        limits = AttemptLimits(grace=self.site.grace)
        argv = [word.replace(PLACE, shortened(handover)) for word in work.argv]
        order = order_for(argv, cwd=job.folder, env=env, limits=limits, folder=job.folder)
        return replace(order, verify=self._verify, handover=handover, pipes_handover=self._urgent)

    @property
    def _verify(self) -> tuple[str, ...]:
        return () if self.job.verify is None else self.job.verify.argv

    async def _finalize(self, came: StepOutcome) -> StepOutcome:
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

    async def _keep_receipt(self, came: StepOutcome) -> None:
        if came.status is StepStatus.DONE and isinstance(self.job.work, Function):
            made = self._made(came)  # nothing has to be looked for
        else:
            made = await self.site.aside(lambda: self._made(came))
        if came.status is StepStatus.DONE:
            self._worked()
        await self.site.keep(made)
        self.receipt = made

    def _made(self, came: StepOutcome) -> StepReceipt:
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
        if isinstance(self.job.work, AgentPrompt):
            spec = self.site.agents.get(self.job.work.agent)
            return "agent" if spec is None else spec.limit_of() or self.job.work.agent
        return "python" if isinstance(self.job.work, Function) else "command"

    # --- route --------------------------------------------------------------------------------------------------------

    async def _route(self, came: StepOutcome) -> StepStatus:
        """Tell the store; a lease that is lost by now belongs to somebody else, whatever was done."""
        self.phase = Phase.ROUTE
        status = came.status
        try:
            if came.said:
                pass
            elif came.verification is not None and status in (StepStatus.DONE, StepStatus.FAILED):
                status = await self._say_verdict(came, came.verification)
            elif status is StepStatus.DONE or (came.late and came.failure is None):  # late: refused, and kept (O10)
                await self.lease.complete(self._given(came), warning=came.warning)
            elif status is StepStatus.ASKED:
                why = full_stop(came.error or "it could not go on")
                await self.lease.ask(f"Step {self.job.id}: {why} How should we proceed?", ESCALATION_OPTIONS)
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

    async def _tell_store(self, command: StoreCommand) -> object:
        """Tell the store how it ended; most of the time that is there, and nothing has to be kept."""
        try:
            return await self._send(command)
        except Unavailable:
            return await self._report.send(command)

    def _say_kept(self, text: str) -> None:
        self.site.tell("store_away", self.job.id, self.number, text=text)

    async def _say_verdict(self, came: StepOutcome, check: Verification) -> StepStatus:
        followed = await say_verdict(self.lease, check, came, self._given(came))
        if followed.follows is not AfterAudit.ASK:
            return came.status
        await self._keep_receipt(msgspec.structs.replace(came, status=StepStatus.ASKED))
        return StepStatus.ASKED

    def _given(self, came: StepOutcome) -> StepResult:
        return StepResult(self.job.id, came.stdout, came.printed_more, came.exit_code, came.result, self._artifacts)

    async def _followed(self) -> FinalAction:
        """What really follows a timeout: read off the task, once the store has ended the attempt."""
        row = await past_limit(self.site.watch, self.lease, _SETTLING)
        if row is None or row.task.state != OPEN:
            return FinalAction.FAIL
        waits = any(wait.kind == "question" for wait in row.waits)
        return FinalAction.ESCALATE if waits else FinalAction.RETRY
