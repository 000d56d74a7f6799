"""One task as it stands: what is so, what comes next by itself, and what a person could do about it.

Whatever is due and has not happened is called overdue: then no process enforces time limits, and the text says how to
start one.
"""

from __future__ import annotations

from allswell.domain.agents.fleet import MAIN
from allswell.domain.agents.status import EXPLAINED, AgentCondition, Presence
from allswell.domain.ids import Millis, RunId, TaskId
from allswell.domain.lease.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.lease.expiry import is_asked_about
from allswell.domain.lease.model import (
    LeaseRow,
    asked_at,
    due_at,
    ends_at,
    idles_at,
    is_asked,
    judged_at,
    lapses_at,
    recovered_at,
)
from allswell.domain.lease.suspension import LONGEST_STOP
from allswell.domain.lease.verification import (
    ACCEPTED,
    NOT_VERIFIED,
    claims_to_be_done,
    failed_so_far,
    shown,
    verify_of,
)
from allswell.domain.question import Option, OptionInput, Question, full_stop, in_order, labelled, takes
from allswell.domain.service.retry import IN_WORDS, ErrorClass
from allswell.domain.task.aggregate import FLOW_LEFT
from allswell.domain.task.answer import is_dismissed
from allswell.domain.task.model import NOWHERE, STATES, Handover, State, Task, TaskRow, warning_of
from allswell.engine.status.explanation import (
    StatusText,
    SuggestedAction,
    UpcomingStep,
    ago,
    clean,
    length,
    many,
    quoted,
    rough,
    typed,
    upcoming,
)
from allswell.engine.status.services import TaskFacts, held_up, would_take

# What must prove that a task is done, and how that stands (domain/lease/verification.py).


def stand_proof(row: TaskRow) -> list[str]:
    """Sentences about a held task: whether its holder says that it is done, and what has failed."""
    command, said, lease = verify_of(row.task), row.task.record.said_done, row.lease
    if not command or lease is None:
        return []
    says = []
    checks, most = row.task.record.failed_checks, row.task.spec.policy.verify_attempts
    if checks:
        times = f"{failed_so_far(row.task)} of {most}"
        says.append(
            f"It was reported as done before, and `{clean(shown(command))}` failed ({checks[-1].why}), {times}."
        )
    if said is not None and said.token == lease.token:
        check, run = clean(shown(command)), typed("verify", row.task.id)
        says.append(f"{clean(lease.agent)} reports that it is done; that counts when `{check}` has passed.")
        says.append(f"Its supervisor runs that; without one, you can: `{run}`.")
    return says


# A task that has ended: how, why, and what can be done about it; how attempts ended, in words.

FINE = 0
"""How urgently something needs a human that needs none."""


def stand_ended(task: Task, facts: TaskFacts) -> StatusText:
    """How it ended, and what came after it."""
    name, record, now = quoted(task.name), task.record, facts.now
    ended = task.ended_at or task.created_at
    when, took = ago(ended, now), length(ended - task.created_at)
    last = facts.attempts[-1] if facts.attempts and facts.root == task.id else None
    match STATES[task.state]:
        case State.DONE:
            who = f": {clean(last.agent)} finished it {when}" if last else f" since {when}"
            nth = f", in attempt {last.token}" if last and last.token > 1 else ""
            says = [f"{name} is done{who}{nth}, {took} after it was submitted."]
            if verify_of(task):
                accepted = "did not pass; a human accepted it as it is"
                how = accepted if record.reason == ACCEPTED else "passed"
                says.append(f"`{clean(shown(verify_of(task)))}` {how}.")
            if last and last.warning:
                says.append(f"Warning: {full_stop(clean(last.warning))}")
        case State.FAILED:
            says = [f"{name} failed {when}: {full_stop(_failed(record.reason))}"]
            if last and last.detail and not record.reason.startswith(clean(last.detail)):
                says.append(f"The last report of {clean(last.agent)} said: {quoted(last.detail)}.")
        case State.CANCELLED:
            says = [f"{name} was cancelled {when}: {full_stop(clean(record.reason))}"]
        case State.SPLIT:
            says = [f"{name} was replaced {when} by smaller tasks ({clean(record.reason)})."]
        case _:
            says = [f"{name} was skipped {when}: {full_stop(clean(_named(record.reason, facts)))}"]
    if record.retried_as is not None:
        says.append(f"It was submitted again, as {record.retried_as}.")
    if is_dismissed(task) and record.dismissed is not None:
        says.append(f"{clean(record.dismissed.by)} has dismissed it {ago(record.dismissed.dismissed_at, now)}.")
    if facts.went_on is not None and facts.root == task.id:
        says.append(f"Its run went on in {facts.went_on}.")
        return StatusText(task.state, tuple(says), FINE, task.ended_at, (), (_see_run(facts.went_on),))
    root = None if facts.root is None else facts.rows.get(facts.root)
    others = task.id in facts.skipped or (
        root is not None and root.task is not task and root.task.state == State.SKIPPED
    )
    return StatusText(task.state, tuple(says), FINE, task.ended_at, (), _to_do(task, others=others))


