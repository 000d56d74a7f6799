"""A task that has ended: how, why, and what can be done about it; how attempts ended, in words."""

from __future__ import annotations

from allswell.domain.claim import RUN_ROLE, STEP_ROLE
from allswell.domain.names import TaskId
from allswell.domain.retry import IN_WORDS, ErrorClass
from allswell.domain.task import STATES, State, Task
from allswell.domain.verification import ACCEPTED, NOT_VERIFIED, shown, verify_of
from allswell.engine.explaining.facts import Facts
from allswell.engine.explaining.shapes import Standing, Todo
from allswell.engine.explaining.words import ago, clean, length, quoted, typed

FINE = 0
"""How much something needs somebody that needs nobody."""


def stand_ended(task: Task, facts: Facts) -> Standing:
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
        case State.FAILED:
            says = [f"{name} failed {when}: {_failed(record.reason)}."]
            if last and last.detail and not record.reason.startswith(clean(last.detail)):
                says.append(f"The last thing {clean(last.agent)} said: {quoted(last.detail)}.")
        case State.CANCELLED:
            says = [f"{name} was called off {when}: {clean(record.reason)}."]
        case State.SPLIT:
            says = [f"{name} was replaced {when} by smaller tasks ({clean(record.reason)})."]
        case _:
            says = [f"{name} was skipped {when}: {clean(_named(record.reason, facts))}."]
    if record.retried_as is not None:
        says.append(f"It was handed over again, as {record.retried_as}.")
    return Standing(task.state, tuple(says), FINE, task.ended_at, (), _to_do(task))


def _to_do(task: Task) -> tuple[Todo, ...]:
    """What a person could do about it."""
    if task.record.retried_as is not None:
        return (Todo("See how the new one stands", typed("why", task.record.retried_as)),)
    if task.state in (State.DONE, State.SPLIT):
        return ()
    read = Todo("Read what it printed", typed("logs", task.id))
    seen = Todo("Say that you have seen it", typed("dismiss", task.id))
    if task.role == RUN_ROLE:
        again = Todo("Run its command again", typed("run", "--resume", task.id))
        return (read, again, seen) if task.state == State.FAILED else (again,)
    if task.role == STEP_ROLE and task.run is not None and task.state == State.FAILED:
        return read, Todo("Go on with its flow", typed("resume", task.run))
    if task.role == STEP_ROLE or task.spec.flow or task.spec.origin is not None:
        return ()
    return (Todo("Hand it over again, as a new task that knows what came of this one", typed("retry", task.id)),)


def _named(reason: str, facts: Facts) -> str:
    """A reason that speaks of a task by its id, with its name instead."""
    id_, was, how = reason.partition(" was ")
    need = facts.rows.get(TaskId(id_))
    return reason if need is None or not was else f"{quoted(need.task.name)}, which it needed, was {how}"


def _failed(reason: str) -> str:
    return "its run's deadline passed" if reason == "run_timeout" else clean(reason)


_OUTCOMES = {
    "done": "finished it",
    "agent_timeout": "reached its hard limit",
    "agent_idle": "gave no sign of progress for too long",
    "lease_lapsed": "stopped renewing its lease: it died, or was cut off",
    "agent_died": "died",
    "cost_limit": "was ended: the task had cost what it may",
    "agent_stalled": "missed too many check-ins in a row",
    "run_timeout": "was cut off by its run's deadline",
    "parked": "met a limit and was asked to wait",
    "released": "gave it back",
    "not_started": "could not be started",
    "supervisor_stopped": "was stopped with its supervisor",
    "supervisor_failed": "was given back: its supervisor could not tell how it ended",
    "usage_limit": "met a usage limit",
    "asked": "asked a human",
    "cancelled": "was called off",
    "skipped": "was ended: the task was skipped",
    "split": "was ended: the task was split",
    "failed": "was ended: the task failed",
}


def outcome(reason: str, detail: str = "") -> str:
    """How an attempt ended, as the second half of a sentence about its holder."""
    if reason == NOT_VERIFIED:
        return clean(detail.partition("\n")[0].removeprefix("It ").rstrip("."))
    kind, _, error = reason.partition(":")
    words = _OUTCOMES.get(reason, clean(reason.replace("_", " ")))
    if error and kind == "failed":
        of = IN_WORDS[ErrorClass(error)] if error in list(ErrorClass) else clean(error)
        words = "failed" if error == ErrorClass.TRANSIENT else f"failed ({of})"
    return (
        f"{words}: {quoted(detail)}" if detail and detail != reason and reason not in ("done", "run_timeout") else words
    )
