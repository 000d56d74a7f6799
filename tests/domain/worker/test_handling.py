"""What follows when a message fails, or when nobody ever came back from it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.domain.service.retry import ErrorClass
from allswell.domain.worker.message import (
    FailedForGood,
    MessageFailure,
    MessageHistory,
    MessagePolicy,
    Quarantined,
    Retried,
    after_failure,
    after_giving_back,
    after_retry_by_operator,
    after_turning_away,
    before_handling,
    on_trial,
)

TIMEOUT = MessageFailure(ErrorClass.TRANSIENT, "TIMEOUT", "Statement timeout exceeded")


@pytest.mark.row("W5")
def test_a_transient_failure_is_tried_three_times_more_and_then_quarantined() -> None:
    history, pauses = MessageHistory(), []
    while isinstance(verdict := after_failure(TIMEOUT, history), Retried):
        pauses.append(verdict.delay)
        history = verdict.history
    assert pauses == [10_000, 60_000, 300_000]
    assert isinstance(verdict, Quarantined)
    assert verdict.code == "TIMEOUT"
    assert "after 3 retries" in verdict.reason


@pytest.mark.row("W5")
@pytest.mark.parametrize("error", [ErrorClass.PERMANENT, ErrorClass.BUG, ErrorClass.VALIDATION, ErrorClass.AUTH])
def test_what_no_retry_mends_is_quarantined_at_once(error: ErrorClass) -> None:
    assert after_failure(MessageFailure(error, "X", "why"), MessageHistory()) == Quarantined("X", "why")


@pytest.mark.row("W5")
def test_a_business_failure_ends_as_failed_and_asks_nobody() -> None:
    declined = MessageFailure(ErrorClass.VALIDATION, "DECLINED", "the card was declined", business=True)
    assert after_failure(declined, MessageHistory()) == FailedForGood("DECLINED", "the card was declined")


def test_a_wait_that_was_asked_for_is_waited() -> None:
    asked = MessageFailure(ErrorClass.RATE_LIMIT, "BUSY", "later", Millis(42_000))
    assert after_failure(asked, MessageHistory()) == Retried(Millis(42_000), MessageHistory(1, 1), "BUSY", "later")
    long = MessageFailure(ErrorClass.RATE_LIMIT, "BUSY", "tomorrow", Millis(86_400_000))
    parked = Retried(Millis(86_400_000), MessageHistory(1, 1), "BUSY", "tomorrow")
    assert after_failure(long, MessageHistory()) == parked, "a retry is spent, or it would be tried for ever"
    assert after_failure(long, MessageHistory(3, 3)) == Quarantined("BUSY", "tomorrow (a failure after 3 retries)")


@pytest.mark.row("W5")
def test_poison_is_three_readings_without_an_end() -> None:
    assert before_handling(3, MessageHistory()) is None
    poison = before_handling(4, MessageHistory())
    assert poison is not None
    assert (poison.code, "3 times" in poison.reason) == ("POISON", True)


@pytest.mark.row("W5")
def test_the_last_reading_before_that_is_a_trial() -> None:
    assert [on_trial(reading, MessageHistory()) for reading in (1, 2, 3, 4)] == [False, False, True, False]
    assert on_trial(8, MessageHistory(recorded=2, late=3))
    lines = [after_turning_away(MessageHistory(2, 1, 3), place, 30) for place in (1, 2, 31)]
    assert [one.delay for one in lines] == [1_000, 2_000, 30_000]
    assert {one.history for one in lines} == {MessageHistory(3, 1, 3)}
    assert on_trial(9, lines[0].history), "who was turned away is on trial again"
    assert not on_trial(1, MessageHistory(), MessagePolicy(poison_after=1)), "or all messages would be"


ENDS = st.lists(st.sampled_from(["crash", "late", "fail", "give back", "operator"]), max_size=40)


@pytest.mark.row("W5")
@given(ENDS, st.builds(MessagePolicy, st.tuples(st.just(10), st.just(60)), st.integers(1, 5)))
def test_crashes_and_retries_are_counted_apart(ends: list[str], policy: MessagePolicy) -> None:
    history, crashes, failures = MessageHistory(), 0, 0
    for read_count, end in enumerate(ends, start=1):
        assert (before_handling(read_count, history, policy) is not None) == (crashes >= policy.poison_after)
        if crashes >= policy.poison_after or end == "operator":
            history, crashes, failures = after_retry_by_operator(read_count), 0, 0
        elif end == "crash":
            crashes += 1
        elif end == "late":
            history = replace(history, late=history.late + 1)
        elif end == "give back":
            history = after_giving_back(history).history
        else:
            verdict = after_failure(TIMEOUT, history, policy)
            assert isinstance(verdict, Retried) == (failures < len(policy.pauses))
            if isinstance(verdict, Retried):
                assert verdict.delay == policy.pauses[failures]
                history, failures = verdict.history, failures + 1
            else:
                history, crashes, failures = after_retry_by_operator(read_count), 0, 0
