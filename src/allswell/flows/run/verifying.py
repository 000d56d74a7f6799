"""The verification of a step (`verify:`): the command that must pass before the step is done.

A step that runs a command, or an agent, is verified as every watched attempt is (runtime/attempt/verifying.py). A
function has no attempt of its own, so its step is verified here, in the same way. What follows from the verdict is the
store's decision, as it is for every task: done, once more with what was found, or a human.
"""

from __future__ import annotations

import asyncio

import msgspec
from msgspec import UNSET

from allswell.domain.receipt import End, Verification
from allswell.domain.step_receipt import StepStatus
from allswell.domain.verification import AfterCheck, shown
from allswell.engine.handle import Lease
from allswell.flows.run.job import Job, StepResult
from allswell.flows.run.site import Site
from allswell.flows.run.work import Came
from allswell.runtime.attempt.verifying import watch_over
from allswell.runtime.warden import allowed_environment

_ENDED = {End.TIMEOUT: StepStatus.TIMEOUT, End.LEASE_LOST: StepStatus.LOST}


async def verified(came: Came, site: Site, job: Job, lease: Lease, stop: asyncio.Event) -> Came:
    """What came of a function's step, once its work was verified."""
    assert job.verify is not None  # noqa: S101 - asked by the caller
    env = allowed_environment({**job.env, "ALLSWELL_STEP": job.id})
    told = await watch_over(lease, job.verify.argv, folder=job.folder, env=env, stop=stop)
    if told is None:
        return Came(status=StepStatus.INTERRUPTED, error="it was stopped while its work was verified")
    if isinstance(told, Verification):
        return judged(came, told)
    status = _ENDED[told.end]
    cut = site.cut(lease, job) if status is StepStatus.TIMEOUT else None
    return msgspec.structs.replace(came, status=status, error=told.reason, cut=cut)


def judged(came: Came, check: Verification) -> Came:
    """What came of a step, with the verdict on it."""
    if check.passed:
        return msgspec.structs.replace(came, verification=check)
    error = f"it was done, and `{shown(check.argv)}` failed ({check.why})"
    return msgspec.structs.replace(came, status=StepStatus.FAILED, error=error, verification=check)


async def say_verdict(lease: Lease, check: Verification, came: Came, given: StepResult) -> AfterCheck:
    """Tell the store what came of the verification."""
    return await lease.verified(
        passed=check.passed,
        why=check.why,
        said=check.output,
        elapsed=check.elapsed_ms,
        result=UNSET if came.brought else given,
    )