def _see_run(run: RunId) -> SuggestedAction:
    return SuggestedAction("Explain that one", typed("why", run))


def _to_do(task: Task, *, others: bool) -> tuple[SuggestedAction, ...]:
    """What a person could do about it; `others` were skipped because of it."""
    if task.record.retried_as is not None:
        return (SuggestedAction("Explain the new one", typed("why", task.record.retried_as)),)
    if task.state in (State.DONE, State.SPLIT):
        return ()
    read = SuggestedAction("Read what it printed", typed("logs", task.id))
    seen = [] if is_dismissed(task) else [SuggestedAction("Mark it as seen", typed("dismiss", task.id))]
    if task.role == RUN_ROLE:
        again = SuggestedAction("Run its command again", typed("run", "--resume", task.id))
        return (read, again, *seen) if task.state == State.FAILED else (again,)
    if task.role == STEP_ROLE and task.run is not None and task.state == State.FAILED:
        return read, SuggestedAction("Continue its flow", typed("resume", task.run))
    if task.role == STEP_ROLE or task.spec.flow or task.spec.origin is not None:
        return ()
    what = "Submit it again, as a new task with the history of this one"
    again = SuggestedAction(
        f"{what}, with the tasks that were skipped because of it" if others else what,
        retry_command(task.id, others=others),
    )
    return (again, *seen) if task.state == State.FAILED else (again,)


def retry_command(task: TaskId, *, others: bool) -> str:
    """What hands an ended task over again, with the others that were skipped because of it."""
    return typed("retry", task, *(["--with-dependents"] if others else []))


def mending_command(task: Task, *, others: bool = False) -> str:
    """What to type so that a failed task is failed no longer: the work is done again, or the failure was seen."""
    if task.role == RUN_ROLE:
        return typed("run", "--resume", task.id)
    if task.role == STEP_ROLE and task.run is not None:
        return typed("resume", task.run)
    if task.role == STEP_ROLE or task.spec.flow or task.spec.origin is not None:
        return typed("dismiss", task.id)
    return retry_command(task.id, others=others)


def _named(reason: str, facts: TaskFacts) -> str:
    """A reason that speaks of a task by its id, with its name instead."""
    id_, was, how = reason.partition(" was ")
    need = facts.rows.get(TaskId(id_))
    return reason if need is None or not was else f"{quoted(need.task.name)}, which it needed, was {how}"


def _failed(reason: str) -> str:
    return "its run's deadline passed" if reason == "run_timeout" else clean(reason)


