"""Handing out a task: the lease with its token and all the limits it will be judged by."""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.build.roles import BUILD_ROLES
from allswell.domain.case import Case, Outcome, state
from allswell.domain.command import Claim
from allswell.domain.event import Event
from allswell.domain.lease import Lease, bounded, due_at
from allswell.domain.names import Millis, Token
from allswell.domain.run import Run
from allswell.domain.submit import check_name
from allswell.domain.task import State
from allswell.errors import Refused

STEP_ROLE = "step"
"""The role of a flow's steps, which need what only their runner has: the flow's folder, its agents, its values."""
RUN_ROLE = "run"
"""The role of commands under watch, which run where they were started; whoever started one can resume it."""
_BY_NAME_ONLY = frozenset((STEP_ROLE, RUN_ROLE, *BUILD_ROLES))
LENGTH_MIN = 100
CLAIM_MAX = 10_000
_READY = State.READY


def check_claim(claim: Claim) -> None:
    """Refuse a claim that cannot be meant."""
    check_name(claim.agent, "agent")
    if claim.id:
        check_name(claim.id, "command")
    if not 1 <= claim.count <= CLAIM_MAX:
        raise Refused("bad_count", f"a claim asks for 1 to {CLAIM_MAX} tasks, not {claim.count}", where="count")
    if claim.length is not None and claim.length < LENGTH_MIN:
        raise Refused("bad_lease", f"a lease of {claim.length} ms is too short; at least {LENGTH_MIN}", where="lease")


def fits(claim: Claim, role: str) -> bool:
    """Whether a claim asks for tasks of a role.

    Who takes any role is not meant to take steps out of a flow, components out of a build, or a command that was
    stopped and waits to be resumed.
    """
    if claim.roles is not None:
        return role in claim.roles
    return role not in _BY_NAME_ONLY or claim.task is not None


def grant(case: Case, claim: Claim, now: Millis, run: Run | None = None) -> Outcome:
    """Give the task to the claimer; `answer` is None where it cannot be had.

    That is so when its run's time is up: ending it is the run's timer's business, and near. The run may have been read
    without a lock: what the lease carries of its limit is looked at again when it is reached.
    """
    task = case.task
    out = Outcome(case)
    expiry = task.expiry
    limit = expiry if run is None else run.limit
    if state(case) is not _READY or (limit is not None and limit <= now):
        return out
    policy = task.spec.policy
    deadline = now + task.timeout if expiry is None else expiry  # a request has the time it was given
    lease = Lease(
        task.id,
        Token(task.record.token + 1),
        claim.agent,
        now,
        Millis(deadline),
        claim.length,
        task.idle,
        policy.checkpoint_interval,
        policy.checkpoint_timeout,
        policy.recovery_grace,
        claim.id,
        renewed_at=now,
    )
    lease = bounded(lease, limit)
    out.case = replace(case, lease=lease, ready=None, due=due_at(lease))
    out.answer = lease
    out.events.append(Event("task_claimed", task.id, task.run, lease.agent, lease.token, {"deadline": lease.deadline}))
    return out
