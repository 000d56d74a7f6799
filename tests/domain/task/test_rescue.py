"""What a supervisor may say about an attempt it has ended: that it was idle, and that a receipt exists."""

import pytest

from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.question import without_output
from allswell.domain.rules.command import EndIdle, RecordReceipt
from allswell.domain.task.model import Policy, State, raised
from allswell.errors import LeaseLost, Refused
from tests.domain.life import Life, at

BOB = AgentId("bob")


def idle(life: Life, token: int = 1, id_: str = "i", *, limit: int = 300_000, said: str = "") -> EndIdle:
    return EndIdle(CommandId(id_), life.case.task.id, Token(token), BOB, Millis(limit), said)


def keep(life: Life, token: int = 1, agent: AgentId = BOB, path: str = "r.json") -> RecordReceipt:
    return RecordReceipt(CommandId("k"), life.case.task.id, Token(token), agent, "rc_a.1", "idle", path)


@pytest.mark.row("O4")
def test_an_idle_attempt_counts_as_a_timeout_and_the_third_asks_a_human() -> None:
    life = Life()
    for token in (1, 2, 3):
        life.claim("bob", at(token))
        life.do(idle(life, token, f"i{token}"), at(token + 0.5))
        assert life.attempts[token].outcome == "agent_idle"
    assert life.record.timeouts == 3
    assert life.stands() is State.WAITING
    assert life.question.kind == "repeated_timeout"
    assert [told.data["elapsed_ms"] for told in life.told("agent_idle")] == [30_000] * 3


@pytest.mark.row("O9")
def test_the_question_about_idleness_says_so_shows_the_last_output_and_offers_more_idle() -> None:
    life = Life(policy=Policy(idle=100_000))
    for token in (1, 2, 3):
        life.claim("bob", at(token))
        life.do(idle(life, token, f"i{token}", said="waiting for the lock"), at(token + 0.5))
    text = life.question.text
    assert "has shown no progress 3 times, the last time for 5m." in text
    assert "It printed last:\nwaiting for the lock\nHow should we proceed?" in text
    assert without_output(text).endswith("or it works without a sign. How should we proceed?"), (
        "half an output says nothing"
    )
    assert "timed out" not in text
    assert [option.key for option in life.question.options] == ["split", "clarify", "increase_idle", "skip"]
    with pytest.raises(Refused, match="longer than the present 5m"):
        life.answer("increase_idle", at(300), timeout=Millis(300_000))
    life.answer("increase_idle", at(300))
    assert (life.record.idle_override, life.record.idles, life.record.timeouts) == (600_000, 0, 0)
    assert life.claim("bob", at(300)).idle == 600_000
    assert raised(None, 600_000) is None


@pytest.mark.row("O9")
def test_who_has_timed_out_and_idled_is_offered_more_of_both() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.tick(at(15))
    for token in (2, 3):
        life.claim("bob", at(20 + token))
        life.do(idle(life, token, f"i{token}"), at(20.5 + token))
    assert "has timed out or shown no progress 3 times" in life.question.text
    assert "It printed nothing." in life.question.text
    keys = [option.key for option in life.question.options]
    assert keys == ["split", "clarify", "increase_timeout", "increase_idle", "skip"]
    life.answer("increase_idle", at(300), timeout=Millis(900_000))
    assert life.claim("bob", at(300)).idle is None, "the store itself minds no idleness here"
    assert life.record.idle_override == 900_000


def test_who_does_not_say_how_long_it_was_idle_leaves_what_is_known_of_it() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.do(EndIdle(CommandId("i"), life.case.task.id, Token(1), BOB), at(1))
    assert (life.record.idles, life.record.idle_reached) == (1, None)


def test_saying_it_twice_is_saying_it_once() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.do(idle(life), at(1))
    life.do(idle(life), at(2))
    assert life.record.timeouts == 1


def test_after_the_hard_limit_it_is_a_timeout_and_no_idleness() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.do(idle(life), at(16))
    assert isinstance(life.error, LeaseLost)
    assert life.attempts[1].outcome == "agent_timeout"


def test_a_receipt_is_told_while_the_lease_lives_and_after_it_has_ended() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.do(keep(life), at(1))
    life.do(idle(life), at(2))
    life.do(keep(life), at(3))
    assert [told.data for told in life.told("receipt_written")] == [
        {"receipt": "rc_a.1", "status": "idle", "path": "r.json"}
    ] * 2
    assert life.stands() is State.READY


@pytest.mark.parametrize("token, agent", [(1, "eve"), (2, "bob"), (0, "bob")])
def test_a_receipt_of_somebody_else_s_is_refused(token: int, agent: str) -> None:
    life = Life()
    life.claim("bob", at(0))
    life.do(keep(life, token, AgentId(agent)), at(1))
    assert isinstance(life.error, LeaseLost)
    assert not life.told("receipt_written")


def test_a_receipt_whose_path_no_store_can_hold_is_refused() -> None:
    life = Life()
    life.claim("bob", at(0))
    with pytest.raises(Refused):
        life.do(keep(life, path="a\0b"), at(1))
    assert TaskId("t_a") == life.case.task.id
