"""Every word of a holder carries its token; repeated words are recognised, late ones kept (O10)."""

from collections.abc import Callable
from typing import Any

import pytest

from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, Token
from allswell.domain.lease.holder import check_in
from allswell.domain.lease.late import TEXT_MOST, WORDS_MOST, afterwards
from allswell.domain.question import AnswerAction, Option
from allswell.domain.rules.command import Ask, CheckIn, CheckInAgain, Complete, EndIdle, Release
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.model import State
from allswell.errors import LeaseLost, Refused
from tests.domain.life import MINUTE, Life, at

BOB = AgentId("bob")


def ask(life: Life, text: str = "Which one?", *, id_: str = "ask", **how: object) -> Ask:
    lease = life.lease
    return Ask(CommandId(id_), lease.task, lease.token, lease.agent, text, **how)  # type: ignore[arg-type]


def taken_over() -> Life:
    """The lease of bob has timed out, and ann holds the task now."""
    life = Life()
    life.claim(BOB, at(0))
    life.tick_when_due(at(15))
    life.claim("ann", at(16))
    life.events.clear()
    return life


def test_completing_ends_the_task_with_its_result_and_the_measured_time() -> None:
    life = Life()
    life.claim(BOB, at(0))
    out = life.complete(at(3), result='"fine"')
    assert (life.stands(), out.result) == (State.DONE, '"fine"')
    assert life.told("task_completed")[0].data == {"elapsed_ms": 3 * MINUTE}
    assert life.attempts[1].outcome == "done"


@pytest.mark.row("O10")
@pytest.mark.parametrize("verb", ["complete", "fail"])
def test_what_a_late_agent_brings_is_refused_recorded_and_kept_once(verb: str) -> None:
    life = taken_over()
    before = life.case

    def bring(result: str) -> None:
        if verb == "complete":
            life.complete(at(17), result=f'"{result}"', token=1, agent=BOB)
        else:
            life.fail(at(17), ErrorClass.SERVER, token=1, agent=BOB)

    bring("first")
    kept = life.attempts[1].late
    assert isinstance(life.error, LeaseLost)
    assert "its limit was reached" in str(life.error)
    assert kept == ('"first"' if verb == "complete" else '{"error":"server","message":"it broke"}')
    assert [dict(event.data) for event in life.told("late_result")] == [{"verb": verb}]
    bring("second")
    assert isinstance(life.error, LeaseLost)
    assert life.attempts[1].late == kept, "the first result is the one to use"
    words = afterwards(life.attempts[1]).words
    second = '"second"' if verb == "complete" else kept
    assert [(word.verb, word.text) for word in words] == [(verb, ""), (verb, second)]
    assert len(life.told("late_result")) == 2
    assert life.case == before, "never applied over the new holder's work"


@pytest.mark.row("O10")
def test_a_late_release_and_a_late_question_are_kept_once_each() -> None:
    life = taken_over()
    before = life.case
    for _ in range(2):
        life.release(at(17), token=1, agent=BOB, id_="c_release")
        life.do(Ask(CommandId("c_ask"), life.case.task.id, Token(1), BOB, "Which one?"), at(18))
    assert isinstance(life.error, LeaseLost)
    assert life.case == before
    assert life.attempts[1].late is None
    words = afterwards(life.attempts[1]).words
    assert [(word.verb, word.text, word.at) for word in words] == [
        ("release", "released", at(17)),
        ("ask", "Which one?", at(18)),
    ]
    assert [dict(event.data) for event in life.told("late_word")] == [{"verb": "release"}, {"verb": "ask"}]


@pytest.mark.row("O10")
def test_what_comes_late_is_bounded() -> None:
    life = taken_over()
    for number in range(WORDS_MOST + 5):
        life.complete(at(17), result=f'"{number}{"x" * 40_000}"', token=1, agent=BOB)
    after = afterwards(life.attempts[1])
    assert (len(after.words), after.more, len(life.told("late_result"))) == (WORDS_MOST, 5, WORDS_MOST)
    assert {len(word.text) for word in after.words[1:]} == {TEXT_MOST}
    assert all(word.cut for word in after.words[1:])
    for number in range(100):
        said = CheckInAgain(NO_COMMAND, life.case.task.id, Token(1), BOB, True, f"note {number}", 0.5)
        life.do(said, at(18))
        assert isinstance(life.error, LeaseLost)
    after = afterwards(life.attempts[1])
    assert (after.checkins, after.checkin_at, after.note, after.progress) == (100, at(18), "note 99", 0.5)
    assert [dict(event.data) for event in life.told("late_word")] == [{"verb": "checkin"}], "told once"


@pytest.mark.row("O10")
def test_a_late_check_in_is_refused() -> None:
    life = taken_over()
    task = life.case.task.id
    with pytest.raises(LeaseLost, match="the current token is 2"):
        check_in(life.lease, CheckIn(task, Token(1), BOB), at(17))
    with pytest.raises(LeaseLost, match="another agent, not to bob"):
        check_in(life.lease, CheckIn(task, Token(2), BOB), at(17))
    with pytest.raises(LeaseLost, match="no agent holds the task"):
        check_in(None, CheckIn(task, Token(1), BOB), at(17))


