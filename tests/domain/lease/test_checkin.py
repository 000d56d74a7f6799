"""Check-ins asked for, answered and missed; agents that stall, and how their work is taken back (O2, O3, O8)."""

import pytest
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, Token
from allswell.domain.lease.expiry import one_more_window
from allswell.domain.lease.model import Agent, tells_every
from allswell.domain.question import REPEATED_TIMEOUT_OPTIONS
from allswell.domain.rules.command import Recover
from allswell.domain.task.model import Policy, State
from allswell.errors import Refused
from tests.domain.life import MINUTE, SECOND, Life, at

BOB = AgentId("bob")


def stalled(life: Life | None = None) -> Life:
    """A task whose holder was silent over two runs: marked as stalled at 20:30, its third miss."""
    life = life or Life()
    life.claim(BOB, at(0))
    life.tick_when_due(at(15))
    life.claim(BOB, at(15))
    life.tick_when_due(at(20.5))
    return life


@pytest.mark.row("O2")
def test_a_missed_check_in_is_told_when_its_30_seconds_are_over() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.tick(Millis(at(5.5) - 1))
    assert life.told("checkpoint_timeout") == []
    life.tick(at(5.5))
    (told,) = life.told("checkpoint_timeout")
    assert (told.agent, told.task, dict(told.data)) == ("bob", "t_a", {"checkpoint_count": 1})
    assert life.agents[BOB] == Agent(BOB, 1, at(5.5))
    assert life.stands() is State.HELD


@pytest.mark.row("O2")
@pytest.mark.parametrize("answered_at", [5, 5.25, 5.49])
def test_an_answer_in_time_is_no_miss(answered_at: float) -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.check_in(at(answered_at))
    life.tick_when_due(at(9))
    assert life.told("checkpoint_timeout") == []
    assert life.agents == {}


@pytest.mark.row("O2")
@pytest.mark.parametrize("said", [{"proof": False}], ids=["a sign of life"])
def test_a_sign_of_life_is_no_answer(said: dict[str, bool]) -> None:
    life = Life()
    life.claim(BOB, at(0), length=10 * MINUTE)
    life.check_in(at(5.2), **said)
    life.tick_when_due(at(6))
    assert len(life.told("checkpoint_timeout")) == 1


@pytest.mark.row("O2")
def test_what_was_said_before_the_question_does_not_answer_it() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.check_in(at(4.9))
    life.tick_when_due(at(6))
    assert len(life.told("checkpoint_timeout")) == 1


@pytest.mark.row("O3")
def test_an_agent_silent_over_two_runs_is_found_at_its_third_miss() -> None:
    life = stalled()
    assert [(event.data["checkpoint_count"]) for event in life.told("checkpoint_timeout")] == [1, 2, 3]
    (told,) = life.told("agent_stalled")
    assert (told.agent, told.task, dict(told.data)) == ("bob", "t_a", {"action": "marked_for_restart"})
    assert life.agents[BOB] == Agent(BOB, 3, at(20.5), stalled=True)
    assert life.lease.stalled_at == at(20.5)


@pytest.mark.row("O3")
def test_an_answer_clears_the_misses() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.tick_when_due(at(6))
    life.check_in(at(7))
    assert life.agents == {}
    life.tick_when_due(at(11))
    assert life.agents[BOB].misses == 1


@pytest.mark.row("O3")
def test_an_answer_on_another_lease_clears_them_too() -> None:
    first, second = Life(), Life(id_="t_b")
    first.agents = second.agents
    first.claim(BOB, at(0))
    first.tick_when_due(at(6))
    second.claim(BOB, at(6))
    second.check_in(at(7))
    assert first.agents == {}


@pytest.mark.row("O3")
def test_misses_are_counted_per_agent_over_all_its_leases() -> None:
    lives = [Life(id_=f"t_{letter}") for letter in "abc"]
    for life in lives:
        life.agents = lives[0].agents
        life.claim(BOB, at(0))
    for life in lives:
        life.tick_when_due(at(5.5))
    assert [bool(life.told("agent_stalled")) for life in lives] == [False, False, True]


def test_finishing_is_an_answer_as_well() -> None:
    life = Life()
    life.claim(BOB, at(0))
    life.tick_when_due(at(6))
    life.complete(at(7))
    assert life.agents == {}


@pytest.mark.row("O8")
def test_a_stalled_agent_s_task_is_taken_back_when_its_supervisor_has_ended_it() -> None:
    life = stalled()
    life.events.clear()
    life.do(Recover(CommandId("r"), life.case.task.id, Token(2), BOB), Millis(at(20.5) + 3 * SECOND))
    assert [event.kind for event in life.events] == ["task_returned", "stalled_agent_recovered"]
    returned, recovered = life.events
    assert dict(returned.data) == {"reason": "agent_stalled"}
    assert (recovered.agent, recovered.task, dict(recovered.data)) == ("bob", "t_a", {})
    assert life.stands() is State.READY
    assert life.agents == {}


