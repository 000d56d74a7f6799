"""A desk: one thread, one connection, one call at a time.

The driver blocks, so each connection lives in a thread of its own. A call has a bound that is kept from outside the
thread: when it passes, the desk is given up, its line is cut so that the thread comes free, and whoever owned it takes
a new one. A unit of work that was given up must not commit behind its caller's back; the `CommitGuard` sees to that.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import psycopg

from allswell.errors import AllswellError, Refused, Unavailable
from allswell.store import sql
from allswell.store.port import CommitUnknown
from allswell.store.postgres.connection import PostgresSettings, ServerAddress, ServerLine, explain
from allswell.store.postgres.pipeline import ServerAnswer, Statement
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


# A session: one transaction on one connection, in as few round trips as its questions allow.
#
# The transaction begins with the first question, in the same round trip. A statement that fails costs the connection:
# the server rolls back, and no half-prepared state outlives it. What happens to a commit whose answer is lost is told
# apart from everything else, because only there it is not known whether the work was done.

MIGRATIONS = sql.migrations("allswell.store.postgres")
VERSION = len(MIGRATIONS)
SQL = {
    name: statement.replace("{schema}", str(VERSION))
    for name, statement in sql.load("allswell.store.postgres", "statements.sql").items()
}


class Session:
    """One transaction, begun with its first statement."""

    def __init__(
        self, line: ServerLine, place: str, opening: tuple[Statement, ...], guard: CommitGuard | None = None
    ) -> None:
        self._line = line
        self._place = place
        self._opening = opening
        self._guard = CommitGuard() if guard is None else guard
        self._begun = False
        self._failure: AllswellError | None = None

    def ask(self, *statements: Statement, prepare: bool = True) -> list[ServerAnswer]:
        """Run statements that do not depend on each other in one round trip."""
        if self._failure is not None:
            raise self._failure
        self._guard.check()
        opening = () if self._begun else self._opening
        self._begun = True
        try:
            return self._line.ask((*opening, *statements), prepare=prepare)[len(opening) :]
        except psycopg.Error as error:
            self._failure = explain(error, self._place)
            raise self._failure from error

    def commit(
        self, ticket: str | None = None, last: Sequence[Statement] = (), afterthought: Statement | None = None
    ) -> None:
        """Send the last statements and commit; if one of them fails, the server skips the commit.

        An afterthought is sent along, as a transaction by itself, and not waited for.

        `CommitUnknown` if the answer was lost and there was something to commit.
        """
        if not self._begun and not last:
            return
        if self._failure is not None:
            raise self._failure  # which the work has overlooked
        self._guard.enter_commit(ticket)
        opening = () if self._begun else self._opening
        self._begun = True
        try:
            answer = self._line.ask([*opening, *last, (SQL["commit"], ())], afterthought=afterthought)[-1]
        except psycopg.Error as error:
            certain = error.sqlstate is not None and not error.sqlstate.startswith(("08", "57P"))
            if ticket is None or certain:
                raise explain(error, self._place) from error
            raise CommitUnknown(ticket) from error
        if answer.command != "COMMIT":
            # PostgreSQL answers the commit of a failed transaction politely, with ROLLBACK.
            raise Unavailable("the transaction had failed and was rolled back")

    def roll_back(self) -> None:
        """Undo everything; the connection stays usable, or is closed."""
        if self._begun:
            self._line.roll_back()


def opening_of_work(settings: PostgresSettings, *, durable: bool) -> tuple[Statement, ...]:
    """What a unit of work begins with."""
    bounds = (
        _millis(settings.statement_timeout),
        _millis(settings.lock_timeout),
        _millis(settings.idle_timeout),
        "on" if durable else "off",
    )
    return (SQL["begin"], ()), (SQL["set_up"], bounds)


def opening_of_view(settings: PostgresSettings) -> tuple[Statement, ...]:
    """What a view begins with."""
    bounds = (
        _millis(settings.view_timeout),
        _millis(settings.lock_timeout),
        _millis(settings.idle_timeout),
    )
    return (SQL["begin_view"], ()), (SQL["set_up_view"], bounds)


def _millis(seconds: float) -> str:
    return str(max(1, round(seconds * 1000)))
