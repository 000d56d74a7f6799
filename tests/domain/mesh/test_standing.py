"""How an agent stands with those who ask it: degraded, healthy again, passed over or not (M7, M8)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.ids import Millis
from allswell.domain.lease.model import AgentRecord, ExpiredDelivery
from allswell.domain.mesh.health import (
    DAY,
    KEPT,
    NEUTRAL,
    TOO_MANY,
    after_expiry,
    after_unblocking,
    counts,
    healthy_at,
    held_against,
    is_degraded,
    passed_over,
    score,
)

HOUR = 3_600_000


def expired(*moments: int) -> AgentRecord:
    standing = NEUTRAL
    for at in moments:
        standing = after_expiry(standing, ExpiredDelivery(Millis(at), f"m_{at}", "handoff", 300_000))
    return standing


def unblocking(*moments: int) -> AgentRecord:
    standing = NEUTRAL
    for at in moments:
        standing = after_unblocking(standing, Millis(at))
    return standing


@pytest.mark.row("M7")
def test_more_than_three_expiries_within_a_day_degrade_and_age_out() -> None:
    three, four = expired(0, HOUR, 2 * HOUR), expired(0, HOUR, 2 * HOUR, 3 * HOUR)
    assert not is_degraded(three, Millis(3 * HOUR))
    assert is_degraded(four, Millis(3 * HOUR))
    assert healthy_at(four, Millis(3 * HOUR)) == DAY
    assert is_degraded(four, Millis(DAY - 1))
    assert not is_degraded(four, Millis(DAY))
    assert healthy_at(four, Millis(DAY)) is None
    assert [one.request for one in held_against(four, Millis(DAY))] == [f"m_{at * HOUR}" for at in (1, 2, 3)]


@pytest.mark.row("M7")
def test_an_expiry_under_a_shorter_timeout_than_its_kind_has_does_not_count() -> None:
    assert counts(300_000, 300_000)
    assert counts(600_000, 300_000)
    assert not counts(299_999, 300_000)


@pytest.mark.row("M7")
def test_the_degraded_are_passed_over_while_somebody_else_can_serve() -> None:
    bad, now = expired(1, 2, 3, 4), Millis(5)
    assert passed_over({"ann": bad, "bob": NEUTRAL, "cyd": bad}, now) == ("ann", "cyd")
    assert passed_over({"ann": bad}, now) == ()
    assert passed_over({"ann": NEUTRAL, "bob": expired(1, 2, 3)}, now) == (), "the score does not come before health"
    assert passed_over({}, now) == ()
    assert passed_over({"ann": bad, "bob": NEUTRAL}, Millis(DAY + 4)) == ()


@pytest.mark.row("M8")
def test_where_all_are_degraded_the_score_decides_and_nothing_more() -> None:
    bad, worse, now = expired(1, 2, 3, 4), expired(1, 2, 3, 4, 5), Millis(9)
    helpful = AgentRecord(bad.expired, (Millis(6),))
    assert passed_over({"ann": bad, "bob": worse}, now) == ("bob",)
    assert passed_over({"ann": bad, "bob": helpful}, now) == ("ann",)
    assert passed_over({"ann": bad, "bob": bad}, now) == ()
    assert (score(bad, now), score(helpful, now), score(unblocking(1, 2), now)) == (-4, -3, 2)


moments = st.lists(st.integers(0, 3 * DAY), max_size=30).map(sorted)


@given(moments, st.integers(0, 4 * DAY))
def test_what_is_kept_says_the_same_as_all_of_it(history: list[int], later: int) -> None:
    """The row has an end, and still knows whether there were too many within a day, at any later moment."""
    now = Millis(max([later, *history]))
    standing = expired(*history)
    recent = [at for at in history if at > now - DAY]
    assert len(standing.expired) <= KEPT
    assert is_degraded(standing, now) == (len(recent) > TOO_MANY)
    assert len(held_against(standing, now)) == min(len(recent), KEPT)
    again = healthy_at(standing, now)
    if again is not None:
        assert again > now
        assert not is_degraded(standing, again)
        assert is_degraded(standing, Millis(again - 1))


@given(st.dictionaries(st.sampled_from("abcdef"), moments, max_size=5), st.integers(0, 4 * DAY).map(Millis))
def test_somebody_is_always_left(history: dict[str, list[int]], now: Millis) -> None:
    can_serve = {agent: expired(*at) for agent, at in history.items()}
    left = set(can_serve) - set(passed_over(can_serve, now))
    assert bool(left) == bool(can_serve)
    healthy = {agent for agent, standing in can_serve.items() if not is_degraded(standing, now)}
    assert left == healthy if healthy else left <= set(can_serve)


@pytest.mark.row("M7")
def test_what_is_yet_to_come_as_the_clock_was_set_back_does_not_count() -> None:
    record = AgentRecord(expired(1, 2, 3, 50).expired, (Millis(40),))
    assert not is_degraded(record, Millis(20))
    assert (len(held_against(record, Millis(20))), score(record, Millis(20))) == (3, -3)
    assert is_degraded(record, Millis(50))
    assert after_unblocking(record, Millis(20)) == AgentRecord(expired(1, 2, 3).expired, (Millis(20),))
