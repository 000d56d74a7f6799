"""A desk: one thread, one connection, one call at a time.

The driver blocks, so each connection lives in a thread of its own. A call has a bound that is kept from outside the
thread: when it passes, the desk is given up, its line is cut so that the thread comes free, and whoever owned it takes
a new one. A unit of work that was given up must not commit behind its caller's back; the `CommitGuard` sees to that.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from allswell.errors import Refused, Unavailable
from allswell.store.postgres.connection import ServerAddress, ServerLine
from allswell.store.thread import WorkThread

T = TypeVar("T")


class CommitGuard:
    """Whether a unit of work may still commit, agreed between its thread and the caller that waits for it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._given_up = False
        self._ticket: str | None = None

    def check(self) -> None:
        """Called in the thread, before each statement: work that nobody waits for ends there."""
        if self._given_up:
            raise Unavailable("the caller gave up before the commit")

    def enter_commit(self, ticket: str | None) -> None:
        """Called in the thread, before the commit is sent."""
        with self._lock:
            self.check()
            self._ticket = ticket

    def give_up(self) -> str | None:
        """Called by the caller: from now on no commit begins; the ticket of the one that has begun, if any."""
        with self._lock:
            self._given_up = True
            return self._ticket


class ConnectionThread:
    """One thread with its connection, made when it is first needed and made anew when it broke."""

    def __init__(self, name: str, address: ServerAddress) -> None:
        self.name = name
        self._asked = 0  # counted by callers
        self._done = 0  # counted by the thread, whether or not somebody still waits
        self._address = address
        self._line: ServerLine | None = None
        self._retired = False
        self._thread = WorkThread(name)
        self._process = os.getpid()

    async def call(self, job: Callable[[ServerLine], T], *, timeout: float, what: str) -> T:
        """The job's result, done in the thread with a connection that works."""
        if os.getpid() != self._process:
            raise Refused("forked", "a store does not survive a fork: open a new one in the child process")
        self._asked += 1
        return await self._thread.call(lambda: self._work(job), timeout=timeout, what=what)

    @property
    def queued(self) -> int:
        """How many calls are under way or wait."""
        return self._asked - self._done

    @property
    def session(self) -> int | None:
        """The server's number of the session it talks to."""
        line = self._line
        return None if line is None else line.session

    @property
    def stuck(self) -> bool:
        """Whether a call on it has passed its bound."""
        return self._thread.abandoned

    def retire(self) -> None:
        """Give it up: cut the line, refuse what is queued, let the thread end; waits for nothing."""
        self._retired = True
        if self._line is not None:
            self._line.cut()
        self._thread.close()

    async def close(self, timeout: float) -> None:
        """Finish the call under way, if that takes no longer than this, and let the connection go."""
        if not self.stuck:
            try:
                await self._thread.call(self._hang_up, timeout=timeout, what="closing the store (close_timeout)")
            except (Unavailable, asyncio.CancelledError):
                self.retire()
                raise
        self.retire()

    def _work(self, job: Callable[[ServerLine], T]) -> T:
        try:
            if self._retired:
                raise Unavailable("the connection was given up")
            line = self._line
            if line is None or not line.usable():
                self._hang_up()
                line = self._line = self._connect()
            return job(line)
        finally:
            self._done += 1
            if self._retired:
                self._hang_up()

    def _connect(self) -> ServerLine:
        try:
            return ServerLine(self._address.connect())
        except Refused as error:
            # What was right when the store was opened is not the caller's fault now.
            raise Unavailable(error.message) from None

    def _hang_up(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            line.close()