@pytest.mark.row("O10")
def test_another_agent_with_the_right_token_is_refused_too() -> None:
    life = taken_over()
    life.complete(at(17), token=2, agent=BOB)
    assert isinstance(life.error, LeaseLost)
    assert (life.stands(), life.holder) == (State.HELD, "ann")
    assert life.told("late_result") == []


@pytest.mark.parametrize("token", [0, 3, -1, 99])
def test_a_token_that_never_was_is_refused(token: int) -> None:
    life = taken_over()
    life.complete(at(17), token=token, agent=BOB)
    assert isinstance(life.error, LeaseLost)
    assert life.events == []


def test_the_loser_learns_that_the_task_has_ended() -> None:
    life = taken_over()
    life.complete(at(17))
    life.complete(at(18), token=7, agent=BOB)
    assert "the task is done" in str(life.error)


@pytest.mark.parametrize("verb", ["complete", "fail", "release"])
def test_a_repeated_command_is_answered_as_the_first_time_and_changes_nothing(verb: str) -> None:
    life = Life()
    life.claim(BOB, at(0))
    signed: dict[str, Any] = {"id_": "same", "token": 1, "agent": BOB}

    def say() -> object:
        if verb == "complete":
            return life.complete(at(1), **signed).answer
        if verb == "fail":
            return life.fail(at(1), ErrorClass.NETWORK, **signed).answer
        return life.release(at(1), **signed).answer

    first = say()
    case, told = life.case, len(life.events)
    assert say() == first
    assert (life.error, life.case, len(life.events)) == (None, case, told)


def test_a_repeated_command_is_recognised_after_the_task_was_given_to_another() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.release(at(1), id_="same")
    life.claim("ann", at(2))
    life.release(at(3), id_="same", token=1, agent=BOB)
    assert life.error is None
    assert life.holder == "ann"


def test_a_repeated_cancel_is_recognised_and_another_is_refused() -> None:
    life = Life()
    life.cancel(at(1), id_="one")
    case = life.case
    life.cancel(at(2), id_="one")
    assert life.case == case
    with pytest.raises(Refused, match="A is already cancelled"):
        life.cancel(at(3), id_="two")


def test_cancelling_takes_the_task_from_whoever_holds_it() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.cancel(at(1))
    assert life.stands() is State.CANCELLED
    assert life.attempts[1].outcome == "cancelled"
    assert life.told("task_cancelled")[0].agent == BOB


def test_an_agent_s_question_makes_the_task_wait_for_the_answer() -> None:
    life = Life()
    life.claim(BOB, at(0))
    out = life.do(ask(life), at(1))
    assert out.answer == life.question.id == "q_a.1"
    assert (life.stands(), life.question.asked_by) == (State.WAITING, BOB)
    life.answer("reply", at(2), text="The left one")
    assert (life.stands(), life.record.notes) == (State.READY, ("The left one",))


def test_with_hold_the_agent_goes_on_meanwhile() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.do(ask(life, hold=True), at(1))
    assert life.stands() is State.HELD
    life.answer("reply", at(2), text="The left one")
    assert life.stands() is State.HELD
    life.complete(at(3))
    assert life.stands() is State.DONE


YES_OR_NO = (Option("yes", "Drop it", AnswerAction.RETRY), Option("no", "Keep it", AnswerAction.RETRY))


@pytest.mark.parametrize(
    "text, note",
    [
        ("", "A human chose this option:\n> yes (Drop it)\nThe agent had asked:\n> May I?"),
        (
            "but keep",
            "A human chose this option:\n> yes (Drop it)\nThe agent had asked:\n> May I?\nThe human added:\nbut keep",
        ),
    ],
)
def test_the_next_holder_is_told_which_option_was_chosen(text: str, note: str) -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.do(ask(life, "May I?", options=YES_OR_NO), at(1))
    life.answer("Drop it", at(2), text=text)
    handover = life.record.handover
    assert handover is not None
    assert (handover.reason, handover.message, handover.answer) == ("asked", "May I?", "yes")
    assert life.record.notes == (note,)


def test_a_choice_that_came_while_its_holder_worked_is_kept_for_the_next() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.do(ask(life, "May I?", options=YES_OR_NO, hold=True), at(1))
    life.answer("no", at(2))
    life.release(at(3))
    handover = life.record.handover
    assert handover is not None
    assert (handover.reason, handover.answer) == ("released", "")
    assert life.record.notes == ("A human chose this option:\n> no (Keep it)\nThe agent had asked:\n> May I?",)


def test_a_long_question_is_told_in_short() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.do(ask(life, "May I? " * 1_000, options=YES_OR_NO), at(1))
    life.answer("yes", at(2))
    (note,) = life.record.notes
    assert note.startswith("A human chose this option:\n> yes (Drop it)\nThe agent had asked:\n> May I?")
    assert note.endswith("…")
    assert len(note) < 300