@pytest.mark.row("O8")
def test_it_is_taken_back_after_the_grace_in_any_case() -> None:
    life = stalled()
    life.events.clear()
    assert life.case.due == at(20.5) + 10 * SECOND
    life.tick_when_due(at(21))
    assert [event.kind for event in life.events] == ["task_returned", "stalled_agent_recovered"]
    assert (life.stands(), life.agents) == (State.READY, {})


@pytest.mark.row("O8")
def test_a_stall_is_not_a_timeout_in_the_counts() -> None:
    life = stalled()
    life.tick_when_due(at(21))
    assert (life.record.stalls, life.record.timeouts) == (1, 1)  # the timeout is the first run's
    assert life.attempts[2].outcome == "agent_stalled"
    assert life.told("task_repeated_timeout") == []


@pytest.mark.row("O8", "O9")
def test_the_third_stall_of_one_task_asks_the_question_too() -> None:
    life = Life(policy=Policy(stall_threshold=1))
    for number in range(3):
        life.claim(f"agent{number}", at(10 * number))
        life.tick_when_due(at(10 * number + 6))
        assert life.record.stalls == number + 1
    assert life.stands() is State.WAITING
    assert life.question.kind == "repeated_stall"
    assert life.question.options == REPEATED_TIMEOUT_OPTIONS
    assert "has stalled its agent 3 times" in life.question.text
    assert life.record.timeouts == 0


def test_an_agent_that_is_not_stalled_cannot_be_recovered() -> None:
    life = Life()
    life.claim(BOB, at(0))
    with pytest.raises(Refused, match="bob is not marked as stalled"):
        life.do(Recover(CommandId("r"), life.case.task.id, Token(1), BOB), at(1))


def test_an_answer_within_the_grace_lifts_the_mark() -> None:
    life = stalled()
    life.check_in(at(20.6))
    life.tick_when_due(at(24))
    assert (life.stands(), life.lease.stalled_at, life.agents) == (State.HELD, None, {})


def test_the_mark_is_lifted_when_the_attempt_reaches_its_limit_within_the_grace() -> None:
    """Nobody is left to be restarted for an attempt that has ended by itself."""
    life = Life(policy=Policy(timeout=330_500, stall_threshold=1, recovery_grace=60_000))
    life.claim(BOB, at(0))
    life.tick_when_due(at(5.5))
    assert life.agents[BOB].stalled
    life.tick_when_due(at(6))
    assert life.attempts[1].outcome == "agent_timeout"
    assert life.agents == {}


def test_after_a_jump_of_the_clock_every_holder_gets_one_more_window() -> None:
    life = Life(policy=Policy(idle=5 * MINUTE))
    life.claim(BOB, at(0), length=MINUTE)
    awake = one_more_window(life.case, at(60))
    assert awake.lease is not None
    assert awake.due is not None
    assert awake.due > at(60)
    assert awake.lease.deadline == at(60.5)  # as long as a holder has to answer
    assert one_more_window(awake, at(60)) == awake
    life.case = awake
    life.tick(at(60))
    assert life.stands() is State.HELD
    assert life.told("checkpoint_timeout") == []


def test_a_task_without_a_holder_needs_no_window() -> None:
    life = Life()
    assert one_more_window(life.case, at(60)) is life.case


def test_waking_up_makes_no_deadline_shorter() -> None:
    life = Life()
    life.claim(BOB, at(0))
    awake = one_more_window(life.case, at(1))
    assert awake.lease is not None
    assert awake.lease == replace(life.lease, renewed_at=at(1))


def test_a_late_sweeper_notes_when_the_check_in_was_missed_not_when_it_came_by() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.tick(at(7))
    assert life.agents[AgentId("bob")].missed_at == at(5.5)


@pytest.mark.parametrize(
    "wait, idle, every",
    [(30_000, None, 7_500), (120_000, None, 15_000), (30_000, 20_000, 5_000), (30_000, 50_000, 7_500), (3, None, 1)],
)
def test_what_a_watcher_sees_is_told_four_times_in_the_time_that_there_is_to_answer(
    wait: int, idle: int | None, every: int
) -> None:
    lease = Life(policy=Policy(checkpoint_timeout=wait, idle=idle)).claim("bob", at(0))
    assert tells_every(lease) == every


def test_a_window_that_reaches_an_attempt_s_own_limit_makes_it_its_own_again() -> None:
    life = Life(limit_at=at(9))
    life.claim("bob", at(0))
    for own, left in ((at(9.5), None), (Millis(at(9.5) + 1), Millis(at(9.5) + 1))):
        awake = one_more_window(replace(life.case, lease=replace(life.lease, own=own)), at(9)).lease
        assert awake is not None
        assert (awake.deadline, awake.own) == (at(9.5), left)
