"""A watch from before clocks could stand: what was asked in it stops the clock of its run all the same."""

from __future__ import annotations

import psycopg

from allswell.store.postgres.connection_thread import MIGRATIONS, SQL
from tests.store.postgres.scene import run
from tests.store.standing_clock import ROWS, check_clock_stands

BEFORE = 5
"""The last migration of that time."""


def test_the_clock_of_an_old_run_stands_for_what_is_waited_for(pg_url: str) -> None:
    with psycopg.connect(pg_url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(SQL["create_schema"])
        connection.execute(SQL["create_meta"])
        for number, text in MIGRATIONS[:BEFORE]:
            connection.execute(text, prepare=False)
            connection.execute(SQL["set_schema_version"], (str(number),))
        connection.execute("SET LOCAL search_path = allswell")
        connection.execute(ROWS, prepare=False)
        connection.execute("INSERT INTO waits VALUES ('t_asks', 'question', 'q_asks.1')")
    run(pg_url, check_clock_stands)
    with psycopg.connect(pg_url) as connection:
        assert connection.execute("SELECT owner FROM allswell.timer").fetchall() == [("r_b",)]
