"""The question about a message: asked once, answered once, and what each answer makes of the message."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allswell.domain.ids import CommandId, Millis, QuestionId, message_of_question, message_question_id
from allswell.domain.question import Question
from allswell.domain.rules.command import Answer
from allswell.domain.rules.decide import decide
from allswell.domain.rules.rule import RowSnapshot
from allswell.domain.worker.message import MessageHistory
from allswell.domain.worker.quarantine import KIND, QuarantineAnswer, QuarantineMessage, SettleMessage, cause_of
from allswell.errors import Refused

NOW = Millis(1_000)
ASK = QuarantineMessage("orders", 7, 4, "order.paid", "NO_STOCK", "nothing is left")
ID = message_question_id("orders", 7, 4, 0)


def asked() -> Question:
    decision = decide(RowSnapshot(NOW), ASK)
    (question,) = decision.asked
    assert decision.answer == question.id == ID
    return question


def answered(option: str, text: str = "") -> Question:
    command = Answer(CommandId("c_1"), ID, option, text, by="eve")
    (closed,) = decide(RowSnapshot(NOW, questions={ID: asked()}), command).closed
    return closed


@pytest.mark.row("W5")
def test_a_message_is_asked_about_once_with_three_ways_out() -> None:
    question = asked()
    assert (question.kind, question.task, question.run, question.message) == (KIND, None, None, ("orders", 7))
    assert [option.key for option in question.options] == ["retry", "cancel", "complete"]
    again = decide(RowSnapshot(NOW, questions={ID: question}), ASK)
    assert (again.answer, again.asked, again.events) == (ID, (), ())


@pytest.mark.row("W5")
def test_messages_of_one_cause_join_the_question_that_is_open_about_it() -> None:
    assert cause_of("order.paid", "NO_STOCK", "nothing is left of item-7") == cause_of(
        "order.paid", "NO_STOCK", "nothing is left of item-1234"
    )
    assert cause_of("order.paid", "NO_STOCK", "no pears") != cause_of("order.paid", "NO_STOCK", "no plums")
    joining = QuarantineMessage("orders", 9, 1, "order.paid", "NO_STOCK", "nothing", messages=40, joins=ID, before=1)
    decision = decide(RowSnapshot(NOW, questions={ID: asked()}), joining)
    (grown,) = decision.closed
    assert (decision.answer, grown.closed_at, decision.asked) == (ID, None, ())
    assert "Message 7 (order.paid) and 40 others of queue orders could not be handled: NO_STOCK" in grown.text
    (event,) = decision.events
    assert (event.kind, event.data["messages"], event.data["question"]) == ("message_quarantined", 40, ID)
    (more,) = decide(RowSnapshot(NOW, questions={ID: grown}), replace(joining, before=41)).closed
    assert "Message 7 (order.paid) and 80 others of queue orders" in more.text
    closed = answered("cancel")
    anew = decide(RowSnapshot(NOW, questions={ID: closed}), joining)
    assert anew.closed == (), "an answered one is not joined"
    assert [question.id for question in anew.asked] == [message_question_id("orders", 9, 1, 0)]


@pytest.mark.row("W5")
@pytest.mark.parametrize(
    "option,state,history",
    [
        ("retry", "retrying", MessageHistory(recorded=4)),
        ("cancel", "cancelled", MessageHistory(recorded=4)),
        ("complete", "completed", MessageHistory(recorded=4)),
    ],
)
def test_each_answer_makes_something_of_the_message(option: str, state: str, history: MessageHistory) -> None:
    closed = answered(option)
    decision = decide(RowSnapshot(NOW, questions={ID: closed}), SettleMessage(ID, "orders", 7, 4))
    assert isinstance(decision.answer, QuarantineAnswer)
    assert (decision.answer.state, decision.answer.history, decision.answer.by) == (state, history, "eve")
    assert decision.answer.comes_back == (option == "retry")
    assert [event.kind for event in decision.events] == ["message_settled"]


def test_nothing_is_settled_before_it_is_answered_and_no_answer_is_taken_twice() -> None:
    with pytest.raises(Refused, match="has no answer yet"):
        decide(RowSnapshot(NOW, questions={ID: asked()}), SettleMessage(ID, "orders", 7, 4))
    closed = answered("retry")
    with pytest.raises(Refused, match="is closed: retry"):
        decide(RowSnapshot(NOW, questions={ID: closed}), Answer(CommandId("c_2"), ID, "cancel", ""))
    repeated = decide(RowSnapshot(NOW, questions={ID: closed}), Answer(CommandId("c_1"), ID, "retry", ""))
    assert (repeated.closed, repeated.events) == ((), ())
    with pytest.raises(Refused, match="choose one of: retry, cancel, complete"):
        answered("skip")


@given(
    st.from_regex(r"[a-z0-9_]{1,47}", fullmatch=True),
    st.integers(1, 2**62),
    st.integers(1, 1_000),
    st.integers(0, 2**53),
)
def test_a_questions_id_says_which_message_it_is_about(queue: str, message: int, read_count: int, sent: int) -> None:
    assert message_of_question(message_question_id(queue, message, read_count, sent)) == (queue, message)
    assert message_of_question(QuestionId(f"q_:{queue}.{message}.{read_count}")) == (queue, message), "as they were"


@pytest.mark.parametrize("id_", ["q_abc.1", "q_@service.1", "q_@a.b.1", "q_:", "q_:x", "q_:x.y.1", "q_:.1.1"])
def test_other_questions_are_about_no_message(id_: str) -> None:
    assert message_of_question(QuestionId(id_)) is None
