"""A command that a person has stopped: its limit stands, its lease does not, and no agent of a fleet can do so."""

import pytest

from allswell.domain.ids import AgentId, CommandId, Millis, Token
from allswell.domain.lease.claim import RUN_ROLE
from allswell.domain.lease.suspension import LONGEST_STOP, Continue, NoteRefusal, Suspend, time_left
from allswell.domain.task.model import Policy, State
from allswell.errors import LeaseLost, Refused
from tests.domain.life import Life, at

BOB = AgentId("bob")
ALONE = Policy(checkpoint_interval=900_000)


def suspend(life: Life, by: str = "SIGTSTP", ago: int = 0) -> Suspend:
    return Suspend(CommandId("s"), life.case.task.id, Token(1), BOB, by, ago)


def go_on(life: Life, token: int = 1) -> Continue:
    return Continue(CommandId("g"), life.case.task.id, Token(token), BOB)


def stopped(*, length: int | None = None) -> Life:
    """A command with a limit of 15 minutes that was stopped after ten."""
    life = Life(role=RUN_ROLE, policy=ALONE)
    life.claim("bob", at(0), length=length)
    life.do(suspend(life), at(10))
    return life


def test_the_limit_stands_and_is_later_by_the_time_that_it_stood() -> None:
    life = stopped()
    life.tick_when_due(at(600))
    assert life.stands() is State.HELD
    assert life.case.lease is not None
    assert time_left(life.case.task, life.case.lease, at(600)) == 300_000
    life.do(go_on(life), at(610))
    assert life.record.stopped is None
    life.tick_when_due(at(614.9))
    assert life.stands() is State.HELD
    life.tick_when_due(at(615))
    assert life.attempts[1].outcome == "agent_timeout"
    assert [(told.data["signal"], told.data["stood_ms"]) for told in life.told("task_continued")] == [
        ("SIGTSTP", 36_000_000)
    ]


def test_what_is_said_twice_counts_once_and_what_was_noticed_late_counts_from_its_beginning() -> None:
    life = stopped()
    life.do(suspend(life, "SIGSTOP"), at(11))
    assert life.record.stopped is not None
    assert (life.record.stopped.by, len(life.told("task_suspended"))) == ("SIGTSTP", 1)
    life.do(go_on(life), at(12))
    life.do(go_on(life), at(13))
    life.do(suspend(life, ago=600_000), at(14))
    assert life.record.stopped.at == at(13), "a minute before is the earliest"
    life.do(go_on(life), at(14))
    assert life.case.lease is not None
    assert life.case.lease.deadline == at(15 + 2 + 1)


def test_a_stopped_command_whose_lease_is_not_renewed_lapses() -> None:
    life = stopped(length=660_000)
    life.tick_when_due(at(22))
    assert life.attempts[1].outcome == "lease_lapsed"
    assert life.record.stopped is None
    life.claim("bob", at(30))
    with pytest.raises(LeaseLost):
        life.do(go_on(life), at(31))


def test_nothing_stands_for_longer_than_a_day() -> None:
    life = stopped()
    life.tick_when_due(Millis(at(15) + LONGEST_STOP))
    assert life.attempts[1].outcome == "agent_timeout"


def test_an_agent_of_a_fleet_cannot_stop_its_clock() -> None:
    life = Life(role="builder")
    life.claim("bob", at(0))
    with pytest.raises(Refused, match="only such a command can be stopped"):
        life.do(suspend(life), at(1))


def test_what_a_provider_refuses_is_noted_until_it_goes_on_or_ends_and_moves_no_limit() -> None:
    life = Life(role=RUN_ROLE, policy=ALONE)
    life.claim("bob", at(0))
    for minute, words in enumerate(("429, try 1 of 10", "429, try 2 of 10", "", "503, try 1 of 10"), 1):
        life.do(NoteRefusal(CommandId(f"r{minute}"), life.case.task.id, Token(1), BOB, words), at(minute))
        assert life.record.refused == words
    states = [(told.data["state"], told.data["evidence"]) for told in life.told("agent_state")]
    waits = "waiting for the provider"
    assert states == [
        (waits, "429, try 1 of 10"),
        ("working", "its provider has answered"),
        (waits, "503, try 1 of 10"),
    ]
    life.tick_when_due(at(15))
    assert life.attempts[1].outcome == "agent_timeout"
    assert life.record.refused == ""
    with pytest.raises(LeaseLost):
        life.do(NoteRefusal(CommandId("late"), life.case.task.id, Token(1), BOB, "429"), at(16))
