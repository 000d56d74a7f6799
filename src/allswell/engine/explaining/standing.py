"""One task as it stands: what is so, what comes next by itself, and what a person could do about it.

Whatever is due and has not happened is called overdue: then nobody sweeps, and the reader is told how to make somebody.
"""

from __future__ import annotations

from allswell.domain.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.flow import FLOW_LEFT
from allswell.domain.lease import (
    Lease,
    asked_at,
    due_at,
    ends_at,
    idles_at,
    is_asked,
    judged_at,
    lapses_at,
    recovered_at,
)
from allswell.domain.listing import TaskRow
from allswell.domain.names import Millis, RunId, TaskId
from allswell.domain.question import Option, Question, Takes, takes
from allswell.domain.task import OPEN, STATES, Handover, State, Task
from allswell.domain.tick import is_asked_about
from allswell.domain.verification import NOT_VERIFIED, claims_to_be_done, verify_of
from allswell.engine.explaining.ended import FINE, outcome, stand_ended
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.proof import stand_proof
from allswell.engine.explaining.services import held_up
from allswell.engine.explaining.shapes import Next, Standing, Todo
from allswell.engine.explaining.words import ago, clean, length, many, quoted, rough, typed

LATE = 5_000
"""A sweeper that lives looks at least once a second; what is due for longer than this has none."""
SWEEP = Todo("Open the watch: whoever has it open sweeps", "allswell watch")
NOWHERE = "nowhere"
"""The state of a task that nothing will ever move again: there must be none, so it is shown where there is one."""
NO_SWEEPER = "No sweeper seems to be running"

BUSY, IDLE, PAUSED, PARKED, OWING, STALLED, OVERDUE, ASKING, STUCK = 20, 30, 40, 50, 60, 70, 80, 90, 100


def state_of(row: TaskRow) -> State | None:
    """Where a task stands; None: nowhere, which must not be."""
    if row.task.state != OPEN:
        return STATES[row.task.state]
    if row.lease is not None:
        return State.HELD
    if row.waits:
        return State.WAITING
    if row.ready:
        return State.READY
    return None if row.due is None else State.DELAYED


def is_late(moment: int | None, now: int) -> bool:
    """Whether something should have happened by now and has not."""
    return moment is not None and moment + LATE <= now


def stand(row: TaskRow, facts: Facts) -> Standing:
    """A task's standing. What it waits for is the chain's business."""
    match state_of(row):
        case State.HELD:
            return _held(row, facts)
        case State.WAITING:
            return Standing(State.WAITING, (), FINE)
        case State.READY:
            return _ready(row, facts)
        case State.DELAYED:
            return _delayed(row, facts.now)
        case None:
            return _nowhere(row.task)
        case _:
            return stand_ended(row.task, facts)


# --- held ---------------------------------------------------------------------------------------------------------


def _held(row: TaskRow, facts: Facts) -> Standing:
    lease, task, now = facts.lease_of(row), row.task, facts.now
    who = clean(lease.agent)
    says = [f"{quoted(task.name)} has been held by {who} for {rough(now - lease.granted_at)}{_which(lease.token)}."]
    says.append(_last_sign(lease, who, now))
    says += stand_proof(row)
    trouble = BUSY
    agent = facts.agents.get(lease.agent)
    if agent is not None and agent.misses:
        threshold = task.spec.policy.stall_threshold
        says.append(f"{who} has missed {many(agent.misses, 'check-in')} in a row; {threshold} mean it is stalled.")
        trouble = OWING
    if lease.stalled_at is not None:
        says.append(
            f"{who} has been stalled for {rough(now - lease.stalled_at)}: asked for check-ins, it did not answer."
        )
        trouble = STALLED
    todo = [Todo(f"Call it off, and {who} is refused from then on", typed("cancel", task.id))]
    if verify_of(task) and claims_to_be_done(task):
        todo.insert(0, Todo("Run what verifies it", typed("verify", task.id)))
    end = ends_at(lease)
    if is_late(end, now):
        says.append(f"Its lease ended {ago(end, now)} ({_what_ends(lease, end)}), but it is still with {who}.")
        says.append(f"{NO_SWEEPER}: nobody has taken it back yet.")
        return Standing(State.HELD, tuple(says), OVERDUE, lease.granted_at, (), (SWEEP, *todo))
    if is_late(row.due, now) and is_late(due_at(lease), now):
        says.append(f"{NO_SWEEPER}: {who}'s check-ins have not been judged since {ago(due_at(lease), now)}.")
        return Standing(State.HELD, tuple(says), OVERDUE, lease.granted_at, _ahead(row, facts), (SWEEP, *todo))
    return Standing(State.HELD, tuple(says), trouble, lease.granted_at, _ahead(row, facts), tuple(todo))


def _which(token: int) -> str:
    return "" if token == 1 else f" (attempt {token})"


