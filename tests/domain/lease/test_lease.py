"""The four clocks of a lease, and the moments at which a holder is asked for a check-in."""

import pytest

from allswell.domain.duration import LONGEST
from allswell.domain.ids import NO_COMMAND, AgentId, CommandId, TaskId
from allswell.domain.lease.claim import CLAIM_MAX, LENGTH_MIN, check_claim, fits, grant
from allswell.domain.lease.clock_change import moved_lease
from allswell.domain.lease.model import asked_at, bounded, due_at, ends_at, is_asked, judged_at
from allswell.domain.rules.command import Claim
from allswell.domain.task.model import Policy, State
from allswell.errors import LeaseLost, Refused
from tests.domain.life import MINUTE, SECOND, Life, at


@pytest.mark.row("O1", "O2")
def test_with_the_defaults_a_holder_is_asked_at_5_and_10_of_15_minutes_only() -> None:
    lease = Life().claim("bob", at(0))
    assert lease.deadline == at(15)
    assert [asked_at(lease, number) for number in range(1, 5)] == [at(5), at(10), None, None]


@pytest.mark.row("O2")
@pytest.mark.parametrize("timeout, times", [(14 * MINUTE, 2), (15 * MINUTE, 2), (15 * MINUTE + 1, 3), (5 * MINUTE, 0)])
def test_it_is_asked_strictly_before_its_limit(timeout: int, times: int) -> None:
    lease = Life(policy=Policy(timeout=timeout)).claim("bob", at(0))
    assert [asked_at(lease, number) is not None for number in range(1, 5)].count(True) == times


@pytest.mark.row("O2")
def test_the_wait_for_an_answer_neither_pauses_nor_extends_the_run() -> None:
    life = Life()
    life.claim("bob", at(0))
    assert life.case.due == at(5.5)
    life.tick_when_due(at(14))
    assert life.lease.deadline == at(15) == ends_at(life.lease)
    life.check_in(at(14.5))
    assert life.lease.deadline == at(15) == due_at(life.lease)


def test_every_answer_says_whether_a_check_in_is_owed() -> None:
    life = Life()
    life.claim("bob", at(0))
    assert life.check_in(at(4.9), proof=False).orders.asked is False
    orders = life.check_in(at(5), proof=False).orders
    assert (orders.asked, orders.remaining_ms) == (True, 10 * MINUTE)
    assert life.check_in(at(5.2)).orders.asked is False
    assert is_asked(life.lease, at(9.9)) is False
    assert is_asked(life.lease, at(10)) is True


def test_the_earliest_clock_is_the_one_that_ends_it() -> None:
    lease = Life(policy=Policy(idle=4 * MINUTE)).claim("bob", at(0), length=3 * MINUTE)
    assert ends_at(lease) == at(3)
    assert judged_at(lease) == at(5.5)
    assert due_at(lease) == at(3)


def test_renewing_proves_life_but_not_progress() -> None:
    life = Life(policy=Policy(idle=4 * MINUTE))
    life.claim("bob", at(0), length=3 * MINUTE)
    life.check_in(at(2.9), proof=False)
    assert ends_at(life.lease) == at(4)
    life.check_in(at(3.5))
    assert ends_at(life.lease) == at(6.5)


def test_a_lease_that_is_not_renewed_lapses_and_the_third_time_a_human_is_asked() -> None:
    life = Life()
    for number in (1, 2, 3):
        life.claim(f"agent{number}", at(number), length=10 * SECOND)
        life.tick_when_due(at(number + 0.5))
        assert life.record.lapses == number
    assert life.stands() is State.WAITING
    assert life.question.kind == "repeated_lapse"
    assert "has lost its holder 3 times" in life.question.text
    assert life.record.timeouts == 0


def test_no_progress_for_too_long_is_a_timeout() -> None:
    life = Life(policy=Policy(idle=4 * MINUTE))
    life.claim("bob", at(0))
    life.check_in(at(3))
    life.tick_when_due(at(7))
    assert life.stands() is State.READY
    assert life.record.timeouts == 1
    assert [event.kind for event in life.told("agent_idle", "task_returned")] == ["agent_idle", "task_returned"]
    assert life.told("agent_idle")[0].data == {"elapsed_ms": 7 * MINUTE}


def test_a_holder_whose_time_ran_out_is_refused_even_if_no_sweeper_came_by() -> None:
    life = Life()
    life.claim("bob", at(0), length=MINUTE)
    with pytest.raises(LeaseLost, match="its time ran out"):
        life.check_in(at(1))
    assert life.stands() is State.HELD