@pytest.mark.parametrize("hold", [False, True])
def test_a_question_asked_twice_by_the_same_command_is_asked_once(hold: bool) -> None:
    life = Life()
    life.claim(BOB, at(0))
    said = ask(life, hold=hold)
    first = life.do(said, at(1)).answer
    assert life.do(said, at(1)).answer == first
    assert len(life.questions) == 1


def test_a_question_left_open_by_a_finished_task_is_spread_so_that_it_is_withdrawn() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.do(ask(life, hold=True), at(1))
    life.complete(at(2))
    assert life.spread is not None


@pytest.mark.parametrize(
    "text, options, code",
    [
        (" ", (), "bad_question"),
        ("x" * 20_000, (), "too_large"),
        ("a\0b", (), "bad_text"),
        ("ok", (Option("a", "A", AnswerAction.RETRY), Option("a", "B", AnswerAction.SKIP)), "bad_question"),
        ("ok", (Option("", "A", AnswerAction.RETRY),), "bad_name"),
        ("ok", (Option("a", "A\0", AnswerAction.RETRY),), "bad_name"),
    ],
)
def test_a_question_that_cannot_be_put_is_refused(text: str, options: tuple[Option, ...], code: str) -> None:
    life = Life()
    life.claim(BOB, at(0))
    before = life.case
    with pytest.raises(Refused) as caught:
        life.do(ask(life, text, options=options), at(1))
    assert caught.value.code == code
    assert life.case is before


@pytest.mark.parametrize(
    "result, code", [("x" * (1 << 20) + "x", "too_large"), ('"\0"', "bad_text"), ("é" * (1 << 19) + "x", "too_large")]
)
def test_a_result_that_no_store_can_hold_is_refused_and_the_lease_goes_on(result: str, code: str) -> None:
    life = Life()
    life.claim(BOB, at(0))
    with pytest.raises(Refused) as caught:
        life.complete(at(1), result=result)
    assert caught.value.code == code
    assert life.stands() is State.HELD


def test_a_result_of_exactly_one_mebibyte_is_taken() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.do(Complete(CommandId("c"), life.case.task.id, Token(1), BOB, f'"{"x" * ((1 << 20) - 2)}"'), at(1))
    assert life.stands() is State.DONE


# --- what a holder says is checked, told and known again --------------------------------------------------------------


@pytest.mark.parametrize("word", ["note", "message", "reason", "said"])
def test_a_text_that_no_store_can_hold_is_refused_whatever_it_says(word: str) -> None:
    life = Life()
    lease = life.claim("bob", at(0))
    signed = (CommandId("c"), lease.task, lease.token, lease.agent)
    words: dict[str, Callable[[], object]] = {
        "note": lambda: life.check_in(at(1), note="a\0b"),
        "message": lambda: life.fail(at(1), Failure(ErrorClass.NETWORK, "a\0b")),
        "reason": lambda: life.do(Release(*signed, "a\0b"), at(1)),
        "said": lambda: life.do(EndIdle(*signed, None, "a\0b"), at(1)),
    }
    with pytest.raises(Refused, match=word):
        words[word]()
    assert life.stands() is State.HELD


def test_a_release_is_told_with_its_reason() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.release(at(1))
    assert [dict(event.data) for event in life.told("task_returned")] == [{"reason": "released"}]


def test_only_proof_of_progress_answers_for_an_agent_and_orders_say_whose_limit_it_is() -> None:
    life = Life(limit_at=at(9))
    life.claim("bob", at(0))
    done = life.check_in(at(1), proof=False)
    assert (done.answered, done.orders.by_run, done.orders.deadline) == (False, True, at(9))
    alone = Life()
    alone.claim("bob", at(0))
    done = alone.check_in(at(1))
    assert (done.answered, done.orders.by_run, done.orders.deadline) == (True, False, at(15))


def test_a_repeated_command_is_answered_even_where_its_agent_s_next_lease_has_just_run_out() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.release(at(1), id_="back")
    life.claim("bob", at(2), length=MINUTE)
    out = life.release(at(4), id_="back", token=1)
    assert (out.answer, life.error) == (life.case.task.id, None)
    assert life.attempts[2].outcome == "lease_lapsed"


def test_a_question_without_options_can_be_answered_in_words_or_by_skipping_the_task() -> None:
    life = Life()
    lease = life.claim("bob", at(0))
    life.do(Ask(CommandId("q"), lease.task, lease.token, lease.agent, "How?"), at(1))
    assert [option.key for option in life.question.options] == ["reply", "skip"]


def test_a_question_about_a_task_cannot_act_on_a_service() -> None:
    life = Life()
    lease = life.claim("bob", at(0))
    probe = Option("probe", "Try it", AnswerAction.PROBE)
    with pytest.raises(Refused, match="acts on a service"):
        life.do(Ask(CommandId("q"), lease.task, lease.token, lease.agent, "How?", (probe,)), at(1))
