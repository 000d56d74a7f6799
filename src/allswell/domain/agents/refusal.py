"""A provider that refuses, as a client tells of it while it tries again by itself.

Claude Code (`--output-format stream-json`) prints `system/api_retry` with `error_status`, `attempt`, `max_retries` and
`retry_delay_ms`. Codex (`exec --json`) prints an `error` whose message begins with "Reconnecting..." and has the number
of the try and what happened in words. Gemini's command line prints "Attempt 2 failed with status 429. Retrying" as
plain text. opencode prints nothing while it tries again (`run --format json`), so nothing can be known of it.

Such a line shows that the client lives, and it is no progress: nothing was done. It holds until the agent reports a
step of its work. What a client prints once it has given up is told by the end of its turn (output.py), and is a usage
limit where it says so (below).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.domain.agents.evidence import ProviderRefusal
from allswell.domain.ids import Millis
from allswell.domain.service.classify import class_of_answer
from allswell.domain.service.retry import ErrorClass

_DELAY_MOST = 8 * 86_400_000
"""Milliseconds: a client that says it waits for longer is not believed."""
_MESSAGE = 300


_CLAUDE_ERRORS: Mapping[str, ErrorClass] = {
    "authentication_failed": ErrorClass.AUTH,
    "oauth_org_not_allowed": ErrorClass.AUTH,
    "billing_error": ErrorClass.PERMANENT,
    "rate_limit": ErrorClass.RATE_LIMIT,
    "overloaded": ErrorClass.OVERLOAD,
    "server_error": ErrorClass.SERVER,
}
"""What Claude Code calls an error; where it has no status and calls it unknown, the provider did not answer."""
_TRY = re.compile(r"\b(\d{1,4}) ?/ ?(\d{1,4})\b")
_STATUS = re.compile(r"\bstatus(?: code)?[:= ]+(\d{3})\b")
_NETWORK = re.compile(
    r"waiting for network|connection (?:failed|error|refused|reset)|error sending request|stream disconnected"
    r"|timed? ?out|dns|certificate|tls",
    re.IGNORECASE,
)
_OVERLOADED = re.compile(r"high demand|overloaded|at capacity", re.IGNORECASE)
PRINTS_PLAIN = frozenset(("gemini", "qwen"))
"""Clients that tell of their tries in plain text, and go on in it."""
_GEMINI = re.compile(rb"^Attempt (\d{1,3}) failed(?: with status (\d{3}))?\b.{0,200}?(?:[Rr]etrying|\n|$)")


def from_claude(status: object, error: object, attempt: object, attempts: object, delay: object) -> ProviderRefusal:
    """What a line `api_retry` tells of."""
    code = status if isinstance(status, int) and not isinstance(status, bool) and 100 <= status <= 599 else None
    named = _CLAUDE_ERRORS.get(error) if isinstance(error, str) else None
    meant = class_of_answer(code) if code is not None else named or ErrorClass.NETWORK
    return ProviderRefusal(meant, code, _count(attempt), _count(attempts), _delay(delay))


def from_codex(message: str) -> ProviderRefusal | None:
    """What an `error` of Codex tells of; None unless it tries again."""
    if not message.startswith("Reconnecting"):
        return None
    message = message[:_MESSAGE]
    tries, found = _TRY.search(message), _STATUS.search(message)
    status = None if found is None else int(found[1])
    if status is not None:
        meant = class_of_answer(status, message)
    elif _OVERLOADED.search(message):
        meant = ErrorClass.OVERLOAD
    else:
        meant = ErrorClass.NETWORK if _NETWORK.search(message) else class_of_answer(None, message)
    attempt, attempts = (None, None) if tries is None else (int(tries[1]), int(tries[2]))
    return ProviderRefusal(meant, status, attempt, attempts, message=message)


def from_plain(line: bytes) -> ProviderRefusal | None:
    """What a line of plain text tells of: Gemini's command line prints nothing else while it tries again."""
    found = _GEMINI.match(line[:_MESSAGE])
    if found is None:
        return None
    status = None if found[2] is None else int(found[2])
    meant = ErrorClass.NETWORK if status is None else class_of_answer(status)
    return ProviderRefusal(meant, status, int(found[1]), message=line[:_MESSAGE].decode("utf-8", "replace"))


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 10_000 else None


def _delay(value: object) -> Millis | None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= _DELAY_MOST:
        return None
    return Millis(round(value))


# Usage limits in what agents print: a used-up quota passes, and it says when (the mission's last table).
#
# Recognised by what the protocols say first. Claude Code (`--output-format stream-json`): a `rate_limit_event` whose
# status is `rejected`, with `resetsAt`; a `result` that is an error with status 429 or with the words. Codex
# (`exec --json`): `turn.failed`, `error`, with the words or with `usage_limit_reached` and `resets_at` inside. What an
# agent says in its own messages is never looked at: it may well be writing about usage limits.
#
# Agents that print plain text are recognised by pattern, at the beginning of a line. That is weaker, so it counts only
# where the attempt has failed by itself (`sure` is off).
#
# Moments are told in three ways: an instant, a wait, or a time on somebody's wall. The core knows no time zones, so the
# last one is handed on as it was read.

LONGEST_LIMIT_LINE = 65_536
_SECONDS_MOST = 1 << 40
"""Seconds since 1970; a client that names a later moment is not believed."""
_SEARCHED = 2_000
"""Characters of a message that are searched: what an agent prints must not cost us more than it costs itself."""


