"""The talk with the server: what is sent is what arrives, however much it is, and the driver's own care is not lost."""

from __future__ import annotations

import select
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import psycopg
import pytest

from allswell.store.postgres.connection import PostgresSettings, ServerAddress, ServerLine

_NAMES = ("SELECT count(*) FROM pg_prepared_statements WHERE name LIKE 'allswell%'", ())


@contextmanager
def line(url: str, **settings: int | None) -> Iterator[ServerLine]:
    made = ServerLine(ServerAddress(url, PostgresSettings(**settings)).connect())  # type: ignore[arg-type]  # a threshold is all we give
    try:
        yield made
    finally:
        made.close()


def test_values_arrive_as_they_are(pg_url: str) -> None:
    query = "SELECT $1::text, $2::bigint, $3::boolean, $4::text, $5::text[], 0.5::double precision"
    with line(pg_url) as talk:
        for prepare in (True, False, True):
            asked = (query, ("ä' \\ \n", -(2**62), True, None, '{"a","b c"}'))
            (answer, nothing) = talk.ask([asked, ("SELECT 1 WHERE false", ())], prepare=prepare)
            assert answer.fetchall() == [("ä' \\ \n", -(2**62), True, None, ["a", "b c"], 0.5)]
            assert nothing.fetchall() == []


def test_a_nul_is_refused_and_not_taken_for_the_end(pg_url: str) -> None:
    with line(pg_url) as talk, pytest.raises(psycopg.DataError, match="NUL"):
        talk.ask([("SELECT $1::text", ("t_1\0",))])


def test_much_is_sent_while_much_is_heard(pg_url: str) -> None:
    """Neither side may wait for the other to listen: 40 MB each way, far beyond what sockets hold."""
    large = "x" * 1_000_000
    with line(pg_url) as talk:
        answers = talk.ask([("SELECT $1::text", (large,))] * 40)
        assert all(answer.fetchall() == [(large,)] for answer in answers)


def test_the_first_error_is_told_and_nothing_goes_on_after_it(pg_url: str) -> None:
    with line(pg_url) as talk:
        with pytest.raises(psycopg.errors.DivisionByZero):
            talk.ask([("SELECT 1", ()), ("SELECT 1 / 0", ()), ("SELECT $1::integer", ("no number",))])
        assert talk.connection.closed


@pytest.mark.parametrize("threshold,prepared", [(None, [0, 0, 0, 0]), (0, [1, 1, 1, 1]), (2, [0, 0, 1, 1])])
def test_a_statement_is_prepared_once_it_was_used_so_often(
    pg_url: str, threshold: int | None, prepared: list[int]
) -> None:
    found = []
    with line(pg_url, prepare_threshold=threshold) as talk:
        for _ in prepared:
            talk.ask([("SELECT 1", ())])
            (answer,) = talk.ask([_NAMES], prepare=False)
            found += [row[0] for row in answer.fetchall()]
    assert found == prepared


@pytest.mark.parametrize(
    "afterthought", ["SELECT 2", "SELECT 1 / 0", "SELECT count(*) FROM generate_series(1, 100000)"]
)
def test_an_afterthought_is_a_transaction_by_itself_that_nobody_waits_for(pg_url: str, afterthought: str) -> None:
    with line(pg_url) as talk:
        for _ in range(3):
            (answer,) = talk.ask([("SELECT 1", ())], afterthought=(afterthought, ()))
            assert answer.fetchall() == [(1,)]
            assert talk.usable()
        (answer,) = talk.ask([("SELECT 3", ())])
        assert answer.fetchall() == [(3,)]
        assert talk.usable()


def test_a_connection_that_broke_during_an_afterthought_is_not_used_again(pg_url: str) -> None:
    with line(pg_url) as talk:
        talk.ask([("SELECT 1", ())], afterthought=("SELECT pg_terminate_backend(pg_backend_pid())", ()))
        select.select([talk.connection.fileno()], [], [], 20)
        with suppress(psycopg.Error):
            while talk.usable():
                talk.ask([("SELECT 1", ())])
        assert not talk.usable()
