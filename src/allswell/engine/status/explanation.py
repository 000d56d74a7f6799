"""The shape of an explanation, in words for people and as data for programs."""

from __future__ import annotations

import shlex
from typing import Literal

import msgspec

from allswell.domain.duration import felt
from allswell.domain.ids import Millis
from allswell.domain.values import start_of
from allswell.timing.moment import Moment, moment

Kind = Literal["task", "question", "run", "more"]


class Link(msgspec.Struct, frozen=True):
    """One link of the chain: something with a name, and what is to be said about it."""

    id: str
    kind: Kind
    name: str
    state: str
    says: tuple[str, ...]
    since: Millis | None = None


class UpcomingStep(msgspec.Struct, frozen=True):
    """What happens by itself; `expected_at` is null for what follows from the thing before it."""

    at: Moment | None = msgspec.field(name="expected_at")
    what: str
    routine: bool
    """Whether it is what a live holder prevents again and again, such as the end of a lease that it renews."""


def upcoming(at: int | None, what: str, *, routine: bool = False) -> UpcomingStep:
    """What will happen at a moment, or, without one, after the thing before it."""
    return UpcomingStep(moment(at), what, routine)


class SuggestedAction(msgspec.Struct, frozen=True):
    """What a person could do now, and what to type for it."""

    what: str
    command: str


class Span(msgspec.Struct, frozen=True):
    """A stretch of a task's life."""

    kind: Literal["waiting", "asked", "paused", "ready", "held"]
    start: Moment = msgspec.field(name="began_at")
    end: Moment = msgspec.field(name="ended_at")
    says: str
    agent: str | None = msgspec.field(name="agent_id")
    token: int | None
    outcome: str | None


class Explanation(msgspec.Struct, frozen=True):
    """Why something stands where it stands."""

    id: str
    kind: Kind
    name: str
    state: str
    now: Millis
    chain: tuple[Link, ...]
    """From what was asked about down to what really holds it up."""
    beside: tuple[str, ...] = ()
    """What else it waits for, in short."""
    next: tuple[UpcomingStep, ...] = ()
    todo: tuple[SuggestedAction, ...] = ()
    spent: tuple[Span, ...] = ()


class StatusText(msgspec.Struct, frozen=True):
    """One thing as it stands, before it takes its place in a chain."""

    state: str
    says: tuple[str, ...]
    trouble: int
    """How urgently it needs a human, from 0 (fine) to 100 (nothing will ever move it)."""
    since: Millis | None = None
    next: tuple[UpcomingStep, ...] = ()
    todo: tuple[SuggestedAction, ...] = ()


# The small words: how long, how long ago, how many, and names that cannot play tricks on a terminal.

_SECOND, _MINUTE, _HOUR = 1_000, 60_000, 3_600_000
QUOTE_MAX = 240


def clean(text: str, most: int = QUOTE_MAX) -> str:
    """Text from outside on one line: no control characters, no invisible ones, not too long."""
    shown = " ".join(text[: most * 4].split())
    if not shown.isprintable():
        shown = "".join(char if char.isprintable() else "·" for char in shown)
    return start_of(shown, most)


def quoted(text: str, most: int = QUOTE_MAX) -> str:
    """Text from outside, marked as such."""
    return f"“{clean(text, most)}”"


length = felt
"""A length of time at a glance: two units at most, and no more than one can feel."""


def rough(ms: int) -> str:
    """A length of time as one says it: whole seconds, one unit where that is enough."""
    if ms < _SECOND:
        return "0s"
    if ms < _MINUTE:
        return f"{ms // _SECOND}s"
    if ms < 10 * _MINUTE or ms >= _HOUR:
        return length(ms)
    return f"{ms // _MINUTE}m"


def ago(moment: int, now: int) -> str:
    """How long ago."""
    passed = now - moment
    return "just now" if passed < _SECOND else f"{rough(passed)} ago"


def within(moment: int, now: int) -> str:
    """How soon; a moment that has passed is said to be overdue."""
    left = moment - now
    if left < 0:
        return f"{rough(-left)} overdue" if left <= -_SECOND else "now"
    return "now" if left < _SECOND else f"in {rough(left)}"


def time_stands(behind: int) -> str:
    """What is to be said while a store's clock stands still because the machine's was set back (docs/adr/0033)."""
    return (
        f"Time limits are paused: this machine's clock is {rough(behind)} behind the last moment in the store. It was"
        " set back, or it ran ahead before. Everything keeps the time it had left. It goes on when a process that"
        " enforces time limits is started"
    )


def many(count: int, noun: str, plural: str = "") -> str:
    """So many of a thing: `1 task`, `1,200 tasks`."""
    return f"{count:,} {noun if count == 1 else plural or noun + 's'}"


def listed(parts: list[str]) -> str:
    """Parts as one says them: `a`, `a and b`, `a, b and c`."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}" if parts else ""


def typed(*words: str) -> str:
    """A command as one would type it, quoted where the shell wants that."""
    return "allswell " + " ".join(word if word.isupper() and word.isalpha() else shlex.quote(word) for word in words)
