"""Whether something that was found, rather than named, is to be trusted.

What lies in a folder on the way up may have been put there by anybody who can write there, and it can name commands to
run. So only what is this user's own counts, and only if nobody else could have changed it.
"""

from __future__ import annotations

import stat
from enum import StrEnum

import msgspec


class Ownership(msgspec.Struct, frozen=True):
    """Whose a file is, and who may write to it."""

    uid: int
    gid: int
    mode: int


class User(msgspec.Struct, frozen=True):
    """Who asks."""

    uid: int
    group: int | None = None
    """The group that is this user's alone, if there is one: what it may write, only the user writes."""


class Distrust(StrEnum):
    """Why something is not trusted."""

    FOREIGN = "foreign"
    """It belongs to somebody else."""
    ANYBODY = "anybody"
    """Anybody can write to it."""
    GROUP = "group"
    """A group with others in it can write to it."""


def distrust(found: Ownership, user: User) -> Distrust | None:
    """Why this user should not trust what was found; None if it is to be trusted."""
    if found.uid != user.uid:
        return Distrust.FOREIGN
    if found.mode & stat.S_IWOTH:
        return Distrust.ANYBODY
    if found.mode & stat.S_IWGRP and found.gid != user.group:
        return Distrust.GROUP
    return None
