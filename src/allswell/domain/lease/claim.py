"""Handing out a task: the lease with its token and all the limits it will be judged by.

A claim is decided twice. With the other commands of its batch: is it one that can be meant, and was it given something
before? If not, it is served last, after all else was written: the store picks what is best in the lanes that are open
to it (`open_lanes`), and what it is given of that is decided by `HandOut`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.build.limits import BUILD_ROLES
from allswell.domain.duration import LONGEST
from allswell.domain.ids import NO_COMMAND, Millis, RunId, TaskId, Token
from allswell.domain.lease.cost import budgets_of, run_of_budget
from allswell.domain.lease.model import NO_LIMIT, LeaseRow, bounded
from allswell.domain.mesh.routing import agent_of, family, may_be_asked
from allswell.domain.rules.command import Claim, Command
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSearch, RowSnapshot, Rule
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow, lets_in
from allswell.domain.task.aggregate import TaskAggregate, TaskChange, due_of, state
from allswell.domain.task.model import OPEN, Lane, State, Task
from allswell.domain.task.submit import WEBHOOKS, check_name
from allswell.errors import Refused

STEP_ROLE = "step"
"""The role of a flow's steps, which need what only their runner has: the flow's folder, its agents, its values."""
RUN_ROLE = "run"
"""The role of commands under `allswell run`, which run where they were started; they are resumed there, and no agent
claims them."""
COMMAND_ROLES = frozenset((STEP_ROLE, RUN_ROLE))
"""Roles whose tasks have a command in their payload, which is run when they are resumed: no agent may submit them."""
_BY_NAME_ONLY = frozenset((*COMMAND_ROLES, WEBHOOKS, *BUILD_ROLES))
LENGTH_MIN = 100
CLAIM_MAX = 10_000
_READY = State.READY


class Granted(msgspec.Struct, frozen=True, gc=False):
    """A claimed task: the lease, the task as it was claimed, and its payload."""

    lease: LeaseRow
    task: Task
    payload: str
    told_at: Millis
    """The store's clock when this was said: after the lease was granted, where a claim is repeated."""


class HandOut(Command, frozen=True, gc=False):
    """Serve a claim from these tasks, the best first; what is left for others is part of the answer."""

    claim: Claim
    offered: Sequence[TaskId]
    lanes: Sequence[int]
    """Those that are open to it."""
    further: bool = False
    """Whether more is looked for if it gets nothing of these: then it is not over yet."""


class ClaimResult(msgspec.Struct, frozen=True, gc=False):
    """What a claim was given, and what it may not have or does not want."""

    granted: list[Granted]
    left: Sequence[TaskId]


def check_claim(claim: Claim) -> None:
    """Refuse a claim that cannot be meant."""
    check_name(claim.agent, "agent")
    if claim.id:
        check_name(claim.id, "command")
    if not 1 <= claim.count <= CLAIM_MAX:
        raise Refused("bad_count", f"a claim asks for 1 to {CLAIM_MAX} tasks, not {claim.count}", where="count")
    if claim.length is not None and claim.length < LENGTH_MIN:
        raise Refused("bad_lease", f"a lease of {claim.length} ms is too short; at least {LENGTH_MIN}", where="lease")
    if claim.length is not None and claim.length > LONGEST:
        raise Refused("bad_lease", f"a lease of {claim.length} ms is too long; at most 366 days", where="lease")


def fits(claim: Claim, role: str) -> bool:
    """Whether a claim asks for tasks of a role.

    Who takes any role is not meant to take steps out of a flow, components out of a build, or a command that was
    stopped and waits to be resumed. A request to one agent is for no other agent, and may not be claimed as other work.
    """
    if (agent := agent_of(role)) is not None:
        return (claim.task is not None or role in (claim.roles or ())) and may_be_asked(
            claim.agent, agent, claim.asked_as
        )
    if claim.roles is not None:
        return role in claim.roles
    return role not in _BY_NAME_ONLY or claim.task is not None


