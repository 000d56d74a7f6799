"""What follows a failure, with the figures of the mission (F4 to F7)."""

import pytest

from allswell.domain.ids import Millis
from allswell.domain.service.classify import failure_of
from allswell.domain.service.retry import (
    IN_WORDS,
    RULES,
    ErrorClass,
    Escalate,
    Failure,
    GiveUp,
    RateLimitPause,
    RetryAfter,
    RetryPolicy,
    Verdict,
    judge,
)

PLAIN = RetryPolicy()
TRANSIENT = [ErrorClass.NETWORK, ErrorClass.SERVER, ErrorClass.OVERLOAD, ErrorClass.TRANSIENT]
NO_RETRY_FAIL = [ErrorClass.VALIDATION, ErrorClass.NOT_FOUND, ErrorClass.CONTEXT_OVERFLOW, ErrorClass.BUG]
NO_RETRY_ESCALATE = [ErrorClass.AUTH, ErrorClass.PERMANENT]
ALMOST_ONE = 1 - 2**-53


def verdict(
    error: ErrorClass,
    *,
    before: int = 0,
    others: int = 0,
    retry_after: int | None = None,
    remaining: int | None = None,
    draw: float = 0.0,
    policy: RetryPolicy = PLAIN,
) -> Verdict:
    earlier = {error.value: before, "some other class": others}
    after = None if retry_after is None else Millis(retry_after)
    return judge(policy, Failure(error, retry_after=after), earlier=earlier, remaining=remaining, draw=draw)


def test_every_class_has_a_rule() -> None:
    assert list(RULES) == sorted(RULES, key=list(RULES).index)
    assert set(RULES) == set(ErrorClass)


@pytest.mark.row("F4")
@pytest.mark.parametrize("error", TRANSIENT)
def test_transient_errors_are_retried_after_1_2_and_4_seconds_then_fail(error: ErrorClass) -> None:
    assert [verdict(error, before=before) for before in range(3)] == [RetryAfter(Millis(s * 1_000)) for s in (1, 2, 4)]
    assert verdict(error, before=3) == GiveUp(f"{IN_WORDS[error]} after 3 retries")


