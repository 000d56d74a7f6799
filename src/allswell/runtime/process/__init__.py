"""Process trees that can be ended: a warden process, a reaper for each command, and what a supervisor knows of them.

    program                  warden                      reaper (one per command)        the tree
    handle.py ──── socket ─────────────────────────────▶ TERM, grace, KILL ────────────▶ all of it
    handle.py ──── order ──▶ forks ────────────────────▶ subreaper, own session

`command` is what to run, checked before anything runs, and how it ended; `handle` starts the warden, and is a command
that runs; `identity` is what is written down of a process; `leftovers` how a later supervisor finds what is left;
`apart` what runs in the warden's process.
The host is never made a subreaper and never forked, and this package waits for no children that are not its own.
"""

from allswell.runtime.process.command import (
    EndCause,
    ProcessResult,
    StreamEnd,
    WardenCommand,
    allowed_environment,
    checked_argv,
    checked_cwd,
    find_program,
    held_back,
)
from allswell.runtime.process.handle import KEEPER, Handle, start
from allswell.runtime.process.identity import MARKER, TreeRecord, survivors_of
from allswell.runtime.process.leftovers import LeftoverTree, end_left_over, find_left_over, working_in

__all__ = [
    "KEEPER",
    "MARKER",
    "EndCause",
    "Handle",
    "LeftoverTree",
    "ProcessResult",
    "StreamEnd",
    "TreeRecord",
    "WardenCommand",
    "allowed_environment",
    "checked_argv",
    "checked_cwd",
    "end_left_over",
    "find_left_over",
    "find_program",
    "held_back",
    "start",
    "survivors_of",
    "working_in",
]
