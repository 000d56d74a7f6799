"""The very millisecond at which a lease ends: who may still speak, what is told, and what is told first."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from allswell.domain.ids import AgentId, CommandId, Millis, TaskId, Token
from allswell.domain.lease.model import Agent, LeaseRow, bounded, due_at, ends_at, is_asked
from allswell.domain.rules.command import CheckInAgain
from allswell.domain.run.run import Run
from allswell.domain.task.aggregate import requeue
from allswell.domain.task.model import Policy, RequestOrigin, State
from allswell.errors import LeaseLost
from tests.domain.life import MINUTE, RUN, START, Life, at

END = at(4)
LATER = Millis(END + MINUTE)
OUTCOMES = {
    "limit": "agent_timeout",
    "lapse": "lease_lapsed",
    "idle": "agent_idle",
    "stall": "agent_stalled",
    "run": "run_timeout",
}
"""What ends a lease, and how its attempt is said to have ended; where several fall together, the first of them."""


def held(*clocks: str) -> Life:
    """A task of a run that is held by bob; these clocks end it at `END`, and no other does before `LATER`."""
    life = Life(limit_at=END if "run" in clocks else None, policy=Policy(timeout=10 * MINUTE))
    lease = life.claim("bob", START, length=MINUTE)
    ours = replace(
        lease,
        deadline=END if {"limit", "run"} & set(clocks) else LATER,
        own=LATER if "run" in clocks and "limit" not in clocks else None,
        length=END - START if "lapse" in clocks else None,
        idle=END - START if "idle" in clocks else None,
        stalled_at=Millis(END - lease.grace) if "stall" in clocks else None,
    )
    life.case = replace(life.case, lease=ours, due=due_at(ours))
    if "stall" in clocks:
        life.agents[AgentId("bob")] = Agent(AgentId("bob"), 3, START, stalled=True)
    return life


@pytest.mark.parametrize("clock", OUTCOMES)
def test_until_the_last_millisecond_the_holder_is_heard(clock: str) -> None:
    last = Millis(END - 1)
    assert ends_at(held(clock).lease) == END
    assert held(clock).check_in(last).lease.renewed_at == last
    life = held(clock)
    life.complete(last)
    assert (life.error, life.stands()) == (None, State.DONE)
    life = held(clock)
    out = life.tick(last)
    assert (out.events, life.stands(), life.case.due) == ([], State.HELD, END)


@pytest.mark.parametrize("clock", OUTCOMES)
def test_from_its_end_on_nobody_is_heard_and_a_sweeper_finds_it(clock: str) -> None:
    with pytest.raises(LeaseLost, match="its time ran out"):
        held(clock).check_in(END)
    spoken, swept = held(clock), held(clock)
    spoken.complete(END, result='"late"')
    swept.tick(END)
    assert isinstance(spoken.error, LeaseLost)
    for life in (spoken, swept):
        assert life.case.lease is None
        assert life.attempts[1].outcome == OUTCOMES[clock]
        assert life.attempts[1].ended_at == END
    assert [event.kind for event in spoken.told()][:-1] == [event.kind for event in swept.told()]
    assert spoken.told()[-1].kind == "late_result"


@pytest.mark.parametrize("first, second", [(one, other) for one in OUTCOMES for other in OUTCOMES if one != other])
def test_where_two_fall_on_one_millisecond_the_same_one_is_always_told(first: str, second: str) -> None:
    """The hard limit before all; a dead holder before an idle one, an idle before a stalled; the run's end last."""
    order = list(OUTCOMES)
    told = OUTCOMES[min(first, second, key=order.index)]
    life = held(first, second)
    life.tick(END)
    assert life.attempts[1].outcome == told
    spoken = held(first, second)
    spoken.complete(END)
    assert spoken.attempts[1].outcome == told


def test_an_end_comes_before_the_check_in_that_would_be_missed_with_it() -> None:
    life = Life(policy=Policy(timeout=10 * MINUTE, checkpoint_interval=MINUTE, checkpoint_timeout=30_000))
    life.claim("bob", START, length=90_000)
    life.tick(at(1.5))
    assert life.told("checkpoint_timeout") == []
    assert life.attempts[1].outcome == "lease_lapsed"


