"""Usage limits in what agents print: a used-up quota is weather, and it says when it ends (the mission's last table).

Recognised by what the protocols say first. Claude Code (`--output-format stream-json`): a `rate_limit_event` whose
status is `rejected`, with `resetsAt`; a `result` that is an error with status 429 or with the words. Codex
(`exec --json`): `turn.failed`, `error`, with the words or with `usage_limit_reached` and `resets_at` inside. What an
agent says in its own messages is never looked at: it may well be writing about usage limits.

Agents that print plain text are recognised by pattern, at the beginning of a line. That is weaker, so it counts only
where the attempt has failed by itself (`sure` is off).

Moments are told in three ways: an instant, a wait, or a time on somebody's wall. The core knows no time zones, so the
last one is handed on as it was read.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from allswell.domain.names import Millis

LONGEST = 65_536
_SEARCHED = 2_000
"""Characters of a message that are searched: what an agent prints must not cost us more than it costs itself."""


class Wall(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
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
    wall: Wall | None = None


_WORDS = re.compile(
    r"\b(?:usage limit (?:has been )?reached|hit your (?:\w+ )?limit|(?:5-hour|weekly|session|opus|sonnet) limit"
    r" reached|usage_limit_reached|out of (?:extra )?usage|exceeded your current quota|quota exceeded)\b",
    re.IGNORECASE,
)
_REFUSED = re.compile(r"\bstatus:? 429\b")
"""As Codex tells of a provider that went on refusing."""
_AT_START = re.compile(
    r"^\W{0,4}(?:error:\s*|claude ai\s+|you've\s+|you have\s+|your\s+|the\s+|codex error:\s*)*", re.IGNORECASE
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


def read(line: bytes) -> UsageLimit | None:
    """The limit that a line of output tells of, if it does."""
    if len(line) > LONGEST or not any(word in line for word in (b"imit", b"uota", b"sage", b"429")):
        return None
    text = line.decode("utf-8", "replace").strip()
    if not text.startswith("{"):
        text = text[:_SEARCHED]
        found = _AT_START.match(text)
        start = 0 if found is None else found.end()
        words = _WORDS.search(text, start)
        return _told(text, sure=False) if words is not None and words.start() - start < 16 else None
    try:
        said = msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError):
        return None
    return _event(said) if isinstance(said, dict) else None


def _event(said: dict[str, Any]) -> UsageLimit | None:
    kind = said.get("type")
    if kind == "rate_limit_event":
        info = said.get("rate_limit_info")
        info = info if isinstance(info, Mapping) else said
        paid = info.get("isUsingOverage") or info.get("overageStatus") in ("allowed", "allowed_warning")
        if info.get("status") != "rejected" or paid:  # what is paid for beyond the quota goes on
            return None
        resets = info.get("resetsAt")
        which = info.get("rateLimitType") or "usage"
        at = Millis(round(resets * 1_000)) if isinstance(resets, int | float) and not isinstance(resets, bool) else None
        return UsageLimit(f"rate limit rejected ({str(which)[:40]})", at=at)
    if kind == "result" and said.get("is_error"):
        text = str(said.get("result") or said.get("error") or "")
        limited = said.get("api_error_status") == 429 or _WORDS.search(text)
        return _told(text or "429") if limited else None
    if kind in ("turn.failed", "error"):
        inner = said.get("error")
        text = str(said.get("message") or "")
        if isinstance(inner, Mapping):
            text = " ".join(f"{key}: {value}" for key, value in inner.items() if isinstance(value, str | int | float))
        refused = kind == "turn.failed" and _REFUSED.search(text)  # an error before that may be tried again
        return _told(text) if refused or _WORDS.search(text) else None
    return None


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


def _wall(text: str) -> Wall | None:
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
    return Wall(
        hour,
        minute,
        zone,
        _MONTHS.index(month) + 1 if month else 0,
        int(found["day"] or 0),
        int(found["year"] or 0),
    )
