"""A step that runs a command, its own or an agent's: one watched attempt, its work kept before anything is killed."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

from msgspec import UNSET

from allswell.domain.agents.cost import tokens_of
from allswell.domain.agents.fleet import AgentSpec
from allswell.domain.duration import show
from allswell.domain.lease.audit import Audited
from allswell.domain.lease.verification import AfterCheck
from allswell.domain.receipts.receipt import End, Receipt, Verification
from allswell.domain.receipts.step import StepStatus, step_status
from allswell.domain.scopes import ScopeKind
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.values import nearest
from allswell.engine.lease import Lease
from allswell.errors import Refused
from allswell.flows.run.context import RunContext, StepOutcome, failed
from allswell.flows.run.plan import PRINTED_MOST, MemberJob, StepResult
from allswell.flows.run.timeouts import Capturing, TimeoutCut
from allswell.flows.spec import AgentPrompt, Flow, RunCommand
from allswell.runtime.agents.run import order_of
from allswell.runtime.attempt import AttemptOutcome, AttemptRunner
from allswell.runtime.attempt.launch import LaunchSpec
from allswell.runtime.receipts import Receipts, StateDir, attempt_name
from allswell.runtime.run_tool import ToolResult, run_tool
from allswell.runtime.workspace.files import open_there, own_folder, write_file
from allswell.timing.scopes import ScopeTimeout


class _StepPaths(StateDir):
    """Where a step's attempt leaves things: its transcripts in the run's folder, the rest beside the store."""

    def __init__(self, folder: Path, receipts: Receipts, transcripts: Path) -> None:
        super().__init__(folder, receipts)
        self._transcripts = transcripts

    @property
    def transcripts(self) -> Path:
        """The run's `llm/`."""
        return self._transcripts


class _Receipts(Receipts):
    """Tells of a timeout before anything else is kept: the attempt writes its partial receipt first of all."""

    def __init__(self, folder: Path, capturing: Capturing, cut: TimeoutCut) -> None:
        super().__init__(folder)
        self._capturing = capturing
        self._cut = cut

    def write(self, receipt: Receipt) -> Path:
        """Keep a receipt; at a limit, the flow's own comes first."""
        if receipt.status is End.TIMEOUT and self._capturing.capture is None:
            last = "" if receipt.last_evidence is None else receipt.last_evidence.what
            self._capturing.begin(self._cut, last)
        return super().write(receipt)


class CommandWork(AttemptRunner):
    """One try at a command."""

    def __init__(
        self, job: MemberJob, order: LaunchSpec, lease: Lease, capturing: Capturing, cut: TimeoutCut, site: RunContext
    ) -> None:
        self._job = job
        self._limit = cut
        self._llm = site.base.llm
        home = Path(job.home)
        paths = _StepPaths(home, _Receipts(home / "receipts", capturing, cut), self._llm)
        super().__init__(order, lease, paths, clock=site.clock)

    async def came(self) -> StepOutcome:
        """Run the command to its end, or to that of its time."""
        outcome = await self.run()
        status = step_status(outcome.end)
        streams = self._named()
        stdout = dict(streams).get("stdout")
        text = "" if stdout is None else _text(stdout)
        failure = None
        if status is StepStatus.FAILED and outcome.end is not End.UNVERIFIED:
            failure = outcome.failure or Failure(ErrorClass.TRANSIENT, outcome.reason)
        late = status is StepStatus.LOST and outcome.by_itself
        if late and outcome.exit_code != 0:
            failure = Failure(ErrorClass.TRANSIENT, outcome.reason)
        if outcome.end is End.NOT_STARTED:
            failure = Failure(ErrorClass.VALIDATION, outcome.reason)
        kept = outcome.receipt
        return StepOutcome(
            status=status,
            error=None if status is StepStatus.DONE else self._reason(outcome),
            failure=failure,
            cut=self._limit if status is StepStatus.TIMEOUT else None,
            stdout=text[:PRINTED_MOST],
            printed_more=len(text) > PRINTED_MOST,
            exit_code=outcome.exit_code,
            streams=streams,
            tokens=tokens_of(outcome.expense),
            snapshot=None if kept is None else kept.snapshot,
            recovery=outcome.receipt_path,
            said=outcome.said is not None,
            verification=outcome.verification,
            brought=outcome.brought,
            warning=outcome.warning,
            late=late,
        )

    def _reason(self, outcome: AttemptOutcome) -> str:
        """Why it ended; a limit is told as what it is, the flow's or the step's own."""
        if outcome.end is End.TIMEOUT and self._limit.scope is ScopeKind.FLOW:
            return f"the flow's limit of {show(self._limit.timeout_ms)} was reached"
        return outcome.reason

    def _named(self) -> tuple[tuple[str, Path], ...]:
        """The transcripts, under the names of the step and its attempt."""
        found = []
        for stream in ("stdout", "stderr"):
            path = self._llm / f"{attempt_name(self.lease.task, self.lease.attempt)}.{stream}"
            named = self._llm / f"{self._job.id}-{self._job.tried + self.lease.attempt}.{stream}"
            try:
                path.replace(named)
            except OSError:
                continue
            found.append((stream, named))
        return tuple(found)


def _text(path: Path) -> str:
    """What a command printed, without its last line break, and a little more than may be used of it."""
    try:
        with own_folder(path.parent) as inside:
            handle = open_there(path.name, inside)
    except OSError:
        return ""
    try:
        content = os.pread(handle, 4 * PRINTED_MOST + 4, 0).decode("utf-8", "replace")
    finally:
        os.close(handle)
    return content.removesuffix("\n").removesuffix("\r").replace("\0", "�")


