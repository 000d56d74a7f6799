"""Whose child a process is, up to the first: how it is known that somebody runs inside an attempt.

A reaper is a subreaper, so whoever is left by its parent (a double fork, a daemon) becomes its child: everybody that a
command started, however, has the reaper above it. Variables can be unset and paths guessed; parents cannot be chosen.
"""

from __future__ import annotations

import os

from allswell.runtime.boot import boot_id
from allswell.runtime.warden.apart.tree import look, read
from allswell.runtime.warden.record import MARKER, Record, pid_namespace

_LOOKS = 4
"""Who loses a parent while we look has another one the next time."""


def ancestry(pid: int) -> dict[int, int]:
    """A process and all above it, each with its start time; empty if it is no more."""
    for _ in range(_LOOKS):
        found: dict[int, int] = {}
        above = pid
        while above > 0 and (seen := look(above)) is not None and above not in found:
            found[above] = seen.start
            above = seen.parent
        if above == 0 or pid not in found:  # the first of all has no parent; nor has who came from outside a container
            return found
    return {}


def _is_marked(marker: str) -> bool:
    """Whether we, or somebody above us, carry the marker of a tree.

    For a sandbox with process numbers of its own, out of which no parents can be seen.
    """
    sign = f"{MARKER}={marker}".encode()
    return any(sign in read(f"/proc/{one}/environ").split(b"\0") for one in ancestry(os.getpid()))


def is_inside(record: Record, pid: int | None = None) -> bool:
    """Whether a process, or this one, is of the tree that was recorded, and the tree still has its reaper."""
    if not record.reaper or record.boot_id != boot_id():
        return False
    if record.pid_namespace != pid_namespace():
        return pid is None and _is_marked(record.marker)  # its numbers mean something else here
    return ancestry(os.getpid() if pid is None else pid).get(record.reaper) == record.reaper_start
