"""A message that waits for an operator: the question about it, and what each answer makes of it (W5).

A worker that cannot handle a message takes it out of the queue and asks, in one transaction: what is quarantined has a
question, and what has a question is quarantined. The answer is only a decision. It is carried out by a worker, once,
again in one transaction with the queue; until then the message is "answered, not yet applied".

Messages that failed for one cause (type, code, and words without their numbers) are one question that says how many
they are, and its answer is for all of them: a storm of failures is one decision, not forty thousand.

A question about a message belongs to no task and no run. Its id says which reading of which message it is about, and
when that message was sent: one that comes back after a retry, and fails again, is a new question, and so is one of a
queue that was dropped and made anew.
"""

from __future__ import annotations

import re
from typing import Literal

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import QuestionId, message_question_id
from allswell.domain.question import AnswerAction, Option, Question
from allswell.domain.rules.command import Answer, Command
from allswell.domain.rules.event import Event
from allswell.domain.rules.rule import Decision, ReadSet, RowSnapshot, Rule
from allswell.domain.service.classify import shortened
from allswell.domain.task.answer import choice_of, closed_with
from allswell.domain.worker.message import MessageHistory, after_retry_by_operator
from allswell.errors import Refused

KIND = "message_quarantined"
"""The kind of the question about a message."""
OPTIONS = (
    Option("retry", "Put it back into the queue, as if it were new", AnswerAction.RETRY_MESSAGE),
    Option("cancel", "It is not wanted any more", AnswerAction.CANCEL_MESSAGE),
    Option("complete", "It was seen to by hand: take it as handled", AnswerAction.COMPLETE_MESSAGE),
)
_REASON_SHOWN, _PAYLOAD_SHOWN = 500, 300
_VARYING = re.compile(r"[\w-]*\d[\w-]*")
"""What differs between messages that failed for one cause: numbers, and ids with numbers in them."""
_OTHERS = re.compile(r"(?: and [\d,]+ others?)?(?= of queue [a-z0-9_]+ could not be handled: )")


class QuarantineMessage(Command, frozen=True, gc=False):
    """Ask an operator about a message; its worker takes it out of the queue in the same transaction.

    Messages that failed for one cause are one question: further ones join the one that is open about it.
    """

    queue: str
    message: int
    read_count: int
    type: str
    code: str
    reason: str
    sent: int = 0
    """When it was sent, in microseconds."""
    payload: str = ""
    """What it carries, for whoever has to decide."""
    messages: int = 1
    """How many are quarantined with it for the same cause; it is the first of them."""
    joins: QuestionId | None = None
    """The question about this cause that was open a moment ago."""
    before: int = 0
    """How many messages that one was about."""


class SettleMessage(Command, frozen=True, gc=False):
    """Carry out an operator's answer; a worker changes the queue in the same transaction."""

    question: QuestionId
    queue: str
    message: int
    read_count: int
    messages: int = 1
    """How many it is carried out for now; it is the first of them."""


class QuarantineAnswer(msgspec.Struct, frozen=True, gc=False):
    """What an answer makes of a message."""

    state: Literal["retrying", "cancelled", "completed"]
    history: MessageHistory
    by: str
    text: str

    @property
    def comes_back(self) -> bool:
        """Whether it goes back into the queue."""
        return self.state == "retrying"


def _id(command: QuarantineMessage) -> QuestionId:
    return message_question_id(command.queue, command.message, command.read_count, command.sent)


def cause_of(type_: str, code: str, reason: str) -> str:
    """What tells one cause from another: the same type and code, and the same words, whatever numbers are in them."""
    words = _VARYING.sub("#", shortened(reason))[:_REASON_SHOWN]
    return f"{type_[:_REASON_SHOWN]} {code[:_REASON_SHOWN]} {words}"


def ask(situation: RowSnapshot, command: QuarantineMessage) -> Decision:
    """Decide a quarantine; the answer is the question's id, also where it was asked before."""
    told = {
        "queue": command.queue,
        "message": command.message,
        "type": command.type,
        "code": command.code,
        "reason": shortened(command.reason).strip(),
        "messages": command.messages,
    }
    joined = None if command.joins is None else situation.questions.get(command.joins)
    if joined is not None and joined.closed_at is None:
        grown = replace(joined, text=_with_others(joined.text, command.before + command.messages - 1))
        event = Event("message_quarantined", data={**told, "question": joined.id})
        return Decision(joined.id, closed=(grown,), events=(event,))
    id_ = _id(command)
    if id_ in situation.questions:
        return Decision(id_)
    text = _text(command)
    question = Question(id_, None, None, KIND, text, OPTIONS, situation.now, "allswell")
    about = {"question": id_, "kind": KIND, "text": text, "options": [option.label for option in OPTIONS]}
    event = Event("message_quarantined", data={**told, "question": id_})
    return Decision(id_, asked=(question,), events=(event, Event("question_asked", data=about)))


def _text(command: QuarantineMessage) -> str:
    reason = shortened(command.reason).strip()
    shown = f", {_cut(reason, _REASON_SHOWN)}" if reason else ""
    what = f" ({command.type})" if command.type else ""
    payload = f" Its payload: {_cut(command.payload, _PAYLOAD_SHOWN)}" if command.payload else ""
    text = f"Message {command.message}{what} of queue {command.queue} could not be handled: {command.code}{shown}."
    return _with_others(f"{text}{payload} How should we proceed?", command.messages - 1)


def _with_others(text: str, others: int) -> str:
    """A question's text, with how many more messages it is about than the first."""
    return _OTHERS.sub(f" and {others:,} other{'s' * (others > 1)}" if others else "", text, count=1)


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[:most] + "…"


def answered(question: Question, command: Answer, situation: RowSnapshot) -> Decision:
    """Decide an operator's answer: it is written down, and a worker carries it out."""
    option = choice_of(question, command)
    if option is None:
        return Decision(question.id)
    told = {"question": question.id, "choice": option.key, "by": command.by}
    closed = closed_with(question, option, command, situation.now)
    return Decision(question.id, closed=(closed,), events=(Event("question_answered", data=told),))


def settle(situation: RowSnapshot, command: SettleMessage) -> Decision:
    """Decide what an answer makes of its message."""
    question = situation.questions.get(command.question)
    if question is None or question.closed_at is None:
        raise Refused("not_answered", f"question {command.question} has no answer yet", where="question")
    acts = {option.key: option.act for option in question.options}
    history = MessageHistory(recorded=command.read_count)
    match acts.get(question.choice or ""):
        case AnswerAction.RETRY_MESSAGE:
            settled = QuarantineAnswer(
                "retrying", after_retry_by_operator(command.read_count), question.answered_by, ""
            )
        case AnswerAction.COMPLETE_MESSAGE:
            settled = QuarantineAnswer("completed", history, question.answered_by, question.answer)
        case _:
            settled = QuarantineAnswer("cancelled", history, question.answered_by, question.answer)
    told = {
        "queue": command.queue,
        "message": command.message,
        "question": question.id,
        "choice": question.choice,
        "by": question.answered_by,
        "messages": command.messages,
    }
    return Decision(settled, events=(Event("message_settled", data=told),))


RULES = (
    Rule(
        QuarantineMessage,
        ask,
        lambda command: ReadSet(questions=(_id(command),) if command.joins is None else (_id(command), command.joins)),
    ),
    Rule(SettleMessage, settle, lambda command: ReadSet(questions=(command.question,))),
)
