"""How a command ended, and what it used."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Ending(StrEnum):
    """Who or what ended it."""

    EXITED = "exited"
    """The command itself: `exit_code` is its own."""
    SIGNALLED = "signalled"
    """A signal that did not come from us."""
    STOPPED = "stopped"
    """We did: it was told to stop, and killed if it did not."""
    LOST = "lost"
    """Nobody knows: its reaper was killed. What was left of the tree has been killed too."""


class Printed(msgspec.Struct, frozen=True):
    """What became of one stream."""

    bytes: int = 0
    """All that was printed."""
    left_out: int = 0
    """How much of it is not in the file; there a line says so."""
    errno: int | None = None
    """The error that ended the writing of the file, a full disk for example."""


class Result(msgspec.Struct, frozen=True):
    """The end of a process tree."""

    ending: Ending
    exit_code: int | None
    """The command's own; None if a signal ended it, or if nobody knows."""
    signal: int | None
    killed: bool = False
    """Whether somebody had to be killed after the grace."""
    left_behind: int = 0
    """How many processes the command left when it ended by itself; they were ended, too."""
    survivors: tuple[int, ...] = ()
    """Whom the kernel did not let us kill: another user's process, or one that hangs in a device."""
    seconds: float = 0.0
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    max_rss_kb: int = 0
    """Of the largest process of the tree; never less than a reaper has, about 10 MB, which each begins as."""
    stdout: Printed = Printed()
    stderr: Printed = Printed()

    @property
    def ok(self) -> bool:
        """Whether the command ended by itself, with exit code 0."""
        return self.ending is Ending.EXITED and self.exit_code == 0
