"""The rules for what comes from outside a lease: a human's answer, about a task, a service or a message; a cancel."""

from __future__ import annotations

from collections.abc import Sequence

from allswell.domain.ids import can_name, message_of_question, service_of_question, task_of_question
from allswell.domain.question import Question
from allswell.domain.rules.command import Answer, Cancel, NewTask, Notice
from allswell.domain.rules.event import KINDS, Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule
from allswell.domain.service import calls
from allswell.domain.task.aggregate import TaskChange
from allswell.domain.task.answer import answer, cancel
from allswell.domain.task.model import State, Task
from allswell.domain.task.submit import accept_among, awaited_among, check_needs, check_text, lanes_of
from allswell.domain.worker import quarantine
from allswell.errors import Bug, Refused


def call_off(situation: RowSnapshot, command: Cancel) -> Decision:
    """Decide a cancel."""
    out = cancel(situation.case(command.task), command, situation.now)
    return Decision(out.answer, outcomes=(out,))


def carry_out(situation: RowSnapshot, command: Answer) -> Decision:
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


def _about_service(situation: RowSnapshot, question: Question, command: Answer) -> Decision:
    if question.service is None:
        raise Bug(f"question {question.id} is about nothing")
    return calls.decision(calls.answer(situation.service(question.service), question, command, situation.now))


def _smaller_tasks(situation: RowSnapshot, task: Task, subtasks: Sequence[NewTask]) -> list[TaskChange]:
    fresh = awaited_among(subtasks)
    for new in subtasks:
        if new.run != task.run:
            raise Refused("wrong_run", f"{new.name} must be in the run of the task it replaces", where="subtasks")
        if new.id in situation.cases or not fresh.keys() >= set(new.needs):
            raise Refused("bad_subtask", f"{new.name} may need only its fellow subtasks", where="subtasks")
    check_needs(subtasks)
    return [accept_among(situation, new, fresh) for new in subtasks]


def _names(command: Answer) -> ReadSet:
    """The question's id tells what it is about; a task's run is concerned, as its clock may go on."""
    tasks = [id_ for new in command.subtasks for id_ in (new.id, *new.needs)]
    runs = [new.run for new in command.subtasks if new.run is not None]
    if message_of_question(command.question) is not None:
        return ReadSet(questions=(command.question,))
    new = ReadSet(questions=(command.question,), tasks=tasks, runs_shared=runs, lanes=lanes_of(command.subtasks))
    service = service_of_question(command.question)
    if service is not None:
        return {**new, "services": (service,)}
    task = (task_of_question(command.question),)
    return {**new, "held": task, "runs_of": task}


ANSWER_RULES = (
    Rule(Cancel, call_off, lambda command: ReadSet(held=(command.task,))),
    Rule(Answer, carry_out, _names),
)


# What supervisors, guards and sinks may enter into the journal: what they saw and did, never what is decided here.

NOTICES = frozenset(
    (
        "agent_state",
        "checkin_asked",
        "agent_stopped",
        "agent_nudged",
        "agent_resumed",
        "agent_restarted",
        "agent_turn_failed",
        "agent_waits",
        "human_session_began",
        "human_session_ended",
        "reaper_stopped",
        "run_silent",
        "request_told",
        "survivors_left",
        "survivors_gone",
        "survivors_freed",
        "usage_limit",
        "supervisor_started",
        "supervisor_stopped",
        "checkpoints_collected",
        "context_compacted",
        "session_paused",
        "session_resumed",
        "questions_open",
        "rate_limited",
        "delivery_made",
        "delivery_given_up",
        "sink_down",
        "question_told",
        "key_created",
        "key_revoked",
        "link_made",
        "session_opened",
        "links_revoked",
    )
)
TEXT_MAX = 16_384


def check_notice(event: Event) -> None:
    """Refuse what is no notice, or not as the catalogue has it."""
    if event.kind not in NOTICES:
        raise Refused("bad_notice", f"{event.kind} is decided by Allswell itself, and cannot be reported", where="kind")
    if set(event.data) != set(KINDS[event.kind].fields):
        text = f"{event.kind} has the fields {sorted(KINDS[event.kind].fields)}, not {sorted(event.data)}"
        raise Refused("bad_notice", text, where="data")
    for name in (event.task, event.run, event.agent):
        if name is not None and not can_name(name):
            raise Refused("bad_notice", f"{name!r} names nothing", where="event")
    for field, value in event.data.items():
        if isinstance(value, str):
            check_text(value, field, TEXT_MAX)


def tell(_: RowSnapshot, command: Notice) -> Decision:
    """Enter a notice into the journal."""
    check_notice(command.event)
    return Decision(events=(command.event,))


NOTICE_RULES = (Rule(Notice, tell),)

RULES = (*ANSWER_RULES, *NOTICE_RULES)
