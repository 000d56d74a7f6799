"""What `allswell run` was asked for, and what came of it."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

if TYPE_CHECKING:
    from allswell.errors import AllswellError
    from allswell.runtime.attempt import Outcome
    from allswell.runtime.worktree import Worktree

AGENTS_OWN = ("ANTHROPIC_*", "CLAUDE_*", "OPENAI_*", "CODEX_*", "GEMINI_*", "SSH_AUTH_SOCK")
"""With `--clean-env`: what the agents people run need to reach their providers; all others are handed on by name."""

_NULL = os.makedev(1, 3)
"""The device without content, which a command has anyway that is given nothing."""


class Asked(msgspec.Struct, frozen=True):
    """What was asked for, as the task's payload keeps it, so that it can be resumed."""

    command: tuple[str, ...]
    cwd: str
    timeout: int
    idle: int | None
    grace: int
    retries: int = 0
    env: tuple[str, ...] = ()
    """Names and patterns of variables that are handed on; never their values."""
    clean: bool = False
    """Whether only those are, and what every command needs; otherwise it inherits all that is not ours."""
    verify: tuple[str, ...] = ()
    """What must pass before it counts as done."""

    @property
    def handed_on(self) -> tuple[str, ...]:
        """Patterns of the variables that the command gets beside those that every command needs."""
        return (*AGENTS_OWN, *self.env) if self.clean else ("*",)


class Ran(msgspec.Struct):
    """What came of it."""

    code: int
    task: str = ""
    outcome: Outcome | None = None
    attempts: int = 0
    state: str = ""
    error: AllswellError | None = None
    starved: bool = False
    """Whether it was not tried again because its standard input was too long to be kept."""
    asked: bool = False
    """Whether a human has to decide now how it goes on."""
    held_back: list[str] = []
    """The variables that a command which has failed was not handed on."""
    untold: AllswellError | None = None
    """Why the store does not know how it ended, if it does not."""
    worktree: Worktree | None = None


class Variables(msgspec.Struct, frozen=True):
    """What `-e` said: variables to hand on by name, and those that are set."""

    names: tuple[str, ...] = ()
    values: dict[str, str] = {}

    @classmethod
    def of(cls, given: Sequence[str]) -> Variables:
        """From what was typed: NAME, NAME=VALUE or ABC_*."""
        names = tuple(one for one in given if "=" not in one)
        return cls(names, {key: value for key, _, value in (one.partition("=") for one in given if "=" in one)})


def piped() -> int | None:
    """Our standard input, where it is something to read from: a pipe, a file, and no terminal."""
    try:
        handle = sys.stdin.fileno()
        status = os.fstat(handle)
    except (AttributeError, OSError, ValueError):  # closed, or none of a process's own
        return None
    if os.isatty(handle) or not _readable(status.st_mode) or status.st_rdev == _NULL:
        return None
    return handle


def _readable(mode: int) -> bool:
    return stat.S_ISFIFO(mode) or stat.S_ISREG(mode) or stat.S_ISSOCK(mode) or stat.S_ISCHR(mode)
