"""The shape of an explanation, in words for people and as data for programs: moments are milliseconds since 1970."""

from __future__ import annotations

from typing import Literal

import msgspec

from allswell.domain.names import Millis

Kind = Literal["task", "question", "run", "more"]


class Link(msgspec.Struct, frozen=True):
    """One link of the chain: something with a name, and what is to be said about it."""

    id: str
    kind: Kind
    name: str
    state: str
    says: tuple[str, ...]
    since: Millis | None = None


class Next(msgspec.Struct, frozen=True):
    """What happens by itself, and when; `at` is None for what follows from the thing before it."""

    at: Millis | None
    what: str
    routine: bool = False
    """Whether it is what a live holder prevents again and again, such as the end of a lease that it renews."""


class Todo(msgspec.Struct, frozen=True):
    """What a person could do now, and what to type for it."""

    what: str
    command: str


class Span(msgspec.Struct, frozen=True):
    """A stretch of a task's life."""

    kind: Literal["waiting", "asked", "paused", "ready", "held"]
    start: Millis
    end: Millis
    says: str
    agent: str | None = None
    token: int | None = None
    outcome: str | None = None


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
    next: tuple[Next, ...] = ()
    todo: tuple[Todo, ...] = ()
    spent: tuple[Span, ...] = ()


class Standing(msgspec.Struct, frozen=True):
    """One thing as it stands, before it takes its place in a chain."""

    state: str
    says: tuple[str, ...]
    trouble: int
    """How much it needs somebody, from 0 (fine) to 100 (nothing will ever move it)."""
    since: Millis | None = None
    next: tuple[Next, ...] = ()
    todo: tuple[Todo, ...] = ()
