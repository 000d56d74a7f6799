"""PostgreSQL itself ends a statement, and a wait for a lock, when the scope's time is up."""

from __future__ import annotations

import asyncio

import psycopg
import pytest

import allswell
from allswell.errors import Refused
from allswell.runtime.statements import limit_statements, limit_statements_async

SHOWN = "SELECT current_setting('statement_timeout'), current_setting('lock_timeout')"


@pytest.mark.row("F3")
def test_the_server_ends_a_statement_that_outlasts_its_scope(pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:

        def late() -> None:
            with allswell.within(200):
                limit = limit_statements(connection)
                assert limit is not None
                assert 0 < limit <= 200
                connection.execute("SELECT pg_sleep(60)")

        with pytest.raises(psycopg.errors.QueryCanceled, match="statement timeout"):
            late()
        connection.rollback()
        assert connection.execute(SHOWN).fetchone() == ("0", "0")  # given back clean


def test_the_limit_is_the_transactions_own(pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection, allswell.within("1m"):
        with connection.transaction():
            limit_statements(connection)
            shown = connection.execute(SHOWN).fetchone()
            assert shown is not None
            assert all(text.endswith("ms") and text != "0" for text in shown)
        assert connection.execute(SHOWN).fetchone() == ("0", "0")


def test_a_shorter_limit_that_holds_already_is_kept(pg_url: str) -> None:
    with psycopg.connect(pg_url, options="-c statement_timeout=1234") as connection, allswell.within("1m"):
        limit_statements(connection)
        shown = connection.execute(SHOWN).fetchone()
        assert shown is not None
        assert shown[0] == "1234ms"
        assert limit_statements(connection, "900ms") == 900
        assert connection.execute(SHOWN).fetchone() == ("900ms", "900ms")


def test_without_a_scope_nothing_is_set_and_zero_is_refused(pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:
        assert limit_statements(connection) is None
        assert connection.execute(SHOWN).fetchone() == ("0", "0")
        with pytest.raises(Refused, match="statement_timeout must be more than 0 ms"):
            limit_statements(connection, 0)
        with pytest.raises(Refused, match="statement_timeout"):
            limit_statements(connection, -5)


def test_a_scope_without_time_sends_nothing(pg_url: str) -> None:
    with psycopg.connect(pg_url) as connection:

        def late() -> None:
            with allswell.within(0.0001):
                limit_statements(connection)

        with pytest.raises(allswell.ScopeTimeout):
            late()


def test_a_connection_that_commits_by_itself_is_refused(pg_url: str) -> None:
    with psycopg.connect(pg_url, autocommit=True) as connection, allswell.within("1m"):
        with pytest.raises(Refused, match=r"use connection.transaction\(\)"):
            limit_statements(connection)
        with connection.transaction():
            assert limit_statements(connection) is not None


def test_async_connections_and_locks_too(pg_url: str) -> None:
    async def main() -> None:
        with psycopg.connect(pg_url) as holder:
            holder.execute("CREATE TABLE held ()")
            holder.commit()
            holder.execute("LOCK TABLE held")
            async with (
                await psycopg.AsyncConnection.connect(pg_url) as connection,
                allswell.within("30s"),
            ):
                assert await limit_statements_async(connection, 100) == 100
                with pytest.raises((psycopg.errors.LockNotAvailable, psycopg.errors.QueryCanceled)):
                    await connection.execute("LOCK TABLE held")

    asyncio.run(main())