def grant(case: TaskAggregate, claim: Claim, now: Millis, run: Run | None = None) -> TaskChange:
    """Give the task to the claimer; `answer` is None if it cannot be claimed.

    That is so when its run's time is up: ending it is the run's timer's business, and near. The run may have been read
    without a lock: what the lease carries of its limit is looked at again when it is reached.
    """
    task = case.task
    out = TaskChange(case)
    expiry = task.expiry
    limit = expiry if run is None else run.limit
    if state(case) is not _READY or (limit is not None and limit <= now):
        return out
    policy = task.spec.policy
    length = NO_LIMIT if task.timeout is None else task.timeout
    deadline = now + length if expiry is None else expiry  # a request has the time it was given
    lease = LeaseRow(
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
    if task.role == WEBHOOKS and (request := task.record.request) is not None:  # each delivery is posted once
        task = replace(task, record=replace(task.record, request=replace(request, posted=request.attempt)))
    out.case = replace(case, task=task, lease=lease, ready=None, due=due_of(task, lease))
    out.answer = lease
    out.events.append(Event("task_claimed", task.id, task.run, lease.agent, lease.token, {"deadline": lease.limit_at}))
    return out


def open_lanes(claim: Claim, lanes: Sequence[Lane], services: Mapping[str, ServiceRow], now: Millis) -> list[int]:
    """The lanes a claimer may be served from: its roles fit, and every service they need lets it in."""
    closed = {name for name, row in services.items() if not lets_in(row, claim.agent, now)}
    open_ = [lane for lane in lanes if fits(claim, lane.role) and closed.isdisjoint(lane.services)]
    return [lane.id for lane in open_ if not closed or closed.isdisjoint(budgets_of(lane.role))]


def outside_shut_runs(claim: Claim, services: Mapping[str, ServiceRow], now: Millis) -> Claim:
    """The claim, with the runs that have cost what they may among those of which it takes nothing now."""
    shut = [
        RunId(run)
        for name, row in services.items()
        if (run := run_of_budget(name)) and not lets_in(row, claim.agent, now)
    ]
    return replace(claim, outside=(*claim.outside, *sorted(shut))) if shut else claim


# --- the commands -----------------------------------------------------------------------------------------------------


def claim(situation: RowSnapshot, command: Claim) -> Decision:
    """The lease that a repeated claim was granted and still has; a new claim is served from the ready tasks."""
    check_claim(command)
    before = _given_before(situation, command) if command.id != NO_COMMAND else []
    return Decision([_granted(situation, case) for case in before]) if before else Decision(claim=command)


def _given_before(situation: RowSnapshot, claim: Claim) -> list[TaskAggregate]:
    mine = []
    for id_ in situation.found.get(_claimed(claim), ()):
        case = situation.cases.get(TaskId(id_))
        lease = None if case is None else case.lease
        if case is not None and lease is not None and (lease.command, lease.agent) == (claim.id, claim.agent):
            mine.append(case)
    return sorted(mine, key=lambda case: (case.task.rank, case.task.id))


def hand_out(situation: RowSnapshot, command: HandOut) -> Decision:
    """Give the claimer the best of what is offered; what it may not have stays for the others."""
    claim, cases, bars = command.claim, situation.cases, situation.bars
    if claim.task is not None and not _may_be_had(situation, claim.task, command.lanes, claim.outside):
        return Decision(ClaimResult([], command.offered))
    outcomes: list[TaskChange] = []
    left: list[TaskId] = []
    for place, id_ in enumerate(command.offered):
        if len(outcomes) == claim.count:
            left += command.offered[place:]
            break
        if bars and claim.agent in bars.get(id_, ()):
            left.append(id_)
            continue
        case = cases[id_]
        if case.ready is None:
            continue  # someone was quicker between the look and the lock
        if case.task.record.back_until is not None and _is_kept_for_another(case.task, claim, situation.now):
            left.append(id_)
            continue
        out = grant(case, claim, situation.now, situation.run_seen(case.task))
        if out.answer is not None:
            outcomes.append(out)
    granted = [_granted(situation, out.case) for out in outcomes]
    return Decision(ClaimResult(granted, left), outcomes=outcomes, events=_given_up_for(command, granted))


def _is_kept_for_another(task: Task, claim: Claim, now: Millis) -> bool:
    """Whether a task was just sent back to another agent, and this one is no slot of that agent (`NAME.2`)."""
    until, last = task.record.back_until, task.record.handover
    if until is None or last is None or now >= until:
        return False
    return family(claim.agent) != family(last.agent)


def _given_up_for(command: HandOut, granted: Sequence[Granted]) -> Sequence[Event]:
    """The event about the task that the claimer put aside to claim this one, with the name of the new task."""
    after = command.claim.after
    if after is None or (command.further and not granted):
        return ()
    return (replace(after, data={**after.data, "next": granted[0].task.name if granted else ""}),)


def _may_be_had(situation: RowSnapshot, task: TaskId, lanes: Sequence[int], outside: Sequence[RunId]) -> bool:
    """Whether a task that a claim names is in a lane that is open to it; refused where it can never be had."""
    named = situation.case(task).task
    if named.run is not None and named.run in outside:
        return False
    if named.state != OPEN:
        raise Refused("task_ended", f"task {named.name} is already {named.state}", where="task")
    return named.lane in lanes


def _granted(situation: RowSnapshot, case: TaskAggregate) -> Granted:
    lease = case.lease
    assert lease is not None  # noqa: S101 - it was just granted, or found
    return Granted(lease, case.task, situation.payloads[case.task.id], situation.now)


def _claimed(claim: Claim) -> RowSearch:
    return RowSearch("claimed", claim.id)


def _names(command: Claim) -> ReadSet:
    named = () if command.task is None else (command.task,)
    if command.id == NO_COMMAND:
        return ReadSet(held=named)
    return ReadSet(held=named, searches=(_claimed(command),))


def _names_given(command: Claim, found: Mapping[RowSearch, Sequence[str]]) -> ReadSet:
    given = [*map(TaskId, found.get(_claimed(command), ()))]
    return ReadSet(held=given, payloads=given)


RULES = (Rule(Claim, claim, _names, _names_given), Rule(HandOut, hand_out))
