"""The rules for what comes from outside a lease: a human's answer, about a task, a service or a message; a cancel."""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain import quarantine, serving
from allswell.domain.answer import answer, cancel
from allswell.domain.case import Outcome
from allswell.domain.command import Answer, Cancel, NewTask
from allswell.domain.decision import Decision
from allswell.domain.names import message_of_question, service_of_question, task_of_question
from allswell.domain.question import Question
from allswell.domain.rule import Names, Rule
from allswell.domain.situation import Situation
from allswell.domain.submit import accept_among, awaited_among, check_needs, check_task, lanes_of
from allswell.domain.task import State, Task
from allswell.errors import Bug, Refused


def call_off(situation: Situation, command: Cancel) -> Decision:
    """Decide a cancel."""
    out = cancel(situation.case(command.task), command, situation.now)
    return Decision(out.answer, outcomes=(out,))


def carry_out(situation: Situation, command: Answer) -> Decision:
    """Decide a human's answer to a question about a task, with the smaller tasks where it is split."""
    question = situation.questions.get(command.question)
    if question is None:
        raise Refused("unknown_question", f"there is no question {command.question}", where="question")
    if question.message is not None:
        return quarantine.answered(question, command, situation)
    if question.task is None:
        return _about_service(situation, question, command)
    case = situation.case(question.task)
    out, closed = answer(case, question, command, situation.now, situation.run_of(case.task))
    if closed is question:
        return Decision(out.answer)
    subtasks = _smaller_tasks(situation, case.task, command.subtasks) if out.case.task.state == State.SPLIT else []
    return Decision(out.answer, outcomes=(out, *subtasks), closed=(closed,))


def _about_service(situation: Situation, question: Question, command: Answer) -> Decision:
    if question.service is None:
        raise Bug(f"question {question.id} is about nothing")
    return serving.decision(serving.answer(situation.service(question.service), question, command, situation.now))


def _smaller_tasks(situation: Situation, task: Task, subtasks: Sequence[NewTask]) -> list[Outcome]:
    fresh = awaited_among(subtasks)
    for new in subtasks:
        check_task(new)
        if new.run != task.run:
            raise Refused("wrong_run", f"{new.name} must be in the run of the task it replaces", where="subtasks")
        if new.id in situation.cases or not fresh.keys() >= set(new.needs):
            raise Refused("bad_subtask", f"{new.name} may need only its fellow subtasks", where="subtasks")
    check_needs(subtasks)
    return [accept_among(situation, new, fresh) for new in subtasks]


def _names(command: Answer) -> Names:
    """The question's id tells what it is about; a task's run is concerned, as its clock may go on."""
    tasks = [id_ for new in command.subtasks for id_ in (new.id, *new.needs)]
    runs = [new.run for new in command.subtasks if new.run is not None]
    if message_of_question(command.question) is not None:
        return Names(questions=(command.question,))
    new = Names(questions=(command.question,), tasks=tasks, runs_shared=runs, lanes=lanes_of(command.subtasks))
    service = service_of_question(command.question)
    if service is not None:
        return {**new, "services": (service,)}
    task = (task_of_question(command.question),)
    return {**new, "held": task, "runs_of": task}


RULES = (
    Rule(Cancel, call_off, lambda command: Names(held=(command.task,))),
    Rule(Answer, carry_out, _names),
)
