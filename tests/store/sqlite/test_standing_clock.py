"""A store from before clocks could stand: what was asked in it stops the clock of its run all the same."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from allswell.domain.names import RunId, TaskId
from allswell.store import sql
from allswell.store.sqlite import SqliteStore
from allswell.store.sqlite.schema import SQL, statements
from tests.store.sqlite.scene import run

BEFORE = 3
"""The last migration of that time."""
TASK = "INSERT INTO task (id, name, run, role, lane, priority, state, created_at, spec, record, rank, payload)"
LEASE = "INSERT INTO lease (task, token, agent, granted_at, deadline, ask_every, ask_wait, grace, command, judged, "
ASKED = "INSERT INTO question (id, task, run, kind, text, options, asked_at, asked_by, answer, answered_by, command)"


def old_store(path: Path) -> None:
    """A run with a deadline of 1,000: one task waits for an answer, two are held; another run has no question."""
    raw = sqlite3.connect(path)
    raw.execute(SQL["create_meta"])
    for number, text in sql.migrations("allswell.store.sqlite")[:BEFORE]:
        for statement in statements(text):
            raw.execute(statement)
        raw.execute(SQL["put_version"], (str(number),))
    for id_ in ("r_a", "r_b"):
        raw.execute("INSERT INTO run VALUES (?, 'build', 0, 1000, NULL, '', '')", (id_,))
        raw.execute("INSERT INTO timer VALUES (?, 1000)", (id_,))
    for id_, spec in (("t_asks", "{}"), ("t_cut", "{}"), ("t_own", '{"policy":{"timeout":300},"limit_at":1000}')):
        raw.execute(f"{TASK} VALUES (?, ?, 'r_a', '', 1, 0, 'open', 0, ?, '{{}}', 0, 'null')", (id_, id_, spec))
    for id_, until in (("t_cut", 1000), ("t_own", 400)):
        values = "(?, 1, 'ann', 100, ?, 5000, 500, 10, '', 0, 100, '')"
        raw.execute(f"{LEASE} renewed_at, note) VALUES {values}", (id_, until))
    raw.execute("INSERT INTO wait VALUES ('t_asks', 'question', 'q_asks.1')")
    for id_, at, task in (("q_asks.1", 600, "t_asks"), ("q_cut.1", 500, "t_cut")):
        raw.execute(f"{ASKED} VALUES (?, ?, 'r_a', 'agent', 'how?', '[]', ?, 'ann', '', '', '')", (id_, task, at))
    raw.execute("INSERT INTO attempt VALUES ('t_own', 7, 'bob', 1, 2, 'released', '', '', '\"old\"')")
    raw.commit()
    raw.close()


def test_the_clock_of_an_old_run_stands_for_what_is_waited_for(tmp_path: Path) -> None:
    old_store(tmp_path / "x.db")

    async def look(store: SqliteStore) -> None:
        first, second = await store.view_run(RunId("r_a")), await store.view_run(RunId("r_b"))
        assert first is not None
        assert second is not None
        assert (first.asked, first.stands_since, first.stood, first.limit) == (1, 600, 0, None)
        assert (second.asked, second.stands_since, second.limit) == (0, None, 1000)
        waited = {question.id: question.waited for question in await store.view_questions()}
        assert waited == {"q_asks.1": True, "q_cut.1": False}, "what was asked in passing is not waited for"
        cut, own = await store.view_task(TaskId("t_cut")), await store.view_task(TaskId("t_own"))
        assert cut is not None
        assert cut.lease is not None
        assert own is not None
        assert own.lease is not None
        assert (cut.lease.deadline, cut.lease.own) == (1000, 900_100), "its run had cut it short"
        assert (own.lease.deadline, own.lease.own) == (400, None)
        (attempt,) = await store.view_attempts(TaskId("t_own"))
        assert (attempt.late, attempt.afterwards) == ('"old"', None)

    run(tmp_path / "x.db", look)
    raw = sqlite3.connect(tmp_path / "x.db")
    assert raw.execute("SELECT owner FROM timer").fetchall() == [("r_b",)]
    raw.close()
