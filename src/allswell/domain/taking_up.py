"""Taking up a Python flow (flow.py): it is made, with its run, or freed of a holder that is gone, and then held."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allswell.domain.answer import withdraw
from allswell.domain.case import Case, Outcome, come_to_rest, end_attempt, resume_clock
from allswell.domain.claim import Granted, check_claim, grant
from allswell.domain.command import Claim, NewTask, OpenRun, TakeUp
from allswell.domain.decision import Decision
from allswell.domain.ending import open_
from allswell.domain.event import Event
from allswell.domain.flow import leave
from allswell.domain.lease import ends_at
from allswell.domain.names import Millis, QuestionId, RunId
from allswell.domain.question import Question
from allswell.domain.rule import Names, Reads, Rule
from allswell.domain.run import Run
from allswell.domain.situation import Situation
from allswell.domain.submit import accept_among, check_run, check_task, lanes_of
from allswell.domain.task import OPEN, State
from allswell.domain.tick import tick
from allswell.errors import Bug, Refused

DIED = "agent_died"
"""How an attempt ends whose process was seen to be gone."""


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
) -> tuple[tuple[Outcome, ...], Question | None]:
    """Give a flow to the process that wants to run it, or nothing where it is done already.

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
        return (), None
    if task.state != OPEN:
        text = f"the flow {task.name} ({task.run}) was {task.state}: {task.record.reason}; run it under another run_id"
        raise Refused("flow_over", text, where="run_id")
    if lease is not None and lease.command == command.id and lease.agent == command.agent:
        return (out,), None
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
    out.case = come_to_rest(replace(case, waits=()), now)
    out.run = run
    granted = grant(out.case, Claim(command.id, command.agent, length=command.length), now, run)
    if granted.answer is None:
        raise Refused("flow_over", f"the run {task.run} of {task.name} has reached its deadline", where="run_id")
    return (out, granted), question


# --- the command ------------------------------------------------------------------------------------------------------


def hold_flow(situation: Situation, command: TakeUp) -> Decision:
    """Give a flow to whoever runs it now; the answer is what was granted, or None where the flow is done."""
    new = command.flow
    check_claim(Claim(command.id, command.agent, length=command.length))
    if new.run is None or not new.flow:
        raise Bug(f"{new.name} is no flow of a run")
    case = situation.cases.get(new.id)
    if case is None:
        return _begin(situation, new, new.run, command)
    gone = _without_holder(situation, case, command)
    freed, run = (case, situation.run_of(case.task)) if gone is None else (gone.case, gone.run)
    taken, closed = take_up(freed, _about_its_leaving(situation, freed, gone), command, situation.now, run)
    outcomes = taken if gone is None else (gone, *taken)
    return Decision(_granted(situation, taken, new), outcomes=outcomes, closed=() if closed is None else (closed,))


def _begin(situation: Situation, new: NewTask, run_id: RunId, command: TakeUp) -> Decision:
    """A flow that is new, in a run that is new too, as a rule."""
    check_task(new)
    decision = Decision()
    run = situation.runs.get(run_id)
    if run is None:
        decision = open_(situation, OpenRun(command.id, run_id, new.name))
        (run,) = decision.runs
    check_run(run, run_id)
    accepted = accept_among(situation, new, {new.id: 0})
    taken, _ = take_up(accepted.case, None, command, situation.now, run)
    decision.outcomes = (accepted, *taken)
    decision.answer = _granted(situation, taken, new)
    return decision


def _without_holder(situation: Situation, case: Case, command: TakeUp) -> Outcome | None:
    """The flow without a holder whose time has run out, or who is known to have died; None where there is none such."""
    run = situation.run_of(case.task)
    if case.lease is not None and situation.now >= ends_at(case.lease):
        return tick(case, situation.now, run)
    return give_up_the_dead(case, command, situation.now, run)


def _about_its_leaving(situation: Situation, case: Case, gone: Outcome | None) -> Question | None:
    """The question that the flow waits for, be it that it was asked just now."""
    for wait in case.waits:
        if wait.kind == "question":
            asked = {question.id: question for question in (() if gone is None else gone.questions)}
            id_ = QuestionId(wait.target)
            return asked.get(id_) or situation.questions.get(id_)
    return None


def _granted(situation: Situation, taken: Sequence[Outcome], new: NewTask) -> Granted | None:
    case = taken[-1].case if taken else None
    if case is None or case.lease is None:
        return None
    return Granted(case.lease, case.task, new.payload, situation.now)


def _names(command: TakeUp) -> Names:
    new = command.flow
    runs = () if new.run is None else (new.run,)
    return Names(held=(new.id,), tasks=new.needs, runs=runs, lanes=lanes_of((new,)))


def _asked(command: TakeUp, situation: Situation) -> Reads | None:
    """The question that the flow waits for: its lock covers them."""
    case = situation.cases.get(command.flow.id)
    asked = () if case is None else [QuestionId(wait.target) for wait in case.waits if wait.kind == "question"]
    return Reads(questions=asked) if asked else None


RULES = (Rule(TakeUp, hold_flow, _names, reads=_asked),)
