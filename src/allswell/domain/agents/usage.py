"""How much of the context and of the session is left, and what follows when it is little (O6).

At the context threshold check-ins are collected and compaction is triggered, once, until there is more room again. At
the session threshold nothing new is dispatched until the session has been reset and `session_margin` has passed; then
the fleet goes on by itself. Where it is known whose session it is, that holds for agents of that account alone.
Where nobody says when it is reset, it waits for `usage_limit_pause`, or until there is room if it hears so before: a
pause always has an end.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import Millis
from allswell.errors import Refused

SESSION_MARGIN = 300_000
ACCOUNT_MAX = 200
USAGE_LIMIT_PAUSE = 900_000
_SECONDS_END = 100_000_000_000
"""A moment below this is in seconds: in milliseconds it would be in 1973."""


class Usage(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What a source said: shares that are left, in percent; None where it says nothing."""

    context: float | None = None
    session: float | None = None
    resets_at: Millis | None = None
    """When the session is reset."""
    account: str = ""
    """Whose session it is; empty: that of the whole fleet."""


class Thresholds(msgspec.Struct, frozen=True, gc=False):
    """Where little begins, in percent, and how long after its reset a session is used again."""

    context: float = 10.0
    session: float = 10.0
    margin: int = SESSION_MARGIN
    otherwise: int = USAGE_LIMIT_PAUSE
    """How long a pause lasts whose end nobody has told."""


class UsageLevel(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """How a fleet stands with its usage; kept in the store, so that a restart changes nothing."""

    low_context: bool = False
    """Compaction was triggered, and there has been no more room since."""
    paused: bool = False
    until: Millis | None = None
    """When a pause ends by itself."""
    told: bool = False
    """Whether the session has said so, or it is our own guess."""


Act = Literal["compact", "pause", "resume"]
_NAMES = {
    "context_remaining": "context",
    "remaining_percentage": "context",
    "session_remaining": "session",
    "resets_at": "resets_at",
}


def read(said: object) -> Usage:
    """What a usage source gave, or `Refused` that says what is wrong with it."""
    if not isinstance(said, Mapping):
        raise Refused("bad_usage", f"the usage source gave {type(said).__name__}, not an object", where="usage")
    found: dict[str, float | Millis | str | None] = {}
    for key, field in _NAMES.items():
        value = said.get(key)
        if value is None:
            continue
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            raise Refused("bad_usage", f"{key} must be a number, not {value!r}", where="usage")
        if field == "resets_at":
            found[field] = Millis(round(value * 1_000) if value < _SECONDS_END else round(value))
        elif 0 <= value <= 100:
            found[field] = float(value)
        else:
            raise Refused("bad_usage", f"{key} is a percentage that is left, from 0 to 100, not {value}", where="usage")
    account = said.get("account", "")
    if not isinstance(account, str) or len(account) > ACCOUNT_MAX:
        raise Refused("bad_usage", f"account must be the name of an account, not {account!r:.60}", where="usage")
    found["account"] = account
    if "context" not in found and "session" not in found:
        keys = ", ".join(sorted(map(str, said)))[:200]
        text = f"the usage source gave neither context_remaining nor session_remaining, but: {keys}"
        raise Refused("bad_usage", text, where="usage")
    return msgspec.convert(found, Usage)


LONGEST_PAUSE = 8 * 86_400_000
"""Milliseconds: no account is parked for longer on the word of its agent. A weekly limit fits."""


def judge(level: UsageLevel, usage: Usage, limits: Thresholds, now: Millis) -> tuple[UsageLevel, tuple[Act, ...]]:
    """What follows from a reading: how the fleet stands then, and what to do, in order."""
    acts: list[Act] = []
    if usage.context is not None:
        low = usage.context <= limits.context
        if low and not level.low_context:
            acts.append("compact")
        level = replace(level, low_context=low)
    if usage.session is not None:
        little = usage.session <= limits.session
        reset = None if usage.resets_at is None else Millis(min(usage.resets_at + limits.margin, now + LONGEST_PAUSE))
        if little and not level.paused and (reset is None or reset > now):
            acts.append("pause")
            until = Millis(now + limits.otherwise) if reset is None else reset
            level = replace(level, paused=True, until=until, told=reset is not None)
        elif level.paused and not level.told:
            if not little:
                acts.append("resume")
                level = UsageLevel(level.low_context)
            elif reset is not None:
                level = replace(level, until=reset, told=True)
    return level, tuple(acts)


def tick(level: UsageLevel, now: Millis) -> tuple[UsageLevel, tuple[Act, ...]]:
    """What time alone does: a pause is over."""
    if level.paused and level.until is not None and level.until <= now:
        return UsageLevel(level.low_context), ("resume",)
    return level, ()
