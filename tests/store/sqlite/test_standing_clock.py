"""A store from before clocks could stand: what was asked in it stops the clock of its run all the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from allswell.store import sql
from allswell.store.sqlite.connection import SQL, statements
from tests.store.sqlite.scene import run
from tests.store.standing_clock import ROWS, check_clock_stands

BEFORE = 3
"""The last migration of that time."""


def test_the_clock_of_an_old_run_stands_for_what_is_waited_for(tmp_path: Path) -> None:
    raw = sqlite3.connect(tmp_path / "x.db")
    raw.execute(SQL["create_meta"])
    for number, text in sql.migrations("allswell.store.sqlite")[:BEFORE]:
        for statement in statements(text):
            raw.execute(statement)
        raw.execute(SQL["put_version"], (str(number),))
    raw.executescript(ROWS)
    raw.execute("INSERT INTO wait VALUES ('t_asks', 'question', 'q_asks.1')")
    raw.commit()
    raw.close()
    run(tmp_path / "x.db", check_clock_stands)
    raw = sqlite3.connect(tmp_path / "x.db")
    assert raw.execute("SELECT owner FROM timer").fetchall() == [("r_b",)]
    raw.close()
