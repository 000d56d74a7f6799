"""An attempt that goes round in circles: it is noted, a human is asked while it goes on, and each answer acts."""

import pytest

from allswell.domain.agents.evidence import ended_repeating
from allswell.domain.agents.handover import in_words
from allswell.domain.ids import AgentId, CommandId, Millis, QuestionId, Token
from allswell.domain.lease.suspension import NoteRepeats
from allswell.domain.rules.command import Ask, EndIdle
from allswell.domain.task.model import State
from allswell.errors import LeaseLost
from tests.domain.life import MINUTE, Life, at

BOB = AgentId("bob")
WORDS = "called Read lexer.py 10 times, same answer"


def note(
    life: Life, words: str = WORDS, *, asks: bool = False, question: QuestionId | None = None, id_: str = "n"
) -> NoteRepeats:
    return NoteRepeats(CommandId(id_), life.case.task.id, Token(1), BOB, words, asks, question)


def circling() -> Life:
    """An attempt about which a human is asked."""
    life = Life()
    life.claim("bob", at(0))
    life.do(note(life), at(1))
    life.do(note(life, asks=True, id_="asks"), at(2))
    return life


def test_a_question_is_asked_once_and_the_attempt_goes_on() -> None:
    life = circling()
    assert life.stands() is State.HELD
    question = life.question
    assert question.text == (
        "bob repeats itself at task t_a (A): it called Read lexer.py 10 times, same answer. It goes on meanwhile, and"
        " none of that counts as progress. How should we proceed?"
    )
    assert [option.key for option in question.options] == ["go_on", "end_and_retry", "skip"]
    assert not question.waited
    assert life.do(note(life, asks=True, id_="asks"), at(3)).answer in (question.id, None)
    assert len(life.questions) == 1
    states = [(told.data["state"], told.data["evidence"]) for told in life.told("agent_state")]
    assert states == [("repeating itself", WORDS)]
    life.do(note(life, "", question=question.id, id_="over"), at(4))
    assert life.questions[question.id].choice == "withdrawn"
    assert life.record.repeats == ""
    assert len(life.told("question_withdrawn")) == 1


def test_to_let_it_go_on_changes_nothing_for_its_holder() -> None:
    life = circling()
    life.answer("go_on", at(3))
    assert life.stands() is State.HELD
    life.complete(at(4))
    assert life.stands() is State.DONE


def test_to_end_it_takes_the_lease_away_and_the_next_attempt_knows_why() -> None:
    life = circling()
    life.answer("end_and_retry", at(3), text="Look into the parser instead.")
    assert life.stands() is State.READY
    ended = life.attempts[1]
    assert (ended.outcome, ended.detail) == ("agent_repeats", WORDS)
    assert ended_repeating(ended.outcome, ended.detail)
    assert life.record.handover is not None
    told = in_words(2, life.record.handover, life.record.notes)
    assert "because it repeated itself, and a human had it ended." in told
    assert f"It had gone round in a circle:\n> {WORDS}\nDo not do the same again; try another way." in told
    assert "- Look into the parser instead." in told
    with pytest.raises(LeaseLost):
        life.do(note(life, id_="late"), at(4))


def test_to_end_it_after_it_has_ended_only_leaves_the_words() -> None:
    life = circling()
    life.release(at(3))
    life.answer("end_and_retry", at(4), text="Look elsewhere.")
    assert life.stands() is State.READY
    assert [ended.outcome for ended in life.attempts.values()] == ["released"]
    assert life.record.notes == ("Look elsewhere.",)


def test_to_skip_it_ends_the_task() -> None:
    life = circling()
    life.answer("skip", at(3))
    assert life.stands() is State.SKIPPED


def test_one_that_is_ended_idle_while_it_repeats_itself_is_known_by_its_detail() -> None:
    life = Life()
    life.claim("bob", at(0))
    command = EndIdle(CommandId("i"), life.case.task.id, Token(1), BOB, Millis(MINUTE), "", WORDS)
    life.do(command, at(5))
    ended = life.attempts[1]
    assert (ended.outcome, ended.detail) == ("agent_idle", f"it repeated itself: {WORDS}")
    assert ended_repeating(ended.outcome, ended.detail)
    assert life.record.handover is not None
    assert f"> {WORDS}\nDo not do the same" in in_words(2, life.record.handover, ())


def test_a_question_of_another_kind_is_not_taken_back() -> None:
    life = Life()
    life.claim("bob", at(0))
    ask = Ask(CommandId("ask"), life.case.task.id, Token(1), BOB, "Which database?", (), True)
    life.do(ask, at(1))
    life.do(note(life, "", question=life.question.id), at(2))
    assert life.question.closed_at is None
