"""The audit of a step: a command that passes its work by exit code 0, or an agent that says PASS or FAIL (C2)."""

from __future__ import annotations

import os
import re
from pathlib import Path

from allswell.domain.audit import Audited
from allswell.domain.retry import ErrorClass
from allswell.domain.step_receipt import StepStatus
from allswell.engine.handle import Lease
from allswell.errors import Refused
from allswell.flows.run.agents import find_agent, words_for
from allswell.flows.run.job import Job
from allswell.flows.run.site import Site
from allswell.flows.run.work import Came, failed
from allswell.flows.spec import Command, Prompt
from allswell.runtime.own_files import write_file
from allswell.runtime.run_tool import ToolResult, run_tool
from allswell.timing.scope import ScopeTimeout

_DETAILS_MOST = 4_000
_VERDICT = re.compile(r"\b(PASS|FAIL)\b")
_HOW = "\n\nEnd with a line that says PASS, or FAIL and what is wrong."


async def audit(site: Site, job: Job, lease: Lease) -> Audited | Came:
    """The verdict on a step's work; what came of the step instead where there could be none."""
    asked = job.audit
    left = lease.until_limit
    if left <= 0 or asked is None:
        return _too_late(site, job, lease, "its time was up before its audit")
    by = asked.argv[0] if isinstance(asked, Command) else asked.agent
    try:
        argv, env = _words(site, job, lease, asked)
        about = {**job.env, **env, "ALLSWELL_STEP": job.id}
        done = await run_tool(argv, timeout_override=left, cwd=job.folder, env=about)
    except Refused as error:
        return failed(f"its audit cannot be run: {error.message}")
    except ScopeTimeout as late:
        return _too_late(site, job, lease, f"its audit ran into the step's limit: {late}")
    if done.exit_code is None:
        return failed(f"its audit was ended by signal {done.ended.signal}", ErrorClass.TRANSIENT)
    if isinstance(asked, Prompt):
        return _judged(done, by)
    return Audited(passed=done.ok, by=by, details="" if done.ok else _details(done))


def _words(site: Site, job: Job, lease: Lease, asked: Command | Prompt) -> tuple[list[str], dict[str, str]]:
    if isinstance(asked, Command):
        return list(asked.argv), {}
    spec = find_agent(asked.agent, site.agents, job.id)
    file = Path(site.base.llm / f"{job.id}-{job.tried + lease.attempt}.audit.prompt")
    prompt = asked.prompt + _HOW
    write_file(file, prompt.encode())
    argv, env = words_for(spec, job, prompt, file, lease)
    handed_on = {name: value for name, value in os.environ.items() if _wanted(name, spec.pass_env)}
    return argv, {**handed_on, **env}


def _wanted(name: str, patterns: tuple[str, ...]) -> bool:
    from fnmatch import fnmatchcase

    return any(fnmatchcase(name, pattern) for pattern in patterns)


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


def _too_late(site: Site, job: Job, lease: Lease, error: str) -> Came:
    return Came(status=StepStatus.TIMEOUT, error=error, cut=site.cut(lease, job))


def _details(done: ToolResult) -> str:
    said = "\n".join(part.strip() for part in (done.stdout, done.stderr) if part.strip())
    return said[-_DETAILS_MOST:].replace("\0", "�") or f"exit code {done.exit_code}"
