"""An account of agents that its provider refuses: one question, and nothing to do before the answer (F7)."""

import pytest

from allswell.domain.ids import AgentId, CommandId, Millis
from allswell.domain.question import Question
from allswell.domain.rules.command import AskForHelp
from allswell.domain.service import calls
from allswell.domain.service.retry import ErrorClass
from allswell.domain.service.service import ServiceRow, lets_in, park, question_about, shut

NOW = Millis(1_000_000)
HOUR = 3_600_000


def asked(row: ServiceRow, cause: ErrorClass = ErrorClass.AUTH, *, holds: bool = True, now: Millis = NOW) -> ServiceRow:
    made = calls.ask(row, AskForHelp(CommandId("c"), "acme", cause, "refused", "401", holds), now)
    return row if made is None else made[0]


def question_of(row: ServiceRow) -> Question:
    made = calls.ask(row, AskForHelp(CommandId("c"), "acme", ErrorClass.AUTH, "refused", "401", True), NOW)
    assert made is not None
    assert made[1] is not None
    return made[1]


@pytest.mark.row("F7")
def test_a_refused_login_is_asked_about_once_and_holds_the_account() -> None:
    row = asked(ServiceRow("acme"))
    assert (row.questions, row.holds) == (1, ("auth",))
    closed = shut(row, NOW)
    assert closed is not None
    assert (closed.stand, closed.until) == ("refused", None)
    assert not lets_in(row, AgentId("ada"), NOW)
    assert question_about(row) == "q_@acme.1"
    assert asked(row) is row, "the second one finds it asked"
    question = question_of(ServiceRow("acme"))
    assert question.text == (
        "Account acme: the login is refused (401). Its agents get no tasks before you answer, and no attempt is used"
        " up. Log in again, or give its agents another key; then answer."
    )


def test_one_that_a_guard_has_asked_about_is_held_without_another_question() -> None:
    row = asked(asked(ServiceRow("acme"), holds=False))
    assert (row.questions, row.holds) == (1, ("auth",))


def test_mended_lets_its_agents_in_and_later_leaves_it_alone_for_an_hour() -> None:
    question = question_of(ServiceRow("acme"))
    row = asked(park(ServiceRow("acme"), Millis(NOW + 60_000)))
    mended, later = question.options
    after = calls.answered(row, question.id, mended, NOW)
    assert shut(after, NOW) is None
    assert lets_in(after, AgentId("ada"), Millis(NOW + 5_000))
    off = calls.answered(row, question.id, later, NOW)
    closed = shut(off, NOW)
    assert closed is not None
    assert (closed.stand, closed.until) == ("parked", NOW + HOUR)
    assert asked(off, now=Millis(NOW + HOUR)).questions == 2, "and then it is asked about again, if it is as before"


def test_what_a_guard_asks_holds_nobody() -> None:
    assert shut(asked(ServiceRow("acme"), holds=False), NOW) is None