class WallTime(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A time as a clock on a wall shows it: the next such moment is meant."""

    hour: int
    minute: int = 0
    zone: str = ""
    """Such as `Europe/Berlin`; empty: where the agent runs."""
    month: int = 0
    day: int = 0
    year: int = 0


class UsageLimit(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """A limit that an agent has run into, and when it ends, as far as that was said."""

    said: str
    sure: bool = True
    at: Millis | None = None
    after: Millis | None = None
    wall: WallTime | None = None


_WORDS = re.compile(
    r"\b(?:usage limit (?:has been )?reached|hit your (?:[\w-]+ )?limit|(?:5-hour|weekly|session|opus|sonnet) limit"
    r" reached|usage_limit_reached|out of (?:extra )?usage)\b",
    re.IGNORECASE,
)
_QUOTA = re.compile(r"\b(?:exceeded your current quota|quota exceeded)\b", re.IGNORECASE)
"""A quota that is used up for good, unless the answer says when there is more: then it is a limit like any other."""
_AT_START = re.compile(
    r"^\W{0,4}(?:error:\s*|claude ai\s+|you['’]ve\s+|you have\s+|your\s+|the\s+|codex error:\s*)*", re.IGNORECASE
)
_EPOCH = re.compile(r"reached\|(\d{10,13})\b|\"?resets?_at\"?\s*[:=]\s*(\d{10,13})\b", re.IGNORECASE)
_SECONDS = re.compile(r"\"?resets_in_seconds\"?\s*[:=]\s*(\d{1,8})\b", re.IGNORECASE)
_AFTER = re.compile(
    r"\b(?:try again|resets?|retry)\s+(?:in|after)\s+((?:\d+\s*[a-z]+[\s,]*(?:and\s+)?)+)", re.IGNORECASE
)
_LENGTH = re.compile(r"(\d+)\s*(d|h|m|s)[a-z]*", re.IGNORECASE)
_UNITS = {"d": 86_400_000, "h": 3_600_000, "m": 60_000, "s": 1_000}
_MONTHS = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_WALL = re.compile(
    r"\b(?:try again|resets?)\s+(?:at\s+|on\s+)?"
    r"(?:(?P<month>[a-z]{3})[a-z]*\.?\s+(?P<day>\d{1,2})(?:st|nd|rd|th)?(?:,?\s+(?P<year>\d{4}))?,?\s*(?:at\s+)?)?"
    r"(?P<hour>\d{1,2})(?::(?P<minute>\d{2}))?\s*(?P<half>[ap])?\.?m?\.?\b\s*(?:\((?P<zone>[\w/+-]+)\)|(?P<utc>UTC)\b)?",
    re.IGNORECASE,
)


def limit_in_plain(text: str) -> UsageLimit | None:
    """The limit that a line of plain text tells of, if it does."""
    text = text.strip()[:_SEARCHED]
    found = _AT_START.match(text)
    start = 0 if found is None else found.end()
    words = _WORDS.search(text, start) or _QUOTA.search(text, start)
    return _limit(text, sure=False) if words is not None and words.start() - start < 16 else None


def limit_in_event(info: Mapping[str, Any]) -> UsageLimit | None:
    """The limit that a `rate_limit_event` of Claude Code tells of, if it is reached."""
    paid = info.get("isUsingOverage") or info.get("overageStatus") in ("allowed", "allowed_warning")
    if info.get("status") != "rejected" or paid:  # what is paid for beyond the quota goes on
        return None
    which = info.get("rateLimitType") or "usage"
    return UsageLimit(f"rate limit rejected ({str(which)[:40]})", at=instant_of(info.get("resetsAt")))


def limit_in_error(text: str, *, refused: bool) -> UsageLimit | None:
    """The limit that a client's error tells of, if it does; `refused`: its status says that it was one."""
    text = text[:LONGEST_LIMIT_LINE]
    return _limit(text or "429") if refused or _WORDS.search(text) or _QUOTA.search(text) else None


def instant_of(seconds: object) -> Millis | None:
    """The moment that a client names in seconds since 1970; None where that is none."""
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds <= _SECONDS_MOST:
        return None
    return Millis(round(seconds * 1_000))


def _limit(text: str, *, sure: bool = True) -> UsageLimit | None:
    """The limit that a text tells of; None for a quota of which no moment is named at which there is more."""
    limit = _told(text, sure=sure)
    ends = limit.at is not None or limit.after is not None or limit.wall is not None
    return limit if ends or not _QUOTA.search(text[:_SEARCHED]) else None


def _told(text: str, *, sure: bool = True) -> UsageLimit:
    text = text[:_SEARCHED]
    said = text[:300]
    if found := _EPOCH.search(text):
        number = int(found[1] or found[2])
        return UsageLimit(said, sure, at=Millis(number * 1_000 if number < 100_000_000_000 else number))
    if found := _SECONDS.search(text):
        return UsageLimit(said, sure, after=Millis(int(found[1]) * 1_000))
    if found := _AFTER.search(text):
        length = sum(int(count) * _UNITS[unit.lower()] for count, unit in _LENGTH.findall(found[1]))
        return UsageLimit(said, sure, after=Millis(length) if length else None)
    return UsageLimit(said, sure, wall=_wall(text))


def _wall(text: str) -> WallTime | None:
    found = _WALL.search(text)
    if found is None:
        return None
    hour, half = int(found["hour"]), (found["half"] or "").lower()
    if half:
        hour = hour % 12 + (12 if half == "p" else 0)
    minute = int(found["minute"] or 0)
    month = (found["month"] or "").lower()
    if hour > 23 or minute > 59 or (month and month not in _MONTHS):
        return None
    zone = found["zone"] or ("UTC" if found["utc"] else "")
    return WallTime(
        hour,
        minute,
        zone,
        _MONTHS.index(month) + 1 if month else 0,
        int(found["day"] or 0),
        int(found["year"] or 0),
    )
