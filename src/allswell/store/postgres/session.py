"""A session: one transaction on one connection, in as few round trips as its questions allow.

The transaction begins with the first question, in the same round trip. A statement that fails costs the connection:
the server rolls back, and no half-prepared state outlives it. What happens to a commit whose answer is lost is told
apart from everything else, because only there it is not known whether the work was done.
"""

from __future__ import annotations

from collections.abc import Sequence

import psycopg

from allswell.errors import AllswellError, Unavailable
from allswell.store import sql
from allswell.store.port import CommitUnknown
from allswell.store.postgres.connection import PostgresSettings, ServerLine, explain
from allswell.store.postgres.connection_thread import CommitGuard
from allswell.store.postgres.pipeline import ServerAnswer, Statement

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
