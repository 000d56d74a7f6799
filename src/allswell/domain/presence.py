"""A supervisor's place in the watch: its name is taken by one process at a time, and what it does can be looked at.

Each supervisor keeps one word in the store under its name, and renews it. A name whose owner has not spoken for three
times its pace is free; so is one whose owner is known to be dead. The word carries a marker of its own, and is only
ever swapped for the one that was read, so of two that start under one name one is refused.
"""

from __future__ import annotations

import msgspec

from allswell.domain.duration import show
from allswell.domain.names import Millis
from allswell.domain.usage import Level
from allswell.errors import Refused

PREFIX = "supervisor."
PACE = 5_000
"""Milliseconds between two words of a supervisor, at most."""
_LOST = 3


class Post(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """One slot of a fleet: who may hold a task in it, and what it is doing."""

    agent: str
    """Its name in the settings."""
    holder: str
    """Its name in the store: whose leases these are."""
    kind: str
    role: str | None = None
    task: str = ""
    name: str = ""
    token: int = 0
    condition: str = ""
    """Empty while it has nothing to do."""
    evidence: str = ""
    proof_at: Millis | None = None
    """The last proof of progress, on the store's clock."""
    waits: str = ""
    """Why it takes nothing new, where something keeps it."""
    account: str = ""
    """Whose usage limit it runs into."""
    idle_at: Millis | None = None
    """When it is ended for want of progress, on the store's clock; None: nobody ends it for that."""


class Presence(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a supervisor says of itself."""

    name: str
    marker: str
    host: str
    pid: int
    boot_id: str
    pid_namespace: str
    pid_start: int
    started_at: Millis
    beaten_at: Millis
    pace: int = PACE
    level: Level = Level()
    posts: tuple[Post, ...] = ()
    stopping: bool = False
    gone: bool = False
    """It has stopped in good order; what it was stays to be looked at."""
    died: bool = False
    """Its process is certainly gone: never written down, and known only to whoever looks from its own machine."""


def is_alive(presence: Presence, now: Millis) -> bool:
    """Whether a supervisor has spoken lately; what was said far ahead of now was said by a clock that was set back."""
    return not presence.gone and not presence.died and abs(now - presence.beaten_at) < presence.pace * _LOST


def check_free(presence: Presence | None, now: Millis, *, dead: bool) -> None:
    """Refuse a name that somebody has; `dead` is what the caller knows of its owner's process."""
    if presence is None or dead or not is_alive(presence, now):
        return
    since = show(max(now - presence.started_at, 0))
    text = (
        f"a supervisor named {presence.name!r} runs already: process {presence.pid} on {presence.host}, for {since};"
        " stop it, or give this one another name (--name)"
    )
    raise Refused("name_taken", text, where="name")
