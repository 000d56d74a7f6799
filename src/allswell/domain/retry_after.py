"""Reading how long a provider asks to wait: `Retry-After` in seconds or as a date, `retry-after-ms` (F5).

Dates are read here, by hand, because a moment of a header is arithmetic and no clock: the core may not know the time,
and the standard library's readers either know it or accept what is no HTTP date. `now` comes in as the *provider's* own
`Date` header wherever there is one, so that two machines' clocks are not compared; only without it is it ours.

What cannot be read is `None`, which the rules take for "60 s": a number with an underscore, digits of other scripts,
`1e400`, and any wait beyond `LONGEST_READ`, which is no limit that a provider means but a broken header (a moment
written where a length belongs), and would park a service for years.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from allswell.domain.names import Millis

LONGEST_READ = 31 * 86_400_000
"""The longest wait that is believed: quotas are reset once a month."""

_NUMBER = re.compile(r"([+-]?)(\d{1,20})(?:\.(\d{1,20}))?", re.ASCII)
_MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")
_MONTH = "|".join(_MONTHS)
_CLOCK = r"(?P<hour>\d\d):(?P<minute>\d\d):(?P<second>\d\d)"
_DATES = (
    # Sun, 06 Nov 1994 08:49:37 GMT, as every sender must write it
    re.compile(rf"[A-Z][a-z]{{2}}, (?P<day>\d\d) (?P<month>{_MONTH}) (?P<year>\d{{4}}) {_CLOCK} GMT", re.ASCII),
    # Sunday, 06-Nov-94 08:49:37 GMT, and Sun Nov  6 08:49:37 1994, as old ones may
    re.compile(rf"[A-Z][a-z]+day, (?P<day>\d\d)-(?P<month>{_MONTH})-(?P<year>\d\d) {_CLOCK} GMT", re.ASCII),
    re.compile(rf"[A-Z][a-z]{{2}} (?P<month>{_MONTH}) (?P<day>[ \d]\d) {_CLOCK} (?P<year>\d{{4}})", re.ASCII),
)


def asked_wait(headers: Mapping[str, str], now: int) -> Millis | None:
    """How long an answer's headers ask to wait; `None` where they say nothing that can be read.

    `headers` are looked up by their lower-case names; `now` is the wall clock, used where the answer has no `Date`.
    """
    wait = _number(headers.get("retry-after-ms"), 1)
    if wait is None:
        said = headers.get("retry-after")
        wait = _number(said, 1_000)
        if wait is None and said is not None:
            there = moment(headers.get("date") or "", now)
            here = now if there is None else there
            until = moment(said, here)
            wait = None if until is None else until - here
    if wait is None or wait > LONGEST_READ:
        return None
    return Millis(max(wait, 0))


def _number(text: str | None, unit: int) -> int | None:
    """A plain decimal number of units, in whole milliseconds, never rounded down to an early return."""
    found = None if text is None else _NUMBER.fullmatch(text.strip(" \t"))
    if found is None:
        return None
    sign, whole, part = found.groups(default="")
    parts: int = 10 ** len(part)
    scaled = -(-int(whole + part) * unit // parts)
    return -scaled if sign == "-" else scaled


def moment(text: str, now: int) -> int | None:
    """Milliseconds since 1970 of an HTTP date in any of its three forms; `None` if it is none.

    `now` only says which century a year of two digits belongs to: never more than 50 years ahead.
    """
    found = next((date for form in _DATES if (date := form.fullmatch(text.strip(" \t")))), None)
    if found is None:
        return None
    year, month, day = int(found["year"]), _MONTHS.index(found["month"]) + 1, int(found["day"])
    hour, minute, second = int(found["hour"]), int(found["minute"]), int(found["second"])
    if len(found["year"]) == 2:
        this_year = 1970 + now // 31_556_952_000
        year += this_year - this_year % 100
        year -= 100 if year > this_year + 50 else 0
    if not (1 <= day <= _days_in(year, month) and hour < 24 and minute < 60 and second <= 60):
        return None
    return ((_days_before(year, month) + day - 1) * 86_400 + hour * 3_600 + minute * 60 + second) * 1_000


def _days_before(year: int, month: int) -> int:
    """Days from 1970 to the first of a month. The year is counted from March, so that February's end is the year's."""
    years, months = (year, month - 3) if month > 2 else (year - 1, month + 9)
    leap_days = years // 4 - years // 100 + years // 400
    return years * 365 + leap_days + (153 * months + 2) // 5 - 719_468


def _days_in(year: int, month: int) -> int:
    following = (year, month + 1) if month < 12 else (year + 1, 1)
    return _days_before(*following) - _days_before(year, month)
