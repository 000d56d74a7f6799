"""When a worker is degraded, when it is critical, and when it no longer is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.worker.limits import HEALTH, Health, WorkerCondition, condition

MINUTE = 60_000


def condition_of(health: Health, now: int) -> WorkerCondition:
    return condition(health, now)[0]


@pytest.mark.row("W6")
def test_ten_failures_in_a_row_degrade_it_and_one_success_mends_it() -> None:
    health = Health()
    for _ in range(9):
        health = health.after_failure()
    assert condition_of(health, 0) is WorkerCondition.HEALTHY
    health = health.after_failure()
    assert condition(health, 0) == (WorkerCondition.DEGRADED, "10 failures in a row")
    assert condition_of(health.after_success(), 0) is WorkerCondition.HEALTHY


@pytest.mark.row("W6")
def test_three_stuck_handlers_within_five_minutes_are_critical() -> None:
    health = Health().after_stuck(0).after_stuck(2 * MINUTE).after_stuck(4 * MINUTE)
    assert condition_of(health, 4 * MINUTE) is WorkerCondition.CRITICAL
    assert condition_of(health, 5 * MINUTE) is WorkerCondition.HEALTHY, "the first one is five minutes old"
    assert condition_of(Health(), 4 * MINUTE) is WorkerCondition.HEALTHY, "a restart clears it"


@pytest.mark.row("W6")
def test_one_message_that_gets_stuck_again_and_again_is_one() -> None:
    health = Health().after_stuck(0, message=7).after_stuck(MINUTE, message=7).after_stuck(2 * MINUTE, message=7)
    assert condition_of(health, 2 * MINUTE) is WorkerCondition.HEALTHY
    health = health.after_stuck(2 * MINUTE, message=8).after_stuck(2 * MINUTE, message=9)
    assert condition_of(health, 2 * MINUTE) is WorkerCondition.CRITICAL


@pytest.mark.row("W3", "W6")
def test_five_waits_in_vain_within_five_minutes_are_critical() -> None:
    health = Health()
    for moment in range(4):
        health = health.after_exhaustion(moment * MINUTE)
    assert condition_of(health, 3 * MINUTE) is WorkerCondition.HEALTHY
    assert condition_of(health.after_exhaustion(4 * MINUTE), 4 * MINUTE) is WorkerCondition.CRITICAL
    assert condition_of(health.after_exhaustion(5 * MINUTE), 5 * MINUTE) is WorkerCondition.HEALTHY


@pytest.mark.row("W6")
@given(st.lists(st.tuples(st.sampled_from(["stuck", "exhausted"]), st.integers(0, 200_000)), max_size=30))
def test_only_the_window_counts_and_only_it_is_kept(events: list[tuple[str, int]]) -> None:
    health, now, seen = Health(), 0, list[tuple[str, int]]()
    for kind, pause in events:
        now += pause
        seen.append((kind, now))
        health = health.after_stuck(now) if kind == "stuck" else health.after_exhaustion(now)
        recent = [kind for kind, moment in seen if now - moment < HEALTH.window]
        bad = recent.count("stuck") >= HEALTH.critical_stuck or recent.count("exhausted") >= HEALTH.critical_exhausted
        assert (condition_of(health, now) is WorkerCondition.CRITICAL) == bad
        assert len(health.stuck) + len(health.exhausted) <= len(seen)