def _last_sign(lease: Lease, who: str, now: int) -> str:
    share = "" if lease.progress is None else f" ({lease.progress:.0%})"
    if lease.checkin_at is None:
        renewed = f", but it is alive: it renewed its lease {ago(lease.renewed_at, now)}" if lease.length else ""
        return f"{who} has not checked in yet{renewed if lease.renewed_at > lease.granted_at else ''}."
    note = f": {quoted(lease.note)}" if lease.note else ""
    return f"{who} last checked in {ago(lease.checkin_at, now)}{note}{share}."


def _what_ends(lease: Lease, end: int) -> str:
    if end == lease.deadline:
        return f"its limit of {length(lease.deadline - lease.granted_at)} was reached"
    if end == lapses_at(lease):
        return f"it was to be renewed every {length(lease.length or 0)}"
    if end == idles_at(lease):
        return f"no check-in for {length(lease.idle or 0)}"
    return "its agent is stalled"


def _ahead(row: TaskRow, facts: Facts) -> tuple[Next, ...]:
    """What the clocks of a lease will do, the soonest first."""
    lease, task, now = facts.lease_of(row), row.task, facts.now
    who = clean(lease.agent)
    back = "its program can be run elsewhere" if task.spec.flow else "the task is taken back"
    found: list[Next] = []
    recovered, lapse, idle = recovered_at(lease), lapses_at(lease), idles_at(lease)
    if recovered is not None:
        found.append(Next(Millis(recovered), f"{back} from {who}, {_after(task, 'stalls')}"))
    if lapse is not None:
        found.append(
            Next(Millis(lapse), f"unless {who} renews its lease by then (a live one does), {back}", routine=True)
        )
    if idle is not None:
        found.append(Next(Millis(idle), f"unless {who} checks in by then, {back}: it is idle"))
    judged = judged_at(lease)
    if recovered is None and judged is not None:
        asked = asked_at(lease, lease.judged + 1)
        misses = facts.agents[lease.agent].misses if lease.agent in facts.agents else 0
        if asked is not None and asked > now:
            found.append(Next(Millis(asked), f"{who} is asked for a check-in"))
        elif is_asked(lease, now):
            found.append(Next(Millis(judged), f"unless {who} checks in by then, that is miss number {misses + 1}"))
    limit = length(lease.deadline - lease.granted_at)
    if lease.own is not None:
        found.append(Next(lease.deadline, "its run's deadline is reached: the task fails"))
    else:
        then = "a human is asked" if task.spec.flow else f"{back}, {_after(task, 'timeouts')}"
        found.append(Next(lease.deadline, f"its limit of {limit} is reached: {then}"))
    return tuple(sorted((one for one in found if one.at is not None and one.at <= lease.deadline), key=_when))


def _when(one: Next) -> int:
    return one.at or 0


def _after(task: Task, counter: str) -> str:
    """Where a task goes that ends another attempt badly."""
    if verify_of(task) and claims_to_be_done(task):  # it is not done over again
        return "and a human is asked, as it was said to be done"
    count = getattr(task.record, counter) + 1
    asks = is_asked_about(task, counter.removesuffix("s"), count)
    return f"and a human is asked, as it is the {_nth(count)} time" if asks else "and another agent can claim it"


def _nth(count: int) -> str:
    ending = "th" if 10 <= count % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(count % 10, "th")
    return f"{count}{ending}"


# --- not held -----------------------------------------------------------------------------------------------------


def _before(handover: Handover | None) -> str:
    """What became of the last attempt, where it matters now."""
    return (
        f"The last attempt, by {clean(handover.agent)}, {outcome(handover.reason, handover.message)}."
        if handover
        else ""
    )


def _ready(row: TaskRow, facts: Facts) -> Standing:
    task, now = row.task, facts.now
    since = _ready_since(row, facts)
    role = f" for the role {quoted(task.role)}" if task.role else ""
    claim = typed("claim", "--agent", "NAME", *(("--role", task.role) if task.role else ()))
    cancel = Todo("Call it off", typed("cancel", task.id))
    before = _before(task.record.handover)
    limit = facts.limit_of(task)
    ahead = () if limit is None else (Next(limit, "its run's deadline is reached: the task fails"),)
    if limit is not None and is_late(limit, now):
        says = (
            f"{quoted(task.name)} cannot be claimed any more: its run's deadline passed {ago(limit, now)}.",
            f"{NO_SWEEPER}: nobody has ended it yet.",
        )
        return Standing(State.READY, says, OVERDUE, since, (), (SWEEP,))
    closed = held_up(task, facts)
    if closed is not None:
        says_closed = f"{quoted(task.name)} is ready, but {closed.says}"
        opens = () if closed.next is None else (closed.next,)
        trouble = ASKING if closed.asking else PARKED
        todo = (*closed.todo, cancel)
        return Standing(State.READY, _some(says_closed, before), trouble, since, (*opens, *ahead), todo)
    if task.role == RUN_ROLE and task.record.handover is not None:
        says_stopped = f"{quoted(task.name)} was stopped before it was done, and waits to be resumed."
        todo_again = (Todo("Run its command again", resume_command(task.id)), cancel)
        return Standing(State.READY, _some(says_stopped, before), IDLE, since, ahead, todo_again)
    stands = "is ready" if since is None else f"has been ready for {rough(now - since)}"
    if task.role == STEP_ROLE and task.run is not None:
        says_step = f"{quoted(task.name)} {stands}: it is a step of a flow, and waits for whoever runs that."
        todo_go_on = (Todo("Go on with the flow, if nobody runs it", resume_flow(task.run)), cancel)
        return Standing(State.READY, _some(says_step, before), IDLE, since, ahead, todo_go_on)
    says_ready = f"{quoted(task.name)} {stands}: any agent that asks{role} can have it."
    todo = (Todo("Start an agent, or take it yourself", claim), cancel)
    return Standing(State.READY, _some(says_ready, before, _turn(facts)), IDLE, since, ahead, todo)