_OUTCOMES = {
    "done": "finished it",
    "agent_timeout": "reached its time limit",
    "agent_idle": "showed no progress for too long",
    "lease_lapsed": "stopped renewing its lease: it died, or was cut off",
    "agent_died": "died",
    "cost_limit": "was ended: the task reached its cost limit",
    "token_limit": "was ended: the task reached its token limit",
    "agent_stalled": "missed too many check-ins in a row",
    "run_timeout": "was ended by its run's deadline",
    "parked": "was rate limited",
    "released": "gave it back",
    "not_started": "could not be started",
    "supervisor_stopped": "was stopped with its supervisor",
    "supervisor_failed": "was given back: its supervisor does not know how it ended",
    "usage_limit": "reached a usage limit",
    "account_refused": "was refused by its provider: its login, or its quota",
    "asked": "asked a human",
    "cancelled": "was cancelled",
    "skipped": "was ended: the task was skipped",
    "split": "was ended: the task was split",
    "failed": "was ended: the task failed",
}


def outcome(reason: str, detail: str = "") -> str:
    """How an attempt ended, as the second half of a sentence about its holder."""
    if reason == NOT_VERIFIED:
        return clean(detail.partition("\n")[0].removeprefix("It ").rstrip("."))
    if warning := warning_of(reason, detail):
        return f"{_OUTCOMES[reason]}; {clean(warning)}"
    if reason == "released" and detail in _OUTCOMES:  # its supervisor gave it back, and says why
        return _OUTCOMES[detail]
    kind, _, error = reason.partition(":")
    words = _OUTCOMES.get(reason, clean(reason.replace("_", " ")))
    if error and kind == "failed":
        of = IN_WORDS[ErrorClass(error)] if error in list(ErrorClass) else clean(error)
        words = "failed" if error == ErrorClass.TRANSIENT else f"failed ({of})"
    return (
        f"{words}: {quoted(detail)}" if detail and detail != reason and reason not in ("done", "run_timeout") else words
    )


LATE = 5_000
"""A sweeper that lives looks at least once a second; what is due for longer than this has none."""
SWEEP = SuggestedAction("Start a process that enforces time limits", "allswell watch")
NO_SWEEPER = "No process enforces time limits"

BUSY, IDLE, PAUSED, PARKED, OWING, STALLED, OVERDUE, ASKING, STUCK = 20, 30, 40, 50, 60, 70, 80, 90, 100


def is_late(moment: int | None, now: int) -> bool:
    """Whether something should have happened by now and has not."""
    return moment is not None and moment + LATE <= now


def stand(row: TaskRow, facts: TaskFacts) -> StatusText:
    """A task's standing. What it waits for is the chain's business."""
    match row.state:
        case State.HELD:
            return _held(row, facts)
        case State.WAITING:
            return StatusText(State.WAITING, (), FINE)
        case State.READY:
            return _ready(row, facts)
        case State.DELAYED:
            return _delayed(row, facts.now)
        case "nowhere":
            return _nowhere(row.task)
        case _:
            return stand_ended(row.task, facts)


# --- held ---------------------------------------------------------------------------------------------------------


def _held(row: TaskRow, facts: TaskFacts) -> StatusText:
    lease, task, now = facts.lease_of(row), row.task, facts.now
    who = clean(lease.agent)
    says = [f"{quoted(task.name)} has been held by {who} for {rough(now - lease.granted_at)}{_which(lease.token)}."]
    says.append(_last_sign(lease, who, now))
    if (stopped := task.record.stopped) is not None:
        for_good = length(LONGEST_STOP)
        says.append(
            f"It was stopped ({clean(stopped.by)}) {ago(stopped.at, now)}: its limits stand until it goes on "
            f"(fg, kill -CONT), and after {for_good} it is given back with its work kept."
        )
    says += stand_proof(row)
    if condition := explained_state(task, facts):
        says.append(full_stop(f"{who} is {condition}"))
    says += [full_stop(f"{who}: {clean(post.remark)}") for post in facts.posts if post.task == task.id and post.remark]
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
    todo = [SuggestedAction(f"Cancel it; {who} is refused from then on", typed("cancel", task.id))]
    if verify_of(task) and claims_to_be_done(task):
        todo.insert(0, SuggestedAction("Run the command that verifies it", typed("verify", task.id)))
    end = ends_at(lease)
    if is_late(end, now):
        says.append(f"Its lease ended {ago(end, now)} ({_what_ends(lease, end)}), but it is still with {who}.")
        says.append(f"{NO_SWEEPER}: it was not taken back yet.")
        return StatusText(State.HELD, tuple(says), OVERDUE, lease.granted_at, (), (SWEEP, *todo))
    if is_late(row.due, now) and is_late(due_at(lease), now):
        says.append(f"{NO_SWEEPER}: {who}'s check-ins have not been judged since {ago(due_at(lease), now)}.")
        return StatusText(State.HELD, tuple(says), OVERDUE, lease.granted_at, _ahead(row, facts), (SWEEP, *todo))
    return StatusText(State.HELD, tuple(says), trouble, lease.granted_at, _ahead(row, facts), tuple(todo))


