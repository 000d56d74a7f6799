"""What time alone does to a task: a limit is reached, a check-in is missed, a pause is over.

Moments are worked off in the order in which they fell due, so a sweeper that was away for an hour comes to the same
verdicts as one that was always there. Where two fall on the same millisecond, the hard limit speaks first, and the
run's end last: what else happened in that moment may be what a human is asked about, and then the run's clock stands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allswell.domain.agents.evidence import REPEATS
from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Millis, TaskId, asker_of, is_request
from allswell.domain.lease.model import (
    LeaseRow,
    answered,
    bounded,
    due_at,
    idles_at,
    judged_at,
    lapses_at,
    missed,
    recovered_at,
)
from allswell.domain.lease.verification import ask_human, claims_to_be_done, verify_of
from allswell.domain.mesh.delivery import passes, put_off
from allswell.domain.mesh.health import charged, concerned, target
from allswell.domain.mesh.request import EXPIRED
from allswell.domain.question import REPEATED_TIMEOUT_OPTIONS, options_about_time, repeated, repeated_idle
from allswell.domain.rules.command import Command, EndIdle
from allswell.domain.rules.rule import Decision, ReadSet, RowSearch, RowSnapshot, Rule
from allswell.domain.run.run import Run
from allswell.domain.task.aggregate import (
    QuestionDraft,
    TaskAggregate,
    TaskChange,
    ask,
    due_of,
    end_attempt,
    end_task,
    event,
    leave,
    requeue,
    run_of,
)
from allswell.domain.task.model import OPEN, State, Task

_FLOW_ENDINGS = {
    "timeout": "it reached its limit",
    "stall": "its process answered no more",
    "lapse": "its process died, or was cut off",
}

_UNVERIFIED_ENDINGS = {
    "timeout": "the limit of its attempt was reached first",
    "stall": "its agent answered no more",
    "lapse": "its holder is gone",
}


class Tick(Command, frozen=True, gc=False):
    """Time has passed for this task; whether that was looked at is the answer."""

    task: TaskId
    agent: AgentId | None = None
    """Who held it when its timer was seen."""


class OneMoreWindow(Command, frozen=True, gc=False):
    """The machine slept for so long: the next leases after an id get one more window. The last one is the answer."""

    after: str
    slept: int
    limit: int


def tick(case: TaskAggregate, now: Millis, run: Run | None = None) -> TaskChange:
    """Everything that has fallen due by now; a tick that comes early only re-arms the timer."""
    out = TaskChange(case, run=run)
    if case.task.state != OPEN:
        out.case = replace(case, due=None)
        return out
    if case.lease is None:
        _wake(out, now)
        return out
    while (lease := out.case.lease) is not None:
        due = due_at(lease)
        if due > now:
            if (timer := due_of(out.case.task, lease)) != out.case.due:
                out.case = replace(out.case, due=timer)
            break
        if due == lease.deadline and lease.own is None:
            _reach_limit(out, lease, now)
        elif due == lapses_at(lease):
            _lapse(out, lease, now)
        elif due == idles_at(lease):
            end_idle(out, lease, now)
        elif due == recovered_at(lease):
            recover(out, lease, now)
        elif due == lease.deadline:
            _reach_end_of_run(out, lease, now)
        else:
            _judge_check_in(out, lease, now)
    return out


def _wake(out: TaskChange, now: Millis) -> None:
    """A task that is not held: its pause is over, or, if it is a request, its time."""
    case = out.case
    expiry = case.task.expiry
    if expiry is not None and expiry <= now:
        _expire(out, None, now)
    elif case.due is not None and case.due <= now:
        out.case = requeue(replace(case, due=None), now)
        if out.case.ready is not None:
            out.events.append(event(case.task, "task_ready", reason="its time has come"))


def recover(out: TaskChange, lease: LeaseRow, now: Millis, *, command: CommandId = NO_COMMAND) -> None:
    """Take a stalled agent's task back, clear what was held against the agent, and say so (O8)."""
    task = out.case.task
    stalls = task.record.stalls + 1
    end_attempt(out, "agent_stalled", now, command=command, stalls=stalls)
    out.case = replace(out.case, agent=None)
    out.events.append(event(task, "task_returned", lease, reason="agent_stalled"))
    out.events.append(event(task, "stalled_agent_recovered", lease))
    _pool_or_ask(out, "stall", stalls, now)


def end_idle(out: TaskChange, lease: LeaseRow, now: Millis, word: EndIdle | None = None) -> None:
    """An attempt gave no proof of progress for too long, by the store's own clock or by its supervisor's word."""
    out.events.append(event(out.case.task, "agent_idle", lease, elapsed_ms=now - lease.granted_at))
    limit = lease.idle if word is None or word.idle is None else word.idle
    _time_out(out, lease, now, "agent_idle", idle=limit or 0, word=word)


def _reach_limit(out: TaskChange, lease: LeaseRow, now: Millis) -> None:
    task = out.case.task
    if task.expiry is not None:
        end_attempt(out, EXPIRED, now)
        _expire(out, lease, now)
        return
    out.events.append(event(task, "agent_timeout", lease, elapsed_ms=now - lease.granted_at))
    _time_out(out, lease, now, "agent_timeout")


