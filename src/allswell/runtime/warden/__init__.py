"""Process trees that can be ended: a warden process, a reaper for each command, and what a supervisor knows of them.

    program                  warden                      reaper (one per command)        the tree
    handle.py ──── socket ─────────────────────────────▶ TERM, grace, KILL ────────────▶ everybody
    keeper.py ──── order ──▶ forks ────────────────────▶ subreaper, own session

`command` is what to run, checked before anything runs; `handle` a command that runs; `result` how it ended; `record`
what is written down of it; `left_over` how a later supervisor finds what is left; `apart` what runs in the warden's
process.
The host is never made a subreaper, never forked, and nobody here waits for children that are not ours.
"""

from allswell.runtime.warden.command import (
    WardenCommand,
    allowed_environment,
    checked_argv,
    checked_cwd,
    find_program,
    held_back,
)
from allswell.runtime.warden.handle import Handle, begin, start
from allswell.runtime.warden.keeper import KEEPER
from allswell.runtime.warden.left_over import LeftOver, end_left_over, find_left_over
from allswell.runtime.warden.record import MARKER, Record
from allswell.runtime.warden.result import Ending, Printed, Result

__all__ = [
    "KEEPER",
    "MARKER",
    "Ending",
    "Handle",
    "LeftOver",
    "Printed",
    "Record",
    "Result",
    "WardenCommand",
    "allowed_environment",
    "begin",
    "checked_argv",
    "checked_cwd",
    "end_left_over",
    "find_left_over",
    "find_program",
    "held_back",
    "start",
]
