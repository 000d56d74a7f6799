"""A watch from before clocks could stand: what was asked in it stops the clock of its run all the same."""

from __future__ import annotations

import asyncio

import psycopg

from allswell.domain.names import RunId, TaskId
from allswell.store.postgres.schema import MIGRATIONS
from allswell.store.postgres.session import SQL
from tests.store.postgres.scene import opened

BEFORE = 5
"""The last migration of that time."""
ROWS = """
INSERT INTO allswell.run VALUES ('r_a', 'build', 0, 1000, NULL, '', ''), ('r_b', 'build', 0, 1000, NULL, '', '');
INSERT INTO allswell.timer VALUES ('r_a', 1000), ('r_b', 1000);
INSERT INTO allswell.task (id, name, run, role, lane, priority, state, created_at, spec, record, payload, rank)
SELECT id, id, 'r_a', '', 1, 0, 'open', 0, spec, '{}', 'null', 0
FROM (VALUES ('t_asks', '{}'), ('t_cut', '{}'), ('t_own', '{"policy":{"timeout":300},"limit_at":1000}')) AS x(id, spec);
INSERT INTO allswell.lease (task, token, agent, granted_at, deadline, ask_every, ask_wait, grace, command, judged,
                            renewed_at, note)
SELECT id, 1, 'ann', 100, until, 5000, 500, 10, '', 0, 100, ''
FROM (VALUES ('t_cut', 1000), ('t_own', 400)) AS x(id, until);
INSERT INTO allswell.waits VALUES ('t_asks', 'question', 'q_asks.1');
INSERT INTO allswell.question (id, task, run, kind, text, options, asked_at, asked_by, answer, answered_by, command)
SELECT id, task, 'r_a', 'agent', 'how?', '[]', at, 'ann', '', '', ''
FROM (VALUES ('q_asks.1', 't_asks', 600), ('q_cut.1', 't_cut', 500)) AS x(id, task, at);
INSERT INTO allswell.attempt VALUES ('t_own', 7, 'bob', 1, 2, 'released', '', '', '"old"');
"""


def test_the_clock_of_an_old_run_stands_for_what_is_waited_for(pg_url: str) -> None:
    with psycopg.connect(pg_url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(SQL["create_schema"])
        connection.execute(SQL["create_meta"])
        for number, text in MIGRATIONS[:BEFORE]:
            connection.execute(text, prepare=False)
            connection.execute(SQL["set_schema_version"], (str(number),))
        connection.execute(ROWS, prepare=False)

    async def main() -> None:
        async with opened(pg_url) as store:
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

    asyncio.run(main())
    with psycopg.connect(pg_url) as connection:
        assert connection.execute("SELECT owner FROM allswell.timer").fetchall() == [("r_b",)]
