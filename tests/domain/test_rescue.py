"""What a supervisor may say about an attempt it has ended: that it was idle, and that a receipt exists."""

import pytest

from allswell.domain.command import EndIdle, Keep
from allswell.domain.names import AgentId, CommandId, TaskId, Token
from allswell.domain.task import State
from allswell.errors import LeaseLost, Refused
from tests.domain.life import Life, at

BOB = AgentId("bob")


def idle(life: Life, token: int = 1, id_: str = "i") -> EndIdle:
    return EndIdle(CommandId(id_), life.case.task.id, Token(token), BOB)


def keep(life: Life, token: int = 1, agent: AgentId = BOB, path: str = "r.json") -> Keep:
    return Keep(CommandId("k"), life.case.task.id, Token(token), agent, "rc_a.1", "idle", path)


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
