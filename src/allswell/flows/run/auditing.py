"""The audit of a step: a command that passes its work by exit code 0, or says what is wrong with it (C2)."""

from __future__ import annotations

from allswell.domain.retry import ErrorClass
from allswell.domain.step_receipt import Audited, StepStatus
from allswell.engine.handle import Lease
from allswell.errors import Refused
from allswell.flows.run.job import Job
from allswell.flows.run.site import Site
from allswell.flows.run.work import Came, failed
from allswell.flows.spec import Command
from allswell.runtime.run_tool import ToolResult, run_tool
from allswell.timing.scope import ScopeTimeout

AUDITS_MOST = 3
"""After so many failures of one builder a human decides: a flow's step has no other builder."""
_DETAILS_MOST = 4_000


async def audit(site: Site, job: Job, lease: Lease) -> Audited | Came:
    """The verdict on a step's work; what came of the step instead where there could be none."""
    asked = job.audit
    if not isinstance(asked, Command):
        name = "" if asked is None else asked.agent
        text = f"the audit of step {job.id} wants the agent {name!r}, and this version starts no agents by name"
        raise Refused("no_agent", f"{text}; run its command line with `run:`", where=job.id)
    left = lease.until_limit
    if left <= 0:
        cut = site.cut(lease, job)
        return Came(status=StepStatus.TIMEOUT, error="its time was up before its audit", cut=cut)
    about = {"ALLSWELL_STEP": job.id}
    try:
        done = await run_tool(asked.argv, timeout_override=left, cwd=job.folder, env={**job.env, **about})
    except Refused as error:
        return failed(f"its audit cannot be run: {error.message}")
    except ScopeTimeout as late:
        cut = site.cut(lease, job)
        return Came(status=StepStatus.TIMEOUT, error=f"its audit ran into the step's limit: {late}", cut=cut)
    if done.ok:
        return Audited(passed=True, by=asked.argv[0], details="")
    if done.exit_code is None:
        return failed(f"its audit was ended by signal {done.ended.signal}", ErrorClass.TRANSIENT)
    return Audited(passed=False, by=asked.argv[0], details=_details(done))


def _details(done: ToolResult) -> str:
    said = "\n".join(part.strip() for part in (done.stdout, done.stderr) if part.strip())
    return said[-_DETAILS_MOST:].replace("\0", "�") or f"exit code {done.exit_code}"
