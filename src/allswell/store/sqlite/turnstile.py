"""Turns for writing processes, by two flock files beside the database.

SQLite's own write lock is taken by whoever asks at the right moment, and a writer that commits and begins again at once
always asks first: others sleep in the busy handler and starve. Here who wants to write takes `next`, waits for `turn`
while holding it, then gives `next` back. So exactly one waits for the running turn, and the process that ends its turn
finds `next` taken and queues behind the waiter.

The turnstile is for fairness alone. What keeps writers apart is `BEGIN IMMEDIATE`, so a deleted lock file harms nobody.

flock has no time limit, and a thread asleep in it could not be called back: so both waits ask again and again, at a
fixed pace. Nobody's pace slows down with waiting, or those who came last would be served first.
"""

from __future__ import annotations

import os
import time
import weakref
from fcntl import LOCK_EX, LOCK_NB, LOCK_UN, flock
from pathlib import Path

from allswell.errors import Unavailable

_TAKE = LOCK_EX | LOCK_NB
_PACE_NEXT = 0.0005
_PACE_TURN = 0.0001
"""Seconds. Only one process at a time waits for `turn`, so it may ask more often."""


class Turnstile:
    """One process's place at the turnstile of one database; used by one thread."""

    def __init__(self, database: Path, timeout_ms: int) -> None:
        self._paths = (Path(f"{database}.next"), Path(f"{database}.turn"))
        self._timeout = timeout_ms / 1_000
        self._files: tuple[int, int] | None = None
        _inheritable.add(self)

    def open(self) -> None:
        """Open the two lock files, making them if need be."""
        following = _open(self._paths[0])
        try:
            self._files = (following, _open(self._paths[1]))
        except BaseException:
            os.close(following)
            raise

    def close(self) -> None:
        """Close the lock files, which also gives back what is held; safe to call twice."""
        files, self._files = self._files, None
        for file in files or ():
            os.close(file)

    def enter(self) -> None:
        """Wait for a turn, at most `turn_timeout`."""
        if not self.enter_at_once():
            following, turn = self._open_files()
            self._wait(following, _PACE_NEXT, (until := time.monotonic() + self._timeout))
            self._wait_for_turn(following, turn, until)

    def enter_at_once(self) -> bool:
        """Take a turn if nobody has it and nobody waits for it."""
        following, turn = self._open_files()
        try:
            flock(following, _TAKE)
        except BlockingIOError:
            return False
        try:
            flock(turn, _TAKE)
        except BlockingIOError:
            return False
        else:
            return True
        finally:
            flock(following, LOCK_UN)

    def leave(self) -> None:
        """End the turn."""
        flock(self._open_files()[1], LOCK_UN)

    def _wait_for_turn(self, following: int, turn: int, until: float) -> None:
        try:
            self._wait(turn, _PACE_TURN, until)
        finally:
            flock(following, LOCK_UN)

    def _wait(self, file: int, pace: float, until: float) -> None:
        while not _try(file):
            if time.monotonic() >= until:
                raise Unavailable(
                    f"no turn to write within turn_timeout ({self._timeout:g} s)",
                    hint=f"another process holds {self._paths[1]} for too long; `fuser` shows which",
                )
            time.sleep(pace)

    def _open_files(self) -> tuple[int, int]:
        if self._files is None:
            raise Unavailable("the store is not open")
        return self._files


def _open(path: Path) -> int:
    try:
        return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise Unavailable(
            f"cannot open the lock file {path}: {error.strerror}",
            hint="the store writes in its folder; look at its owner and mode, and whether it is mounted read-only",
        ) from error


def _try(file: int) -> bool:
    try:
        flock(file, _TAKE)
    except BlockingIOError:
        return False
    return True


_inheritable: weakref.WeakSet[Turnstile] = weakref.WeakSet()


def _let_go_in_child() -> None:
    # A flock belongs to the open file, which a fork shares: if the parent dies in its turn, a child that still had the
    # file open would keep the turn for ever (test_processes.py).
    for turnstile in list(_inheritable):
        turnstile.close()


os.register_at_fork(after_in_child=_let_go_in_child)