def explained_state(task: Task, facts: TaskFacts) -> str:
    """That its agent waits for a provider that refuses, or repeats itself, if it does, and what that is."""
    record = task.record
    noted = ((AgentCondition.FOR_PROVIDER, record.refused), (AgentCondition.REPEATING, record.repeats))
    states = [(condition.value, words) for condition, words in noted if words]
    states += [(one.condition, one.evidence) for one in facts.posts if one.task == task.id]
    found = [f"{condition}: {clean(words)}" for condition, words in states if condition in EXPLAINED]
    return found[0] if found else ""


def _which(token: int) -> str:
    return "" if token == 1 else f" (attempt {token})"


def _last_sign(lease: LeaseRow, who: str, now: int) -> str:
    share = "" if lease.progress is None else f" ({lease.progress:.0%})"
    if lease.checkin_at is None:
        renewed = f", but it is alive: it renewed its lease {ago(lease.renewed_at, now)}" if lease.length else ""
        return f"{who} has not checked in yet{renewed if lease.renewed_at > lease.granted_at else ''}."
    note = f": {quoted(lease.note)}" if lease.note else ""
    return f"{who} last checked in {ago(lease.checkin_at, now)}{note}{share}."


def _what_ends(lease: LeaseRow, end: int) -> str:
    if end == lease.deadline:
        if lease.own is not None:
            return "the deadline of its run has passed"
        return f"its limit of {length(lease.deadline - lease.granted_at)} was reached"
    if end == lapses_at(lease):
        return f"it was to be renewed every {length(lease.length or 0)}"
    if end == idles_at(lease):
        return f"no check-in for {length(lease.idle or 0)}"
    return "its agent is stalled"


def _ahead(row: TaskRow, facts: TaskFacts) -> tuple[UpcomingStep, ...]:
    """What the clocks of a lease will do, the soonest first."""
    lease, task, now = facts.lease_of(row), row.task, facts.now
    who = clean(lease.agent)
    back = "its program can be run elsewhere" if task.spec.flow else "the task is taken back"
    found: list[UpcomingStep] = []
    recovered, lapse, idle = recovered_at(lease), lapses_at(lease), idles_at(lease)
    if recovered is not None:
        found.append(upcoming(recovered, f"{back} from {who}, {_after(task, 'stalls')}"))
    if lapse is not None:
        found.append(
            upcoming(
                Millis(lapse), f"unless {who} renews its lease by then (a running agent does), {back}", routine=True
            )
        )
    if idle is not None:
        found.append(upcoming(idle, f"unless {who} checks in by then, {back}: it is idle"))
    judged = judged_at(lease)
    if recovered is None and judged is not None:
        asked = asked_at(lease, lease.judged + 1)
        misses = facts.agents[lease.agent].misses if lease.agent in facts.agents else 0
        if asked is not None and asked > now:
            found.append(upcoming(asked, f"{who} is asked for a check-in"))
        elif is_asked(lease, now):
            found.append(upcoming(judged, f"unless {who} checks in by then, that is miss number {misses + 1}"))
    limit = lease.limit
    if task.record.stopped is not None:
        given_back = Millis(task.record.stopped.at + LONGEST_STOP)
        found.append(upcoming(given_back, f"unless it has gone on by then, {back}, with its work kept"))
    elif lease.own is not None:
        found.append(upcoming(lease.deadline, "its run's deadline is reached: the task fails"))
    elif limit is not None:
        then = "a human is asked" if task.spec.flow else f"{back}, {_after(task, 'timeouts')}"
        found.append(upcoming(lease.deadline, f"its limit of {length(limit)} is reached: {then}"))
    return tuple(sorted((one for one in found if one.at is not None and one.at <= lease.deadline), key=_when))