@pytest.mark.row("F6")
@pytest.mark.parametrize("error", TRANSIENT)
@pytest.mark.parametrize("before, base", [(0, 1_000), (1, 2_000), (2, 4_000)])
def test_jitter_adds_nothing_to_half_of_the_pause(error: ErrorClass, before: int, base: int) -> None:
    assert verdict(error, before=before, draw=0.5) == RetryAfter(Millis(base + base // 4))
    most = verdict(error, before=before, draw=ALMOST_ONE)
    assert isinstance(most, RetryAfter)
    assert base * 1.5 - 1 <= most.delay <= base * 1.5


@pytest.mark.row("F4", "F5")
def test_a_rate_limit_is_retried_five_times_after_retry_after_and_then_escalated() -> None:
    for before in range(5):
        assert verdict(ErrorClass.RATE_LIMIT, before=before, retry_after=7_000) == RetryAfter(Millis(7_000))
    assert verdict(ErrorClass.RATE_LIMIT, before=5, retry_after=7_000) == Escalate("a rate limit after 5 retries")


@pytest.mark.row("F5")
@pytest.mark.parametrize(
    "asked, waited", [(None, 60_000), (0, 0), (-5, 0), (1, 1), (299_999, 299_999), (300_000, 300_000)]
)
def test_retry_after_defaults_to_60_s_and_is_waited_for_up_to_300_s(asked: int | None, waited: int) -> None:
    assert verdict(ErrorClass.RATE_LIMIT, retry_after=asked) == RetryAfter(Millis(waited))


@pytest.mark.row("F5", "F6")
@pytest.mark.parametrize("error", [ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD])
@pytest.mark.parametrize(
    "asked, waited", [(60_000, 75_000), (200_000, 250_000), (240_000, 300_000), (290_000, 300_000), (300_000, 300_000)]
)
def test_jitter_goes_on_top_of_a_retry_after_up_to_the_cap(error: ErrorClass, asked: int, waited: int) -> None:
    assert verdict(error, retry_after=asked, draw=0.5) == RetryAfter(Millis(waited))


@pytest.mark.row("F5")
@pytest.mark.parametrize("error", [ErrorClass.RATE_LIMIT, ErrorClass.OVERLOAD])
@pytest.mark.parametrize("before", [0, 5, 100])
def test_beyond_the_cap_is_weather_however_often_it_was_tried(error: ErrorClass, before: int) -> None:
    assert verdict(error, before=before, retry_after=300_001, draw=0.9) == RateLimitPause(Millis(300_001))


def test_an_overload_is_waited_for_as_asked_and_otherwise_backed_off() -> None:
    assert verdict(ErrorClass.OVERLOAD, before=1, retry_after=9_000) == RetryAfter(Millis(9_000))
    assert verdict(ErrorClass.OVERLOAD, before=1) == RetryAfter(Millis(2_000))


@pytest.mark.parametrize("error", [ErrorClass.NETWORK, ErrorClass.SERVER, ErrorClass.TRANSIENT])
def test_only_limits_are_waited_for_by_retry_after(error: ErrorClass) -> None:
    assert verdict(error, retry_after=900_000) == RetryAfter(Millis(1_000))


@pytest.mark.row("F7")
@pytest.mark.parametrize("error", NO_RETRY_FAIL)
def test_what_cannot_get_better_fails_at_once(error: ErrorClass) -> None:
    assert verdict(error) == GiveUp(f"{IN_WORDS[error]} is not retried")


@pytest.mark.row("F7")
@pytest.mark.parametrize("error", NO_RETRY_ESCALATE)
def test_what_only_a_human_can_mend_is_escalated_at_once(error: ErrorClass) -> None:
    assert verdict(error) == Escalate(f"{IN_WORDS[error]} is not retried")


@pytest.mark.parametrize("error", [*NO_RETRY_FAIL, *NO_RETRY_ESCALATE])
def test_a_setting_cannot_make_a_permanent_error_transient(error: ErrorClass) -> None:
    assert not isinstance(verdict(error, policy=RetryPolicy(retries=4)), RetryAfter)


def test_the_number_of_retries_is_a_setting() -> None:
    assert verdict(ErrorClass.NETWORK, policy=RetryPolicy(retries=0)) == GiveUp("no retries asked for")
    assert verdict(ErrorClass.NETWORK, before=3, policy=RetryPolicy(retries=4)) == RetryAfter(Millis(8_000))


@pytest.mark.row("F7")
@pytest.mark.parametrize("error", [*TRANSIENT, ErrorClass.RATE_LIMIT])
def test_the_sixth_attempt_is_the_last_whatever_the_classes(error: ErrorClass) -> None:
    last = Escalate if error is ErrorClass.RATE_LIMIT else GiveUp
    assert isinstance(verdict(error, others=4), RetryAfter)
    assert verdict(error, others=5) == last(f"{IN_WORDS[error]}: all 6 attempts are used up")


@pytest.mark.parametrize("error", TRANSIENT)
def test_a_retry_that_does_not_fit_is_not_waited_for(error: ErrorClass) -> None:
    assert verdict(error, remaining=1_001) == RetryAfter(Millis(1_000))
    late = verdict(error, remaining=1_000)
    assert late == GiveUp(f"{IN_WORDS[error]}: the next try in 1s would not fit into the 1s left")
    assert isinstance(verdict(error, remaining=-5), GiveUp)


def test_weather_that_outlasts_the_run_is_not_waited_for() -> None:
    assert verdict(ErrorClass.RATE_LIMIT, retry_after=400_000, remaining=400_001) == RateLimitPause(Millis(400_000))
    assert verdict(ErrorClass.RATE_LIMIT, retry_after=400_000, remaining=400_000) == GiveUp(
        "a rate limit: asked to wait 6m 40s, with only 6m 40s left"
    )


@pytest.mark.row("F7")
@pytest.mark.parametrize(
    "error, meant",
    [
        (TypeError("x"), ErrorClass.BUG),
        (AssertionError(), ErrorClass.BUG),
        (KeyError("k"), ErrorClass.BUG),
        (ConnectionResetError("gone"), ErrorClass.NETWORK),
        (TimeoutError(), ErrorClass.NETWORK),
        (RuntimeError("who knows"), ErrorClass.TRANSIENT),
        ("in words", ErrorClass.TRANSIENT),
        (Failure(ErrorClass.AUTH), ErrorClass.AUTH),
    ],
)
def test_unknown_errors_are_transient_unless_plainly_bugs(
    error: BaseException | str | Failure, meant: ErrorClass
) -> None:
    assert failure_of(error).error is meant


def test_a_failure_says_what_the_error_was() -> None:
    assert failure_of(ConnectionResetError("gone")).message == "ConnectionResetError: gone"


@pytest.mark.row("F7")
def test_the_total_cap_ends_a_rate_limit_before_a_human() -> None:
    """Exhausted is exhausted: what escalates after its retries escalates at the total cap too."""
    policy = RetryPolicy(max_attempts=3)
    limited = judge(policy, Failure(ErrorClass.RATE_LIMIT), earlier={"network": 2}, remaining=None, draw=0.0)
    assert isinstance(limited, Escalate)
    failed = judge(policy, Failure(ErrorClass.SERVER), earlier={"network": 2}, remaining=None, draw=0.0)
    assert isinstance(failed, GiveUp)


def test_a_long_message_is_shortened_and_the_failure_still_told() -> None:
    """A failure is recorded however much it has to say."""
    failure = failure_of(RuntimeError("x" * 50_000 + "the end"))
    assert len(failure.message) < 5_000
    assert failure.message.startswith("RuntimeError: xxx")
    assert failure.message.endswith("the end")
