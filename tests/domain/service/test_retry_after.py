"""Every form of Retry-After, the hostile ones too (F5)."""

import email.utils
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from allswell.domain.ids import Millis
from allswell.domain.service.classify import LONGEST_READ, asked_wait, moment
from allswell.domain.service.retry import ErrorClass, Failure, RateLimitPause, RetryAfter, RetryPolicy, Verdict, judge
from tests.properties.budget import DETERMINISTIC

NOW = 784_111_777_000  # Sun, 06 Nov 1994 08:49:37 GMT, the example of RFC 9110
UNREADABLE = None

TABLE: dict[str, int | None] = {
    "0": 0,
    "7": 7_000,
    "1.5": 1_500,
    "0.0001": 1,  # never rounded down to an early return
    "-5": 0,
    "-0.5": 0,
    "+3": 3_000,
    " 3\t": 3_000,
    "300": 300_000,
    "36000": 36_000_000,  # 10 h
    "": UNREADABLE,
    " ": UNREADABLE,
    "1_0": UNREADABLE,
    "١٠": UNREADABLE,
    "１０": UNREADABLE,
    "1e400": UNREADABLE,
    "1e3": UNREADABLE,
    "inf": UNREADABLE,
    "nan": UNREADABLE,
    "0x10": UNREADABLE,
    "1 2": UNREADABLE,
    "soon": UNREADABLE,
    "9" * 400: UNREADABLE,
    "1700000000": UNREADABLE,  # a moment where a length belongs: 53 years
    "Sun, 06 Nov 1994 08:49:47 GMT": 10_000,
    "Sunday, 06-Nov-94 08:49:47 GMT": 10_000,
    "Sun Nov  6 08:49:47 1994": 10_000,
    "Sun, 06 Nov 1994 18:49:37 GMT": 36_000_000,
    "Sun, 06 Nov 1994 08:49:36 GMT": 0,
    "Thu, 01 Jan 1970 00:00:00 GMT": 0,
    "Sun, 06 Nov 2094 08:49:37 GMT": UNREADABLE,  # a century off is no limit that anyone means
    "Sun, 31 Feb 1995 08:49:37 GMT": UNREADABLE,
    "Sun, 06 Nov 1994 24:00:00 GMT": UNREADABLE,
    "Sun, 06 Nov 1994 08:49:47 +0000": UNREADABLE,
    "1994-11-06T08:49:47Z": UNREADABLE,
    "Sun, ٠٦ Nov 1994 08:49:47 GMT": UNREADABLE,
}


@pytest.mark.row("F5")
@pytest.mark.parametrize("said", TABLE)
def test_each_form_is_read_or_taken_for_unsaid(said: str) -> None:
    assert asked_wait({"retry-after": said}, NOW) == TABLE[said]


def verdict(said: str) -> Verdict:
    failure = Failure(ErrorClass.RATE_LIMIT, retry_after=asked_wait({"retry-after": said}, NOW))
    return judge(RetryPolicy(), failure, earlier={}, remaining=None, draw=0.0)


@pytest.mark.row("F5")
@pytest.mark.parametrize("said", TABLE)
def test_what_follows_from_each_form(said: str) -> None:
    """Absent or unreadable is 60 s, negative or past is 0, beyond 300 s parks the service."""
    read = TABLE[said]
    wanted = (
        RetryAfter(Millis(60_000))
        if read is None
        else RetryAfter(Millis(read))
        if read <= 300_000
        else RateLimitPause(Millis(read))
    )
    assert verdict(said) == wanted


@pytest.mark.row("F5")
def test_milliseconds_are_read_first_and_seconds_if_they_say_nothing() -> None:
    assert asked_wait({"retry-after-ms": "250", "retry-after": "9"}, NOW) == 250
    assert asked_wait({"retry-after-ms": "soon", "retry-after": "9"}, NOW) == 9_000
    assert asked_wait({"retry-after-ms": "-1"}, NOW) == 0
    assert asked_wait({"retry-after-ms": "0.5"}, NOW) == 1
    assert asked_wait({}, NOW) is None


@pytest.mark.row("F5")
def test_a_date_is_measured_by_the_providers_own_clock() -> None:
    """Ours may be an hour off: clocks of two machines are never compared."""
    headers = {"date": "Sun, 06 Nov 1994 08:49:37 GMT", "retry-after": "Sun, 06 Nov 1994 08:49:47 GMT"}
    for ours in (NOW - 3_600_000, NOW, NOW + 3_600_000):
        assert asked_wait(headers, ours) == 10_000


def test_a_year_of_two_digits_is_never_more_than_50_years_ahead() -> None:
    in_2020 = 1_577_836_800_000
    assert moment("Sunday, 06-Nov-94 08:49:37 GMT", in_2020) == NOW
    assert moment("Friday, 06-Nov-26 08:49:37 GMT", in_2020) == moment("Fri, 06 Nov 2026 08:49:37 GMT", 0)
    in_1999 = 915_148_800_000
    assert moment("Saturday, 01-Jan-00 00:00:00 GMT", in_1999) == moment("Thu, 01 Jan 1900 00:00:00 GMT", 0)


@DETERMINISTIC
@given(st.datetimes(datetime(1900, 1, 1), datetime(2999, 12, 31)))  # noqa: DTZ001 - hypothesis wants them bare
def test_dates_are_read_as_the_standard_library_writes_them(when: datetime) -> None:
    when = when.replace(microsecond=0, tzinfo=UTC)
    assert moment(email.utils.format_datetime(when, usegmt=True), NOW) == int(when.timestamp()) * 1_000


@DETERMINISTIC
@given(st.text(max_size=40), st.integers(0, 4_000_000_000_000))
def test_any_text_is_a_wait_within_bounds_or_unsaid(said: str, now: int) -> None:
    for headers in ({"retry-after": said}, {"retry-after-ms": said}, {"date": said, "retry-after": said}):
        wait = asked_wait(headers, now)
        assert wait is None or 0 <= wait <= LONGEST_READ