def _when(one: UpcomingStep) -> int:
    return one.at or 0


def _after(task: Task, counter: str) -> str:
    """Where a task goes that ends another attempt badly."""
    if verify_of(task) and claims_to_be_done(task):  # it is not done over again
        return "and a human is asked, because it was reported as done"
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


def _ready(row: TaskRow, facts: TaskFacts) -> StatusText:
    task, now = row.task, facts.now
    since = _ready_since(row, facts)
    role = f" for the role {quoted(task.role)}" if task.role else ""
    claim = typed("claim", "--agent", "NAME", *(("--role", task.role) if task.role else ()))
    cancel = SuggestedAction("Cancel it", typed("cancel", task.id))
    before = _before(task.record.handover)
    limit = facts.limit_of(task)
    ahead = () if limit is None else (upcoming(limit, "its run's deadline is reached: the task fails"),)
    if limit is not None and is_late(limit, now):
        says = (
            f"{quoted(task.name)} cannot be claimed any more: its run's deadline passed {ago(limit, now)}.",
            f"{NO_SWEEPER}: it was not ended yet.",
        )
        return StatusText(State.READY, says, OVERDUE, since, (), (SWEEP,))
    closed = held_up(task, facts)
    if closed is not None:
        says_closed = f"{quoted(task.name)} is ready, but {closed.says}"
        opens = () if closed.next is None else (closed.next,)
        trouble = ASKING if closed.asking else PARKED
        todo = (*closed.todo, cancel)
        return StatusText(State.READY, _some(says_closed, before), trouble, since, (*opens, *ahead), todo)
    if task.role == RUN_ROLE and task.record.handover is not None:
        says_stopped = f"{quoted(task.name)} was stopped before it was done, and can be resumed."
        todo_again = (SuggestedAction("Run its command again", resume_command(task.id)), cancel)
        return StatusText(State.READY, _some(says_stopped, before), IDLE, since, ahead, todo_again)
    stands = "is ready" if since is None else f"has been ready for {rough(now - since)}"
    if task.role == STEP_ROLE and task.run is not None:
        says_step = f"{quoted(task.name)} {stands}: it is a step of a flow, and waits for the process that runs it."
        todo_go_on = (SuggestedAction("Continue the flow, if no process runs it", resume_flow(task.run)), cancel)
        return StatusText(State.READY, _some(says_step, before), IDLE, since, ahead, todo_go_on)
    says_ready = f"{quoted(task.name)} {stands}: any agent that asks{role} can have it."
    todo = (SuggestedAction("Start an agent, or take it yourself", claim), cancel)
    silent = next((one for one in facts.dead if any(would_take(post, task) for post in one.posts)), None)
    if silent is None or any(would_take(post, task) for post in facts.posts):
        return StatusText(State.READY, _some(says_ready, before, _turn(facts)), IDLE, since, ahead, todo)
    heard = f"last heard {ago(silent.beaten_at, now)}"
    says_dead = f"The supervisor {clean(silent.name)} on {clean(silent.host)}, whose agents would, was {heard}."
    again = SuggestedAction("Start it again", up_command(silent))
    return StatusText(State.READY, _some(says_ready, before, says_dead), IDLE, since, ahead, (again, *todo))


def up_command(supervisor: Presence) -> str:
    """What to type to start a supervisor again."""
    return "allswell up" if supervisor.name == MAIN else typed("up", "--name", supervisor.name)


def resume_command(task: TaskId) -> str:
    """What to type to have a command under watch run once more."""
    return typed("run", "--resume", task)


def resume_flow(run: RunId) -> str:
    """What to type to go on with a flow that no process runs any more."""
    return typed("resume", run)


