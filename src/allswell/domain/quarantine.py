"""A message that waits for an operator: the question about it, and what each answer makes of it (W5).

A worker that cannot handle a message takes it out of the queue and asks, in one transaction: what is quarantined has a
question, and what has a question is quarantined. The answer is only a decision. It is carried out by a worker, once,
again in one transaction with the queue; until then the message is "answered, not yet applied".

A question about a message belongs to no task and no run. Its id says which reading of which message it is about, so a
message that comes back after a retry, and fails again, is a new question.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from allswell.domain.answer import choice_of, closed_with
from allswell.domain.classify import shortened
from allswell.domain.command import Answer, Command
from allswell.domain.decision import Decision
from allswell.domain.event import Event
from allswell.domain.handling import MessageHistory, after_retry_by_operator
from allswell.domain.names import QuestionId, message_question_id
from allswell.domain.question import Act, Option, Question
from allswell.domain.rule import Names, Rule
from allswell.domain.situation import Situation
from allswell.errors import Refused

KIND = "message_quarantined"
"""The kind of the question about a message."""
OPTIONS = (
    Option("retry", "Put it back into the queue, as if it were new", Act.RETRY_MESSAGE),
    Option("cancel", "It is not wanted any more", Act.CANCEL_MESSAGE),
    Option("complete", "It was seen to by hand: take it as handled", Act.COMPLETE_MESSAGE),
)
_REASON_SHOWN = 500


class QuarantineMessage(Command, frozen=True, gc=False):
    """Ask an operator about a message; its worker takes it out of the queue in the same transaction."""

    queue: str
    message: int
    read_count: int
    type: str
    code: str
    reason: str


class SettleMessage(Command, frozen=True, gc=False):
    """Carry out an operator's answer; a worker changes the queue in the same transaction."""

    question: QuestionId
    queue: str
    message: int
    read_count: int


class Settled(msgspec.Struct, frozen=True, gc=False):
    """What an answer makes of a message."""

    state: Literal["retrying", "cancelled", "completed"]
    history: MessageHistory
    by: str
    text: str

    @property
    def comes_back(self) -> bool:
        """Whether it goes back into the queue."""
        return self.state == "retrying"


def ask(situation: Situation, command: QuarantineMessage) -> Decision:
    """Decide a quarantine; the answer is the question's id, also where it was asked before."""
    id_ = message_question_id(command.queue, command.message, command.read_count)
    if id_ in situation.questions:
        return Decision(id_)
    reason = shortened(command.reason).strip()
    shown = reason if len(reason) <= _REASON_SHOWN else reason[:_REASON_SHOWN] + "…"
    what = f" ({command.type})" if command.type else ""
    text = (
        f"Message {command.message}{what} of queue {command.queue} could not be handled: {command.code}"
        f"{f', {shown}' if shown else ''}. How should we proceed?"
    )
    question = Question(id_, None, None, KIND, text, OPTIONS, situation.now, "allswell")
    told = {
        "queue": command.queue,
        "message": command.message,
        "type": command.type,
        "code": command.code,
        "reason": reason,
        "question": id_,
    }
    about = {"question": id_, "kind": KIND, "text": text, "options": [option.label for option in OPTIONS]}
    return Decision(
        id_, asked=(question,), events=(Event("message_quarantined", data=told), Event("question_asked", data=about))
    )


def answered(question: Question, command: Answer, situation: Situation) -> Decision:
    """Decide an operator's answer: it is written down, and a worker carries it out."""
    option = choice_of(question, command)
    if option is None:
        return Decision(question.id)
    told = {"question": question.id, "choice": option.key, "by": command.by}
    closed = closed_with(question, option, command, situation.now)
    return Decision(question.id, closed=(closed,), events=(Event("question_answered", data=told),))


def settle(situation: Situation, command: SettleMessage) -> Decision:
    """Decide what an answer makes of its message."""
    question = situation.questions.get(command.question)
    if question is None or question.closed_at is None:
        raise Refused("not_answered", f"question {command.question} has no answer yet", where="question")
    acts = {option.key: option.act for option in question.options}
    history = MessageHistory(recorded=command.read_count)
    match acts.get(question.choice or ""):
        case Act.RETRY_MESSAGE:
            settled = Settled("retrying", after_retry_by_operator(command.read_count), question.answered_by, "")
        case Act.COMPLETE_MESSAGE:
            settled = Settled("completed", history, question.answered_by, question.answer)
        case _:
            settled = Settled("cancelled", history, question.answered_by, question.answer)
    told = {
        "queue": command.queue,
        "message": command.message,
        "question": question.id,
        "choice": question.choice,
        "by": question.answered_by,
    }
    return Decision(settled, events=(Event("message_settled", data=told),))


RULES = (
    Rule(
        QuarantineMessage,
        ask,
        lambda command: Names(questions=(message_question_id(command.queue, command.message, command.read_count),)),
    ),
    Rule(SettleMessage, settle, lambda command: Names(questions=(command.question,))),
)
