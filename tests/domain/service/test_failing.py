"""A holder's failure, carried out on its task: the judge's verdict as rows and events."""

import pytest

from allswell.domain.ids import Millis
from allswell.domain.question import ESCALATION_OPTIONS
from allswell.domain.service.classify import failure_of
from allswell.domain.service.retry import IN_WORDS, ErrorClass, Failure
from allswell.domain.task.model import State
from allswell.errors import Refused, ServiceParked
from tests.domain.life import MINUTE, SECOND, Life, at


def fail_often(life: Life, error: ErrorClass, times: int) -> Millis:
    """Claimed again and again as soon as it may be; when the last attempt failed."""
    now = at(0)
    for _ in range(times):
        if life.stands() is State.DELAYED:
            assert life.case.due is not None
            now = life.case.due
            life.tick(now)
        life.claim("bob", now)
        life.fail(now, error)
    return now


@pytest.mark.row("F4")
def test_a_network_error_is_tried_four_times_in_all_and_then_fails() -> None:
    life = Life()
    assert fail_often(life, ErrorClass.NETWORK, 3) == at(0) + 3 * SECOND
    assert life.stands() is State.DELAYED
    assert life.case.due == at(0) + 7 * SECOND
    life.tick(at(0) + 7 * SECOND)  # type: ignore[arg-type]
    life.claim("bob", at(1))
    life.fail(at(1), ErrorClass.NETWORK)
    assert life.stands() is State.FAILED
    assert [event.data["delay_ms"] for event in life.told("task_retried")] == [1_000, 2_000, 4_000]
    assert life.told("task_failed")[0].data == {
        "reason": "it broke; a network error after 3 retries",
        "message": "it broke",
    }


@pytest.mark.row("F4", "F5")
def test_the_sixth_rate_limit_asks_a_human() -> None:
    life = Life()
    fail_often(life, ErrorClass.RATE_LIMIT, 6)
    assert life.stands() is State.WAITING
    assert life.question.kind == "failure"
    assert life.question.options == ESCALATION_OPTIONS
    assert len(life.told("task_retried")) == 5
    assert {event.data["error"] for event in life.told("task_retried")} == {"rate_limit"}


@pytest.mark.row("F7")
@pytest.mark.parametrize("error", [ErrorClass.AUTH, ErrorClass.PERMANENT])
def test_an_error_that_only_a_human_can_mend_asks_at_once(error: ErrorClass) -> None:
    life = Life()
    life.claim("bob", at(0))
    life.fail(at(1), error)
    assert life.stands() is State.WAITING
    assert life.question.text == (
        f"Task A cannot go on by itself: {IN_WORDS[error]} is not retried. It said: it broke. How should we proceed?"
    )
    life.answer("retry", at(2))
    assert life.stands() is State.READY
    assert life.record.failures == {}


@pytest.mark.row("F5")
def test_a_long_limit_parks_the_service_and_spends_no_attempt() -> None:
    life = Life(services=("api",))
    life.claim("bob", at(0))
    out = life.fail(at(1), Failure(ErrorClass.RATE_LIMIT, "slow down", Millis(10 * MINUTE), ("api",)))
    assert out.park_until == at(11)
    assert life.stands() is State.READY  # its lane is closed while the service is parked
    assert life.record.failures == {}
    assert life.attempts[1].outcome == "parked"
    assert [event.kind for event in out.events] == ["service_parked", "task_returned"]
    assert out.events[0].data == {"service": "api", "until": at(11)}


@pytest.mark.row("F5")
def test_a_long_limit_without_a_named_service_delays_this_task_alone() -> None:
    life = Life()
    life.claim("bob", at(0))
    out = life.fail(at(1), Failure(ErrorClass.OVERLOAD, "", Millis(10 * MINUTE)))
    assert (out.park_until, life.stands(), life.case.due) == (None, State.DELAYED, at(11))
    assert life.record.failures == {}


@pytest.mark.row("F5")
@pytest.mark.parametrize("left", [5 * SECOND, 10 * MINUTE])
def test_a_task_that_met_a_parked_service_goes_back_and_spends_no_attempt(left: int) -> None:
    """However little of the pause was left: nothing was called."""
    life = Life()
    life.claim("bob", at(0))
    life.fail(at(1), failure_of(ServiceParked("api", at(1) + left, left)))
    assert (life.stands(), life.case.due) == (State.DELAYED, at(1) + left)
    assert life.record.failures == {}


def test_a_limit_of_a_service_that_the_task_does_not_use_is_refused() -> None:
    life = Life(services=("api",))
    life.claim("bob", at(0))
    before = life.case
    with pytest.raises(Refused, match="A does not use the service 'other'"):
        life.fail(at(1), Failure(ErrorClass.RATE_LIMIT, "", Millis(10 * MINUTE), ("other",)))
    assert life.case is before


def test_a_retry_that_would_outlast_the_run_is_not_waited_for() -> None:
    life = Life(limit_at=Millis(at(1) + 900))
    life.claim("bob", at(0))
    life.fail(at(1), ErrorClass.NETWORK)
    assert life.stands() is State.FAILED
    assert "would not fit into the 900ms left" in life.record.reason


def test_a_release_is_neither_a_failure_nor_a_timeout() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.release(at(1))
    assert life.stands() is State.READY
    assert (life.record.failures, life.record.timeouts) == ({}, 0)
    assert life.attempts[1].outcome == "released"


def test_a_release_may_name_a_pause() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.release(at(1), delay=5 * MINUTE)
    assert (life.stands(), life.case.due) == (State.DELAYED, at(6))


def test_a_failure_hands_over_what_the_next_attempt_should_know() -> None:
    life = Life()
    life.claim("bob", at(0))
    life.check_in(at(1), note="half way", progress=0.5)
    life.fail(at(2), ErrorClass.SERVER)
    handover = life.record.handover
    assert handover is not None
    assert (handover.reason, handover.agent, handover.message) == ("failed:server", "bob", "it broke")
    assert (handover.note, handover.progress) == ("half way", 0.5)
