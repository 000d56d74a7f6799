"""Whose a file or a folder is, and in words why it is not trusted; the rule itself is `domain/trust.py`."""

from __future__ import annotations

import grp
import os
import pwd
import stat
from pathlib import Path

from allswell.domain.trust import Distrust, Ownership, User, distrust


def _own_group() -> int | None:
    """The group that is ours alone: our first one, if it bears our name, as most systems make it."""
    gid = os.getegid()
    return gid if user_name(os.geteuid()) == _group_name(gid) else None


def user_name(uid: int) -> str:
    """A user's name; the number where it has none."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _group_name(gid: int) -> str:
    try:
        return grp.getgrgid(gid).gr_name
    except KeyError:
        return str(gid)


def doubt(found: os.stat_result) -> str | None:
    """What speaks against something that was found, in words with what to do; None if nothing does."""
    # Names may have to be asked for over a network, at every command: only where they matter.
    user = User(os.geteuid(), _own_group() if found.st_mode & stat.S_IWGRP else None)
    match distrust(Ownership(found.st_uid, found.st_gid, found.st_mode), user):
        case None:
            return None
        case Distrust.FOREIGN:
            owner, us = user_name(found.st_uid), user_name(os.geteuid())
            return f"it belongs to {owner}, and you are {us}: {_NOT_USED}"
        case Distrust.ANYBODY:
            return f"anybody can write to it: {_NOT_USED}; `chmod go-w` it once you have read it"
        case Distrust.GROUP:
            return (
                f"the group {_group_name(found.st_gid)} can write to it: {_NOT_USED}; "
                "`chmod g-w` it once you have read it"
            )


_NOT_USED = "it is not used, since it could name commands to run"


def doubt_about(path: Path) -> str | None:
    """The same about a path, and about the link if it is one; None where there is nothing, or nothing to doubt."""
    try:
        link = path.lstat()
        return doubt(link if link.st_uid != os.geteuid() else path.stat())
    except OSError:
        return None