# Steps that an agent does: the command of `[agents.NAME]`, with the step's prompt in its words.
#
# The runner of a flow is no supervisor: it starts the agent's command for this one step, holds it to the step's limit
# and to the agent's own idle limit, and does not ask for check-ins. Functions have `python:` for themselves, and a
# remote agent claims by itself.

Agents = Mapping[str, AgentSpec]


def names_agents(flow: Flow) -> bool:
    """Whether any step of a flow is an agent's; the others do not care how agents are set up."""
    return any(isinstance(work, AgentPrompt) for step in flow.steps for work in (step.work, step.audit))


def check_agents(flow: Flow, agents: Agents) -> None:
    """Refuse a flow that names an agent which nobody could start, before anything is done."""
    for step in flow.steps:
        for work in (step.work, step.audit):
            if isinstance(work, AgentPrompt):
                find_agent(work.agent, agents, step.id)


def find_agent(name: str, agents: Agents, step: str) -> AgentSpec:
    """The agent of this name, if it is one that a step can start."""
    spec = agents.get(name)
    if spec is None:
        near = nearest(name, agents)
        hint = f"did you mean {near!r}?" if near else f"add [agents.{name}] to allswell.toml (`allswell help fleet`)"
        raise Refused("no_agent", f"step {step} needs the agent {name!r}, which is not set up; {hint}", where=step)
    if spec.kind != "command":
        how = "call it with `python:`" if spec.kind == "function" else "let it claim the task by itself"
        raise Refused("no_agent", f"step {step} wants the agent {name!r}, which is a {spec.kind}; {how}", where=step)
    return spec


def order_of_agent(
    spec: AgentSpec, job: MemberJob, prompt: str, prompt_file: Path, lease: Lease, handover: str = ""
) -> LaunchSpec:
    """The order for an attempt by an agent; the prompt is in its file when this returns."""
    write_file(prompt_file, prompt.encode("utf-8", "surrogateescape"))
    places = {
        "prompt": prompt,
        "prompt_file": str(prompt_file),
        "name": job.id,
        "payload": prompt,
        "handover": handover,
        "task": lease.task,
        "attempt": str(lease.attempt),
        "agent": spec.name or job.agent,
        "role": lease.role,
        "folder": job.folder,
        "orders_file": str(prompt_file.with_suffix(".orders")),
        "session": "",
    }
    return order_of(spec, spec.argv, places, job.env)


# The verification of a step (`verify:`): the command that must pass before the step is done.
#
# It runs as for every attempt (runtime/attempt/verification.py). What follows from the verdict is the store's decision,
# as it is for every task: done, once more with what was found, or a human.


async def say_verdict(lease: Lease, check: Verification, came: StepOutcome, given: StepResult) -> AfterCheck:
    """Tell the store what came of the verification."""
    return await lease.verified(
        passed=check.passed,
        why=check.why,
        said=check.output,
        elapsed=check.elapsed_ms,
        result=UNSET if came.brought else given,
        warning=came.warning,
    )


# The audit of a step: a command that passes its work by exit code 0, or an agent that says PASS or FAIL (C2).

_DETAILS_MOST = 4_000
_VERDICT = re.compile(r"\b(PASS|FAIL)\b")
_HOW = "\n\nEnd with a line that says PASS, or FAIL and what is wrong."


async def audit(site: RunContext, job: MemberJob, lease: Lease) -> Audited | StepOutcome:
    """The verdict on a step's work; what came of the step instead where there could be none."""
    asked = job.audit
    left = lease.until_limit
    if left <= 0 or asked is None:
        return _too_late(site, job, lease, "its time was up before its audit")
    by = asked.argv[0] if isinstance(asked, RunCommand) else asked.agent
    argv, env = asked.argv if isinstance(asked, RunCommand) else (), job.env
    try:
        if isinstance(asked, AgentPrompt):
            file = site.base.llm / f"{job.id}-{job.tried + lease.attempt}.audit.prompt"
            spec = find_agent(asked.agent, site.agents, job.id)
            order = order_of_agent(spec, job, asked.prompt + _HOW, file, lease)
            argv, env = order.argv, order.env
        done = await run_tool(argv, timeout_override=left, cwd=job.folder, env={**env, "ALLSWELL_STEP": job.id})
    except Refused as error:
        return failed(f"its audit cannot be run: {error.message}")
    except ScopeTimeout as late:
        return _too_late(site, job, lease, f"its audit ran into the step's limit: {late}")
    if done.exit_code is None:
        return failed(f"its audit was ended by signal {done.ended.signal}", ErrorClass.TRANSIENT)
    if isinstance(asked, AgentPrompt):
        return _judged(done, by)
    return Audited(passed=done.ok, by=by, details="" if done.ok else _details(done))


def _judged(done: ToolResult, by: str) -> Audited:
    """An agent's verdict is its last word of the two; whoever gives none has not passed the work."""
    if not done.ok:
        return Audited(passed=False, by=by, details=_details(done))
    found = list(_VERDICT.finditer(done.stdout))
    if not found:
        return Audited(passed=False, by=by, details=f"{by} gave no verdict; it said: {_details(done)}"[:_DETAILS_MOST])
    last = found[-1]
    details = done.stdout[last.end() :].strip(" \t\r\n:.") or _details(done)
    return Audited(passed=last[1] == "PASS", by=by, details="" if last[1] == "PASS" else details[:_DETAILS_MOST])


def _too_late(site: RunContext, job: MemberJob, lease: Lease, error: str) -> StepOutcome:
    return StepOutcome(status=StepStatus.TIMEOUT, error=error, cut=site.cut(lease, job))


def _details(done: ToolResult) -> str:
    said = "\n".join(part.strip() for part in (done.stdout, done.stderr) if part.strip())
    return said[-_DETAILS_MOST:].replace("\0", "�") or f"exit code {done.exit_code}"
