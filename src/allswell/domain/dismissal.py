"""Seen: a human has looked at something, and wants to hear no more of it.

It decides nothing. A question stays open, holds what it held, and can still be answered; an ended task stays as it
ended. What was dismissed is only left out of what needs somebody, with who did it. A question that something waits for
is counted all the same, for the work stands still until somebody answers.

What happens afterwards is news again: a task that has had another attempt since is not dismissed any more.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from msgspec.structs import replace

from allswell.domain.case import Case, Outcome, event, state
from allswell.domain.command import Command
from allswell.domain.decision import Decision
from allswell.domain.event import Event
from allswell.domain.names import (
    CommandId,
    QuestionId,
    TaskId,
    message_of_question,
    service_of_question,
    task_of_question,
)
from allswell.domain.question import Question
from allswell.domain.rule import Names, Rule
from allswell.domain.situation import Situation
from allswell.domain.submit import check_name
from allswell.domain.task import ENDS, Dismissal, State, Task, Wait
from allswell.errors import Refused


class DismissQuestion(Command, frozen=True, gc=False):
    """Somebody has seen a question, and does not want to be told of it."""

    id: CommandId
    question: QuestionId
    by: str


class DismissTask(Command, frozen=True, gc=False):
    """Somebody has seen how a task ended, or that it was stopped, and does not want to be told of it."""

    id: CommandId
    task: TaskId
    by: str


def is_dismissed(task: Task) -> bool:
    """Whether somebody has dismissed a task, and nothing has happened to it since."""
    seen = task.record.dismissed
    return seen is not None and seen.token == task.record.token


def dismiss_question(situation: Situation, command: DismissQuestion) -> Decision:
    """Note that a question was seen; it stays open."""
    check_name(command.by, "by")
    question = situation.questions.get(command.question)
    if question is None:
        raise Refused("unknown_question", f"there is no question {command.question}", where="question")
    if question.closed_at is not None:
        raise Refused("closed", f"question {question.id} is closed: {question.choice}", where="question")
    if question.dismissed_at is not None:
        return Decision(question.id)
    seen = replace(question, dismissed_at=situation.now, dismissed_by=command.by)
    told = Event("question_dismissed", question.task, question.run, data={"question": question.id, "by": command.by})
    return Decision(question.id, events=(told,), closed=(seen,))


def dismiss_task(situation: Situation, command: DismissTask) -> Decision:
    """Note that the end of a task, or that it was stopped, was seen."""
    check_name(command.by, "by")
    case = situation.case(command.task)
    task = case.task
    if is_dismissed(task):
        return Decision(task.id)
    _check_still(case)
    record = replace(task.record, dismissed=Dismissal(command.by, situation.now, task.record.token))
    out = Outcome(replace(case, task=replace(task, record=record)), answer=task.id)
    out.events.append(event(task, "task_dismissed", by=command.by))
    return Decision(task.id, outcomes=(out,))


def _check_still(case: Case) -> None:
    """Refuse what goes on by itself: there is nothing to have seen."""
    stands = state(case)
    stopped = stands is State.READY and case.task.record.handover is not None
    if stands not in ENDS and not stopped:
        text = f"{case.task.name} is {stands}: there is nothing to dismiss"
        hint = f"`allswell cancel {case.task.id}` calls it off, `allswell why {case.task.id}` tells more"
        raise Refused("not_ended", text, where="task", hint=hint)


# --- what dismissed questions hold ------------------------------------------------------------------------------------


class Holding(msgspec.Struct, frozen=True):
    """Dismissed questions that something waits for, and how much."""

    questions: int = 0
    tasks: int = 0


def holding(questions: Iterable[Question], waiting: Iterable[tuple[Task, tuple[Wait, ...]]]) -> Holding:
    """How many dismissed questions hold how many open tasks, at one remove or several.

    `waiting` are the open tasks with what they wait for; a question about a service holds those that need it.
    """
    dismissed = [one for one in questions if one.closed_at is None and one.dismissed_at is not None]
    rows = list(waiting)
    holds: set[QuestionId] = set()
    held: set[str] = set()
    for question in dismissed:
        below: set[str] = {question.id}
        found: set[str] = set()
        while new := {task.id for task, waits in rows if task.id not in found and _meets(task, waits, below, question)}:
            found |= new
            below = set(new)
        if found:
            holds.add(question.id)
            held |= found
    return Holding(len(holds), len(held))


def _meets(task: Task, waits: tuple[Wait, ...], below: set[str], question: Question) -> bool:
    if any(wait.target in below for wait in waits):
        return True
    return question.id in below and question.service is not None and question.service in task.spec.services


# --- the rows ---------------------------------------------------------------------------------------------------------


def _names(command: DismissQuestion) -> Names:
    asked = (command.question,)
    if message_of_question(command.question) is not None:
        return Names(questions=asked)
    service = service_of_question(command.question)
    if service is not None:
        return Names(questions=asked, services=(service,))
    return Names(questions=asked, tasks=(task_of_question(command.question),))


RULES = (
    Rule(DismissQuestion, dismiss_question, _names),
    Rule(DismissTask, dismiss_task, lambda command: Names(held=(command.task,))),
)
