"""Python flows: a program that holds its run while it works, and whose finished steps are finished tasks of that run.

A flow is a run, and in it one task that carries the flow's name. The process that runs the program holds that task by
a lease like any other, with a token that grows: that is what makes a second process wait and a stale one harmless. The
task is taken up by its id (`TakeUp`), never claimed from the pool: no other agent could do the work. So it never rests
there either: whenever its holder is gone (died, failed, was interrupted, reached its limit), a human is asked. The
question says what happened and offers to call the flow off; running the program again withdraws it.

A step is not handed out: its process does it, and says so when it is done (`RecordStep`). What is written is a task in
its final state with its result, its one attempt and its event, in one commit. It was never open, so it needs no lease
and no timer. The word carries the flow's token and is refused when that is not the current one, so a process that
was given up cannot record over its successor. Only the lease of the flow is read for it: a recorded step must cost
little more than its commit.
"""

from __future__ import annotations

from msgspec.structs import replace

from allswell.domain.answer import withdraw
from allswell.domain.case import Asked, Case, Outcome, ask, come_to_rest, end_attempt, resume_clock
from allswell.domain.claim import STEP_ROLE, grant
from allswell.domain.command import Claim, RecordStep, TakeUp
from allswell.domain.event import Event
from allswell.domain.lease import Lease, ends_at
from allswell.domain.names import Millis, Token
from allswell.domain.question import FLOW_LEFT_OPTIONS, Question
from allswell.domain.run import Run
from allswell.domain.submit import check_id, check_name, check_text
from allswell.domain.task import OPEN, Attempt, Record, Spec, State, Task
from allswell.errors import Bug, LeaseLost, Refused

FLOW_ROLE = "flow"
FLOW_LEFT = "flow_left"
"""The kind of the question about a flow that nobody runs."""
DIED = "agent_died"
"""How an attempt ends whose process was seen to be gone."""

_AS_ASKED = Spec()
_FIRST = Token(1)
_DONE = State.DONE.value


def leave(out: Outcome, why: str, now: Millis) -> None:
    """Nobody runs the flow any more: say so to a human, who may run its program again or call it off."""
    task = out.case.task
    text = f"The flow {task.name} ({task.run}) has stopped: {why}. Run its program again to go on, or call it off."
    ask(out, Asked(FLOW_LEFT, text, FLOW_LEFT_OPTIONS), now)


def give_up_the_dead(case: Case, command: TakeUp, now: Millis, run: Run | None = None) -> Outcome | None:
    """The end of an attempt whose holder is known to have died; None if there is no such holder."""
    lease = case.lease
    if lease is None or lease.token != command.dead or now >= ends_at(lease):
        return None
    out = Outcome(case, run=run)
    end_attempt(out, DIED, now, lapses=case.task.record.lapses + 1)
    lapsed = {"elapsed_ms": now - lease.granted_at}
    out.events.append(Event("lease_lapsed", lease.task, case.task.run, lease.agent, lease.token, lapsed))
    leave(out, f"{lease.agent} died", now)
    return out


def take_up(
    case: Case, question: Question | None, command: TakeUp, now: Millis, run: Run | None = None
) -> tuple[Outcome, Question | None]:
    """Give a flow to the process that wants to run it; the answer is its lease, or None where it is done already.

    `question` is the one about its having been left, which is withdrawn with it.
    """
    out = Outcome(case)
    task, lease = case.task, case.lease
    if not task.spec.flow:
        raise Refused("not_a_flow", f"{task.id} is a task like any other, not a flow", where="run_id")
    if task.name != command.flow.name:
        text = f"the run {task.run} is of the flow {task.name}, not of {command.flow.name}; choose another run_id"
        raise Refused("other_flow", text, where="run_id")
    if task.state == State.DONE:
        return out, None
    if task.state != OPEN:
        text = f"the flow {task.name} ({task.run}) was {task.state}: {task.record.reason}; run it under another run_id"
        raise Refused("flow_over", text, where="run_id")
    if lease is not None and lease.command == command.id and lease.agent == command.agent:
        out.answer = lease
        return out, None
    if lease is not None:
        text = f"the flow {task.name} ({task.run}) is running: {lease.agent} holds it; a holder that dies loses it"
        raise Refused("flow_running", f"{text} {(ends_at(lease) - now + 999) // 1000} s from now", where="run_id")
    if question is not None:
        told = Event("question_withdrawn", task.id, task.run, None, None, {"question": question.id})
        out.events.append(told)
        if run is not None:
            run, resumed = resume_clock(run, question, now)
            out.events += resumed
        question = withdraw(question, now)
    start = come_to_rest(replace(case, waits=()), now)
    granted = grant(start, Claim(command.id, command.agent, length=command.length), now, run)
    if granted.answer is None:
        raise Refused("flow_over", f"the run {task.run} of {task.name} has reached its deadline", where="run_id")
    granted.events[:0] = out.events
    granted.run = run
    return granted, question


def record_step(
    lease: Lease | None, known: Task | None, command: RecordStep, lane: int, now: Millis
) -> tuple[Task, Attempt, Event] | None:
    """A step as the finished task that it is, its attempt, and what is told; None if this very word came before."""
    if known is not None:
        if known.record.ended_by == command.id:
            return None
        raise Refused("step_recorded", f"the step {command.name} ({command.step}) is recorded already", where="step")
    fence(lease, command, now)
    check_id(command.step)
    check_name(command.name, "the step's name")
    check_text(command.payload, f"what {command.name} was called with")
    check_text(command.result, f"the result of {command.name}")
    if command.elapsed < 0:
        raise Bug(f"step {command.name} took {command.elapsed} ms")
    began = Millis(now - command.elapsed)
    record = Record(token=_FIRST, reason="completed", ended_by=command.id)
    task = Task(
        command.step,
        command.name,
        command.run,
        STEP_ROLE,
        lane,
        0,
        _DONE,
        began,
        now,
        _AS_ASKED,
        record,
    )
    attempt = Attempt(command.step, _FIRST, command.agent, began, now, _DONE, command.id, "completed")
    told = {"name": command.name, "elapsed_ms": command.elapsed}
    return task, attempt, Event("step_recorded", command.step, command.run, command.agent, _FIRST, told)


def fence(lease: Lease | None, command: RecordStep, now: Millis) -> None:
    """Refuse whoever does not hold the flow now, whatever it believes."""
    if lease is None:
        raise LeaseLost(command.flow, command.token, "nobody holds the flow")
    if lease.token != command.token or lease.agent != command.agent:
        raise LeaseLost(command.flow, command.token, f"{lease.agent} has taken the flow up since")
    if now >= ends_at(lease):
        raise LeaseLost(command.flow, command.token, "its time ran out")
