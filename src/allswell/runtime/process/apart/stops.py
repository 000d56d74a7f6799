"""Stops of a command that is run in front of a person, and of the process that supervises it.

Ctrl-Z at a terminal of its own, or `kill -STOP`, stops the command; the same at ours stops the supervisor alone, which
cannot even notice. So the reaper of such a command follows both: where one of them is stopped, everybody below the
reaper is, and when the command is continued from outside, the supervisor is woken. It is the supervisor that lets
everybody go on (`go_on`), once it knows that the work is still its own.

Only on order, which only `allswell run` gives. An agent of a fleet cannot stand its clock still by stopping.
"""

from __future__ import annotations

import os
import signal
import time
from typing import cast

from .tree import below, freeze, look, send, start_of, state_of, thaw
from .wire import receive_one

LOOK_EVERY = 0.5
"""Seconds between two looks at the supervisor: the kernel tells nobody but a parent that a process was stopped."""
_STOPPED = "T"
_GROUP = 2
"""The place of a process's group in what the kernel says of it."""


def is_stopped(pid: int, start: int) -> bool:
    """Whether a process is stopped; one that is traced (`t`) is not."""
    seen = look(pid)
    return seen is not None and seen.start == start and seen.state == _STOPPED


class StopSync:
    """The command of one reaper and its supervisor, of which both are stopped where one is."""

    def __init__(self, supervisor: int, command: int) -> None:
        self.stands = False
        """Whether everybody was stopped here."""
        self._supervisor = supervisor
        self._start = start_of(supervisor)
        self._command = command
        self._left_alone: set[tuple[int, int]] = set()
        """Who was stopped by somebody else before, such as the jobs of a shell, and shall stay so."""
        self.look_at = 0.0
        """When to look at the supervisor next, on the monotonic clock."""

    def supervisor_is_stopped(self) -> bool:
        """Whether somebody has stopped the supervisor."""
        return is_stopped(self._supervisor, self._start)

    def stand(self) -> None:
        """Stop everybody below us."""
        if self.stands:
            return
        self.stands = True
        group = self._group_of(self._command) if self._is_stopped(self._command) else None
        self._left_alone = {
            (pid, seen.start)
            for pid, seen in below(os.getpid()).items()
            if seen.state == _STOPPED and (group is None or self._group_of(pid) != group)
        }
        freeze(os.getpid())

    def go_on(self) -> None:
        """Let everybody go on who was stopped here, and with the command."""
        if not self.stands:
            return
        self.stands = False
        found = below(os.getpid())
        thaw({pid: seen for pid, seen in found.items() if (pid, seen.start) not in self._left_alone})

    def wake_supervisor(self) -> None:
        """The command was continued from outside: so is the supervisor."""
        if self.supervisor_is_stopped():
            send(self._supervisor, self._start, signal.SIGCONT)

    @staticmethod
    def _group_of(pid: int) -> bytes:
        fields = state_of(pid)
        return b"" if fields is None else fields[_GROUP]

    @staticmethod
    def _is_stopped(pid: int) -> bool:
        seen = look(pid)
        return seen is not None and seen.state == _STOPPED


# Starts the process that renews a lease while the supervisor, who should do it, is stopped.
#
# The warden itself has neither the package nor a store at hand, and shall stay small. So it is told beforehand what to
# run in that case, and looks at the supervisor twice a second. What it runs ends by itself when the supervisor goes on.
#
# Its environment has the keys of the supervisor, which agents shall not read. So the warden never reads it: it stays in
# a file in memory until the child that becomes that process does, and a warden with such a file cannot be looked into.

FOLLOW = b"\xff" * 8
"""In the place of a cap: no command to be run, but what to run should the supervisor be stopped."""
LOOK_EVERY_MS = int(LOOK_EVERY * 1_000)
_AGAIN = 10.0
"""Seconds after which it is started again, should it have ended while the supervisor is still stopped."""


class RenewalCommand:
    """What to run while the supervisor is stopped."""

    def __init__(self, supervisor: int, order: int) -> None:
        self._supervisor = supervisor, start_of(supervisor)
        self._order = order
        self._running: int | None = None
        self._next = 0.0

    def close(self) -> None:
        """Run nothing any more."""
        os.close(self._order)

    def look(self, children: set[int]) -> None:
        """Start it if it is time; `children` are those of the warden that are in nobody's tree."""
        if self._running in children or time.monotonic() < self._next or not is_stopped(*self._supervisor):
            return
        self._next = time.monotonic() + _AGAIN
        try:
            self._running = os.fork()
        except OSError:
            return
        if self._running == 0:
            self._become()
        children.add(self._running)

    def _become(self) -> None:
        try:
            signal.set_wakeup_fd(-1)
            for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM, signal.SIGCHLD):
                signal.signal(number, signal.SIG_DFL)
            os.lseek(self._order, 0, os.SEEK_SET)
            order = receive_one(self._order)
            os.chdir(cast("str", order["cwd"]))
            argv, env = cast("list[str]", order["argv"]), cast("dict[str, str]", order["env"])
            os.execve(argv[0], argv, env)  # noqa: S606 - no shell, on purpose
        finally:
            os._exit(0)  # what could not be run is tried again; no reaper was lost
