"""What is written down about a process tree, so that whoever comes later can tell it from everything else."""

from __future__ import annotations

from pathlib import Path

import msgspec

from allswell.runtime.boot import boot_id

MARKER = "ALLSWELL_MARKER"
"""The variable by which every process of a tree can be known, as long as nobody takes it away."""


class Record(msgspec.Struct, frozen=True):
    """One process tree. A number means nothing without the boot, the namespace and the start time beside it."""

    boot_id: str
    pid_namespace: str
    marker: str
    pid: int = 0
    """The command; 0 if it was not known yet."""
    start: int = 0
    """When it started, in clock ticks since boot."""
    reaper: int = 0
    reaper_start: int = 0


def pid_namespace() -> str:
    """What tells our process numbers from those of other containers."""
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:
        return "unknown"


def new_record(marker: str) -> Record:
    """A record of a tree that is about to start."""
    return Record(boot_id(), pid_namespace(), marker)