def test_a_run_s_deadline_caps_the_attempt() -> None:
    life = Life(limit_at=at(9))
    assert life.claim("bob", at(0)).deadline == at(9)
    assert asked_at(life.lease, 2) is None


def test_nothing_is_handed_out_once_the_run_s_time_is_up() -> None:
    life = Life(limit_at=at(9))
    assert grant(life.case, Claim(CommandId("c"), AgentId("bob")), at(9), life.run).answer is None


def test_every_lease_has_a_greater_token() -> None:
    life = Life()
    tokens = []
    for number in range(4):
        tokens.append(life.claim("bob", at(number)).token)
        life.release(at(number))
    assert tokens == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "claim, code",
    [
        (Claim(CommandId("c"), AgentId("")), "bad_name"),
        (Claim(CommandId("c"), AgentId("a\nb")), "bad_name"),
        (Claim(CommandId("c"), AgentId("a"), count=0), "bad_count"),
        (Claim(CommandId("c"), AgentId("a"), count=10_001), "bad_count"),
        (Claim(CommandId("c"), AgentId("a"), length=99), "bad_lease"),
        (Claim(CommandId("a\nb"), AgentId("a")), "bad_name"),
    ],
)
def test_a_claim_that_cannot_be_meant_is_refused(claim: Claim, code: str) -> None:
    with pytest.raises(Refused) as caught:
        check_claim(claim)
    assert caught.value.code == code


def test_the_most_and_the_least_that_can_be_claimed_is_granted() -> None:
    for count in (1, CLAIM_MAX):
        check_claim(Claim(NO_COMMAND, AgentId("a"), count=count, length=LENGTH_MIN))


@pytest.mark.parametrize(
    "roles, task, fitting",
    [
        (None, None, ["", "writer"]),
        (("writer", "run"), None, ["writer", "run"]),
        (None, "t_a", ["", "writer", "step", "run"]),
    ],
)
def test_who_takes_any_role_takes_no_step_and_no_stopped_command_unless_it_names_it(
    roles: tuple[str, ...] | None, task: str | None, fitting: list[str]
) -> None:
    claim = Claim(NO_COMMAND, AgentId("a"), roles, task=None if task is None else TaskId(task))
    assert [role for role in ("", "writer", "step", "run") if fits(claim, role)] == fitting


@pytest.mark.parametrize("progress", [0, 1, 0.5, None])
def test_a_share_is_from_nothing_to_all(progress: float | None) -> None:
    life = Life()
    life.claim("bob", at(0))
    assert life.check_in(at(1), progress=progress).lease.progress == progress


@pytest.mark.parametrize("progress", [-0.1, 1.1, float("nan")])
def test_progress_is_a_share(progress: float) -> None:
    life = Life()
    life.claim("bob", at(0))
    with pytest.raises(Refused, match="progress is a share from 0 to 1"):
        life.check_in(at(1), progress=progress)


def test_a_note_becomes_an_event_and_silence_does_not() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.events.clear()
    life.check_in(at(1))
    life.check_in(at(2), note="half way", progress=0.5)
    assert [(event.kind, dict(event.data)) for event in life.events] == [
        ("task_checked_in", {"note": "half way", "progress": 0.5})
    ]


@pytest.mark.row("O1")
def test_an_attempt_without_a_limit_is_never_ended_nor_asked_and_says_so() -> None:
    life = Life(policy=Policy(timeout=None, checkpoint_interval=LONGEST))
    lease = life.claim("bob", at(0))
    assert (lease.limit, lease.limit_at, asked_at(lease, 1), judged_at(lease)) == (None, None, None, None)
    assert life.check_in(at(600)).orders.remaining_ms is None
    years = 20 * 366 * 24 * 60
    life.tick_when_due(at(years))
    assert life.stands() is State.HELD
    assert is_asked(life.lease, at(years)) is False
    (claimed,) = life.told("task_claimed")
    assert claimed.data == {"deadline": None}
    assert not life.told("agent_timeout", "checkpoint_timeout")


def test_an_attempt_without_a_limit_has_that_of_its_run_while_its_clock_goes() -> None:
    lease = Life(policy=Policy(timeout=None)).claim("bob", at(0))
    capped = bounded(lease, at(30))
    assert (capped.limit, capped.limit_at) == (30 * MINUTE, at(30))
    assert bounded(capped, None) == lease
    assert moved_lease(lease, -7 * MINUTE).limit is None


def test_a_limit_of_a_year_is_a_limit() -> None:
    assert Life(policy=Policy(timeout=LONGEST - 1)).claim("bob", at(0)).limit == LONGEST - 1