def _reach_end_of_run(out: TaskChange, lease: LeaseRow, now: Millis) -> None:
    """The run's limit, as the lease has it, is reached; where the run's clock has stood since, it is further off."""
    task = out.case.task
    run = run_of(out)
    later = bounded(lease, None if run is None else run.limit)
    if later.deadline > lease.deadline:
        out.case = replace(out.case, lease=later)
        out.events.append(event(task, "limit_moved", later, deadline=later.limit_at))
        return
    end_attempt(out, "run_timeout", now)
    end_task(out, State.FAILED, "run_timeout", now)
    out.events.append(event(task, "task_failed", lease, reason="run_timeout", message="the run's deadline has passed"))


def move_limit(case: TaskAggregate, run: Run) -> TaskChange:
    """The run's clock has stopped or gone on: its task's lease gets the limit that there is now."""
    out = TaskChange(case, run=run)
    lease = case.lease
    if lease is None or run.ended_at is not None:
        return out
    moved = bounded(lease, run.limit)
    if moved is not lease:
        out.case = replace(case, lease=moved, due=due_of(case.task, moved))
    if moved.deadline != lease.deadline:
        out.events.append(event(case.task, "limit_moved", moved, deadline=moved.limit_at))
    return out


def _expire(out: TaskChange, lease: LeaseRow | None, now: Millis) -> None:
    """The time of a request is up, wherever it stands: it has failed, and nothing else has (O5)."""
    task = out.case.task
    end_task(out, State.FAILED, EXPIRED, now)
    message = "no agent took it in time" if lease is None else f"{lease.agent} did not answer in time"
    out.events.append(event(task, "task_failed", lease, reason=EXPIRED, message=message))


def _time_out(
    out: TaskChange,
    lease: LeaseRow,
    now: Millis,
    reason: str,
    *,
    idle: int | None = None,
    word: EndIdle | None = None,
) -> None:
    command, said, circle = (NO_COMMAND, "", "") if word is None else (word.id, word.said, word.repeats)
    task = out.case.task
    record = task.record
    timeouts = record.timeouts + 1
    if idle is None:
        end_attempt(out, reason, now, command=command, timeouts=timeouts)
    else:
        reached = idle or record.idle_reached
        counts = {"timeouts": timeouts, "idles": record.idles + 1, "idle_reached": reached}
        end_attempt(out, reason, now, command=command, detail=f"{REPEATS}{circle}" if circle else "", **counts)
    _lift_stall(out, lease)
    out.events.append(event(task, "task_returned", lease, reason=reason))
    if task.spec.request is None and is_asked_about(out.case.task, "timeout", timeouts):
        out.events.append(event(task, "task_repeated_timeout", count=timeouts, action="divine_intervention"))
    _pool_or_ask(out, "timeout", timeouts, now, said)


def _lapse(out: TaskChange, lease: LeaseRow, now: Millis) -> None:
    task = out.case.task
    lapses = task.record.lapses + 1
    end_attempt(out, "lease_lapsed", now, lapses=lapses)
    _lift_stall(out, lease)
    out.events.append(event(task, "lease_lapsed", lease, elapsed_ms=now - lease.granted_at))
    out.events.append(event(task, "task_returned", lease, reason="lease_lapsed"))
    _pool_or_ask(out, "lapse", lapses, now)


def _lift_stall(out: TaskChange, lease: LeaseRow) -> None:
    """An agent that was to be restarted for this attempt is not, once the attempt has ended by itself."""
    if lease.stalled_at is not None:
        out.case = replace(out.case, agent=None)


def _pool_or_ask(out: TaskChange, what: str, count: int, now: Millis, said: str = "") -> None:
    """It becomes ready again; but a task that keeps ending the same bad way waits for a human instead (O4, O9)."""
    task = out.case.task
    if task.spec.flow:
        leave(out, _FLOW_ENDINGS[what], now)
        return
    if task.spec.request is not None:
        put_off(out, now)
        return
    if task.spec.origin is not None:
        reason = f"the expert's attempt ended: {what}"
        end_task(out, State.FAILED, reason, now)
        out.events.append(event(task, "task_failed", reason=reason, message="a request is tried once"))
        return
    if verify_of(task) and claims_to_be_done(task):
        ask_human(out, _UNVERIFIED_ENDINGS[what], "", now, ran=False)
        return
    if not is_asked_about(task, what, count):
        out.case = requeue(out.case, now)
        return
    text, options = repeated(task.id, task.name, what, count), REPEATED_TIMEOUT_OPTIONS
    record = task.record
    if what == "timeout" and record.idles:
        text = repeated_idle(task.id, task.name, count, record.idles, record.idle_reached, said)
        options = options_about_time(count, record.idles)
    ask(out, QuestionDraft(f"repeated_{what}", text, options), now)


def is_asked_about(task: Task, what: str, count: int) -> bool:
    """Whether a human is asked about a task that has ended so often in this bad way (O4), or as its own figure says."""
    policy = task.spec.policy
    if what == "timeout" and policy.retry.timeouts is not None:
        return count + sum(task.record.failures.values()) > policy.retry.timeouts
    return count >= policy.timeout_escalation