def test_a_lapse_is_told_with_what_it_had_taken() -> None:
    life = held("lapse")
    life.events.clear()
    life.tick(END)
    assert [(event.kind, dict(event.data)) for event in life.told()] == [
        ("lease_lapsed", {"elapsed_ms": END - START}),
        ("task_returned", {"reason": "lease_lapsed"}),
    ]


@pytest.mark.parametrize("clock", ["lapse", "idle", "limit"])
def test_what_is_held_against_an_agent_is_forgotten_with_the_attempt_that_it_stalled_in(clock: str) -> None:
    life = held(clock)
    life.case = replace(life.case, lease=replace(life.lease, stalled_at=Millis(END - 1)))
    life.agents[AgentId("bob")] = Agent(AgentId("bob"), 3, START, stalled=True)
    life.tick(END)
    assert life.agents == {}


def test_the_end_of_a_run_is_told_and_its_attempt_ended() -> None:
    life = held("run")
    life.events.clear()
    life.tick(END)
    assert life.stands() is State.FAILED
    assert life.record.reason == "run_timeout"
    assert [event.kind for event in life.told()] == ["task_failed"]


def test_who_answers_in_the_very_moment_in_which_it_is_asked_owes_nothing() -> None:
    life = Life()
    life.claim("bob", START)
    life.check_in(at(5))
    assert is_asked(life.lease, at(5)) is False
    assert is_asked(replace(life.lease, checkin_at=Millis(at(5) - 1)), at(5)) is True


def test_a_check_in_that_finds_its_run_s_clock_moved_renews_the_lease_and_its_timer() -> None:
    """What its lease alone would have refused is said again with the run in sight."""
    life = held("run")
    life.run = Run(RUN, "run", START, LATER)
    lease = life.lease
    said = CheckInAgain(CommandId("c"), lease.task, lease.token, lease.agent, note="on it", progress=0.5)
    out = life.do(said, END)
    assert life.error is None
    assert life.lease.renewed_at == END
    assert life.lease.deadline == LATER
    assert life.case.due == due_at(life.lease)
    assert [event.kind for event in out.events] == ["limit_moved", "task_checked_in"]
    assert getattr(out.answer, "deadline", None) == LATER


# --- the limit of a run -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limit, deadline, own",
    [
        (None, LATER, None),
        (Millis(LATER + 1), LATER, None),
        (LATER, LATER, None),
        (Millis(LATER - 1), LATER - 1, LATER),
    ],
)
def test_a_run_s_limit_counts_where_it_is_nearer(limit: Millis | None, deadline: int, own: int | None) -> None:
    lease: LeaseRow = held("limit").lease
    lease = replace(lease, deadline=LATER)
    under = bounded(lease, limit)
    assert (under.deadline, under.own) == (deadline, own)
    assert bounded(under, limit) is under, "nothing is written where nothing has changed"
    assert bounded(under, Millis(LATER - 2)) == replace(lease, deadline=LATER - 2, own=LATER), "that limit may move"
    assert bounded(under, None) == lease, "and it is lifted again"


def asked_for(expiry: Millis) -> Life:
    """A request whose time is up at a moment, as far as the clock of one task goes."""
    life = Life()
    origin = RequestOrigin(TaskId("t_asking"), Token(1), AgentId("ada"), CommandId("ask"))
    task = life.case.task
    task = replace(task, spec=replace(task.spec, origin=origin, limit_at=expiry))
    life.case = requeue(replace(life.case, task=task), START)
    return life


@pytest.mark.row("O5")
@pytest.mark.parametrize("taken", [False, True])
def test_a_request_can_be_answered_until_its_last_millisecond_and_no_longer(taken: bool) -> None:
    life = asked_for(END)
    assert life.case.due == END
    if taken:
        assert life.claim("bob", START).deadline == END
    out = life.tick(Millis(END - 1))
    assert (out.events, life.stands(), life.case.due) == ([], State.HELD if taken else State.READY, END)
    out = life.tick(END)
    assert life.stands() == State.FAILED
    assert (life.case.due or life.case.lease) is None
    (told,) = [one for one in out.events if one.kind == "task_failed"]
    said = "bob did not answer in time" if taken else "no agent took it in time"
    assert (told.data["reason"], told.data["message"]) == ("delegation_timeout", said)
    assert [one.outcome for one in life.attempts.values()] == (["delegation_timeout"] if taken else [])