def _turn(facts: TaskFacts) -> str:
    """Why it may not have been its turn; that no agent works at all is known only if no timer runs."""
    if facts.quiet:
        return "No agent holds a task now. Is one running?"
    return "The task with the highest priority is given out first, then the oldest."


def _some(*sentences: str) -> tuple[str, ...]:
    return tuple(sentence for sentence in sentences if sentence)


def _ready_since(row: TaskRow, facts: TaskFacts) -> Millis | None:
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


def _delayed(row: TaskRow, now: int) -> StatusText:
    task, due = row.task, row.due
    assert due is not None  # noqa: S101 - for the type checker
    handover = task.record.handover
    cancel = SuggestedAction("Cancel it", typed("cancel", task.id))
    if task.spec.not_before is not None and due == task.spec.not_before:
        why = f"{quoted(task.name)} is not to start before its time."
    elif handover is not None:
        why = f"{quoted(task.name)} pauses before it is tried again."
    else:
        why = f"{quoted(task.name)} pauses."
    says = _some(why, _before(handover))
    if is_late(due, now):
        late = f"Its pause was over {ago(due, now)}, but it is not ready yet. {NO_SWEEPER}."
        return StatusText(State.DELAYED, (*says, late), OVERDUE, None, (), (SWEEP, cancel))
    return StatusText(State.DELAYED, says, PAUSED, None, (upcoming(due, "it is ready, and can be claimed"),), (cancel,))


def _nowhere(task: Task) -> StatusText:
    says = (
        f"{quoted(task.name)} is open, but nothing will ever move it: it is not held, not ready, waits for nothing.",
        "This must not happen. It is a bug of Allswell; please report it.",
    )
    todo = (
        SuggestedAction("Check everything", "allswell doctor"),
        SuggestedAction("Report it with its events", typed("events", "--task", task.id, "--json")),
    )
    return StatusText(NOWHERE, says, STUCK, task.created_at, (), todo)


# --- questions ----------------------------------------------------------------------------------------------------


def stand_question(question: Question, now: int) -> StatusText:
    """A question's standing, with one command for each way to answer it."""
    asked = (
        f"{clean(question.asked_by)} asked {ago(question.asked_at, now)}"
        if question.asked_by != "allswell"
        else f"You were asked {ago(question.asked_at, now)}"
    )
    text = f"{asked}: {quoted(question.text, 1_000)}"
    if question.closed_at is None:
        seen = f" {clean(question.dismissed_by)} has dismissed it." if question.dismissed_at is not None else ""
        says = (text, f"It waits for you and never expires.{seen}")
        todo = tuple(
            SuggestedAction(labelled(option), _answer(question, option)) for option in in_order(question.options)
        )
        if question.kind == NOT_VERIFIED and question.task is not None:
            todo = (SuggestedAction("Run the command that verifies it again", typed("verify", question.task)), *todo)
        return StatusText("open", says, ASKING, question.asked_at, (), todo)
    by = f" by {clean(question.answered_by)}" if question.answered_by else ""
    if question.choice == "withdrawn":
        return StatusText(
            "withdrawn",
            (text, f"It was withdrawn {ago(question.closed_at, now)}: {_why_withdrawn(question)}."),
            FINE,
        )
    said = f", {quoted(question.answer)}" if question.answer else ""
    closed = f"It was answered {ago(question.closed_at, now)}{by}: {clean(question.choice or '')}{said}."
    return StatusText("answered", (text, closed), FINE, question.asked_at)


def _why_withdrawn(question: Question) -> str:
    if question.service is not None:
        return "the service works again"
    return "its program was run again, or ended" if question.kind == FLOW_LEFT else "its task ended without an answer"


def _answer(question: Question, option: Option) -> str:
    command = typed("answer", question.id, option.key)
    match takes(option.act):
        case OptionInput.TASKS:
            return f"{command} --subtasks FILE"
        case OptionInput.WORDS:
            return f'{command} "your words"'
        case _:
            return command