def _judge_check_in(out: TaskChange, lease: LeaseRow, now: Millis) -> None:
    task = out.case.task
    judged = replace(lease, judged=lease.judged + 1)
    if not answered(lease):
        at = judged_at(lease)
        agent = missed(out.case.agent, lease, task.spec.policy.stall_threshold, Millis(at or now))
        out.events.append(event(task, "checkpoint_timeout", lease, checkpoint_count=agent.misses))
        if agent.stalled and lease.stalled_at is None:
            judged = replace(judged, stalled_at=now)
            out.events.append(event(task, "agent_stalled", lease, action="marked_for_restart"))
        out.case = replace(out.case, agent=agent)
    out.case = replace(out.case, lease=judged)


def one_more_window(case: TaskAggregate, now: Millis) -> TaskAggregate:
    """After the machine slept, its holders could not speak: each gets one more window before it is judged.

    Asking twice changes nothing more, so every process that notices may do it.
    """
    lease = case.lease
    if lease is None:
        return case
    window = Millis(now + lease.ask_wait)
    awake = replace(
        lease,
        renewed_at=max(lease.renewed_at, now),
        deadline=max(lease.deadline, window),
        own=None if lease.own is None or lease.own <= window else lease.own,
        judged=max(lease.judged, (now - lease.granted_at) // lease.ask_every),
        stalled_at=None if lease.stalled_at is None else now,
        checkin_at=lease.checkin_at if lease.idle is None else now,
    )
    return replace(case, lease=awake, due=due_of(case.task, awake))


# --- the commands -----------------------------------------------------------------------------------------------------


def let_time_pass(situation: RowSnapshot, command: Tick) -> Decision:
    """Let time pass for a task, unless it is in other hands, or was claimed since its timer was seen.

    Then its holder's record, and its run, were not locked with it; the timer will be found again.
    """
    case = situation.cases.get(command.task)
    if case is None:
        return Decision(False)
    holder = None if case.lease is None else case.lease.agent
    if case.task.spec.request is not None:
        return _let_time_pass_for_request(situation, case, command)
    if holder is None:
        return Decision(True, outcomes=(tick(case, situation.now, situation.run_of(case.task)),))
    if holder != command.agent:
        return Decision(False)
    out = tick(replace(case, agent=situation.agents.get(holder)), situation.now, situation.run_of(case.task))
    return Decision(True, outcomes=(out,), agents=((holder, out.case.agent),))


def _let_time_pass_for_request(situation: RowSnapshot, case: TaskAggregate, command: Tick) -> Decision:
    """As for any task, and for its schedule too; the task that asks it was locked with it, or is in other hands."""
    asking = situation.cases.get(asker_of(case.task.id))
    holder = None if case.lease is None else case.lease.agent
    if asking is None or (holder is not None and holder != command.agent):
        return Decision(False)
    outcomes = passes(case, asking, situation.now)
    health = charged(outcomes, situation.health, situation.now)
    after = outcomes[0].case
    if holder is None or after.lease is None:
        return Decision(True, outcomes=outcomes, health=health)
    out = tick(replace(after, agent=situation.agents.get(holder)), situation.now)
    return Decision(True, outcomes=(*outcomes, out), agents=((holder, out.case.agent),), health=health)


def give_one_more_window(situation: RowSnapshot, command: OneMoreWindow) -> Decision:
    """One chunk of all leases."""
    found = situation.found[_next(command)]
    outcomes = []
    for id_ in found:
        case = situation.cases.get(TaskId(id_))
        if case is not None and case.lease is not None:
            told = event(case.task, "clock_jumped", case.lease, by_ms=command.slept)
            outcomes.append(TaskChange(one_more_window(case, situation.now), events=[told]))
    return Decision(found[-1] if found else None, outcomes=outcomes)


def _names(command: Tick) -> ReadSet:
    task = (command.task,)
    if is_request(command.task):
        both, whom = (command.task, asker_of(command.task)), (target(command.task),)
        holder = () if command.agent is None else (command.agent,)
        return ReadSet(free=both, agents=holder, searches=whom)
    if command.agent is None:
        return ReadSet(free=task)
    return ReadSet(free=task, agents=(command.agent,), runs_of=task)


def _names_found(command: Tick, found: Mapping[RowSearch, Sequence[str]]) -> ReadSet:
    """Of a request, the health of whom it is for."""
    if not is_request(command.task):
        return ReadSet()
    role = found.get(target(command.task), ())[:1]
    return ReadSet(health=concerned([*role, *([] if command.agent is None else [command.agent])] if role else ()))


def _next(command: OneMoreWindow) -> RowSearch:
    return RowSearch("leases", after=command.after, limit=command.limit)


RULES = (
    Rule(Tick, let_time_pass, _names, _names_found),
    Rule(
        OneMoreWindow,
        give_one_more_window,
        lambda command: ReadSet(searches=(_next(command),)),
        lambda command, found: ReadSet(held=[*map(TaskId, found[_next(command)])]),
    ),
)