def resume_command(task: TaskId) -> str:
    """What to type to have a command under watch run once more."""
    return typed("run", "--resume", task)


def resume_flow(run: RunId) -> str:
    """What to type to go on with a flow that nobody runs any more."""
    return typed("resume", run)


def _turn(facts: Facts) -> str:
    """Why it may not have been its turn; that nobody works at all is known only where no timer runs."""
    if facts.quiet:
        return "No agent holds anything at the moment. Is one running?"
    return "Whoever asks gets the highest priority first, then the oldest."


def _some(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)


def _ready_since(row: TaskRow, facts: Facts) -> Millis | None:
    """Since when a task could be claimed; None where only its past would tell, and that was not looked at."""
    task = row.task
    known = [task.created_at, task.spec.not_before or 0]
    if facts.root == task.id:
        known += [attempt.ended_at for attempt in facts.attempts]
        known += [question.closed_at or 0 for question in facts.asked]
        known += [need.task.ended_at or 0 for need in facts.needed]
    elif task.record.token or task.record.questions or task.spec.needs:
        return None
    return Millis(max(known))


def _delayed(row: TaskRow, now: int) -> Standing:
    task, due = row.task, row.due
    assert due is not None  # noqa: S101 - for the type checker
    handover = task.record.handover
    cancel = Todo("Call it off", typed("cancel", task.id))
    if task.spec.not_before is not None and due == task.spec.not_before:
        why = f"{quoted(task.name)} is not to start before its time."
    elif handover is not None:
        why = f"{quoted(task.name)} pauses before it is tried again."
    else:
        why = f"{quoted(task.name)} pauses."
    says = _some(why, _before(handover))
    if is_late(due, now):
        late = f"Its pause was over {ago(due, now)}, but it has not gone back to the pool. {NO_SWEEPER}."
        return Standing(State.DELAYED, (*says, late), OVERDUE, None, (), (SWEEP, cancel))
    return Standing(
        State.DELAYED, says, PAUSED, None, (Next(due, "it goes back to the pool and can be claimed"),), (cancel,)
    )


def _nowhere(task: Task) -> Standing:
    says = (
        f"{quoted(task.name)} is open, but nothing will ever move it: it is not held, not ready, waits for nothing.",
        "This must not happen. It is a fault of Allswell's, not of yours; please report it.",
    )
    todo = (Todo("Check the whole watch", "allswell doctor"), Todo("Call it off", typed("cancel", task.id)))
    return Standing(NOWHERE, says, STUCK, task.created_at, (), todo)


# --- questions ----------------------------------------------------------------------------------------------------


def stand_question(question: Question, now: int) -> Standing:
    """A question's standing, with one command for each way to answer it."""
    asked = (
        f"{clean(question.asked_by)} asked {ago(question.asked_at, now)}"
        if question.asked_by != "allswell"
        else f"You were asked {ago(question.asked_at, now)}"
    )
    text = f"{asked}: {quoted(question.text, 1_000)}"
    if question.closed_at is None:
        seen = f" {clean(question.dismissed_by)} has dismissed it." if question.dismissed_at is not None else ""
        says = (text, f"It waits for you, and never expires.{seen}")
        todo = tuple(Todo(option.label, _answer(question, option)) for option in question.options)
        if question.kind == NOT_VERIFIED and question.task is not None:
            todo = (Todo("Run what verifies it once more", typed("verify", question.task)), *todo)
        return Standing("open", says, ASKING, question.asked_at, (), todo)
    by = f" by {clean(question.answered_by)}" if question.answered_by else ""
    if question.choice == "withdrawn":
        return Standing(
            "withdrawn",
            (text, f"It was withdrawn {ago(question.closed_at, now)}: {_why_withdrawn(question)}."),
            FINE,
        )
    said = f", {quoted(question.answer)}" if question.answer else ""
    closed = f"It was answered {ago(question.closed_at, now)}{by}: {clean(question.choice or '')}{said}."
    return Standing("answered", (text, closed), FINE, question.asked_at)


def _why_withdrawn(question: Question) -> str:
    if question.service is not None:
        return "the service works again"
    return (
        "its program was run again, or it ended" if question.kind == FLOW_LEFT else "its task ended without an answer"
    )


def _answer(question: Question, option: Option) -> str:
    command = typed("answer", question.id, option.key)
    match takes(option.act):
        case Takes.TASKS:
            return f"{command} --subtasks FILE"
        case Takes.WORDS:
            return f'{command} "your words"'
        case _:
            return command
