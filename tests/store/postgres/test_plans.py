"""Every statement of a unit of work finds its rows by an index, whatever the statistics say."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from allswell.store.port import LockKind
from allswell.store.postgres import PostgresStore
from allswell.store.postgres.connection_thread import SQL
from allswell.store.postgres.read import locking
from tests.store.postgres.scene import run

_VALUE = {
    "text": "'1'",
    "text[]": "'{a,b}'",
    "bigint": "1",
    "bigint[]": "'{1,2}'",
    "tid[]": '\'{"(0,1)","(0,2)"}\'',
    "integer": "1",
    "integer[]": "'{1,2}'",
    "json": "'[]'",
}
_BY_INDEX = re.compile(r"(lock_(?!schema)|read_|update_|delete_|find_(?!spreads)|pick|count_ready|journal|marked).*")


async def nothing(store: PostgresStore) -> None:
    pass


def plans(pg_url: str, mode: str) -> Iterator[tuple[str, list[str]]]:
    """How the server would go about every statement that must stay on its indexes."""
    with psycopg.connect(pg_url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(SQL["set_up"], ("10000", "10000", "10000", "on"))
        connection.execute(f"SET plan_cache_mode = {mode}")
        locks = {f"lock_{kind}": locking(kind, ())[0] for kind in LockKind}
        for name, query in (*SQL.items(), *locks.items()):
            if not _BY_INDEX.fullmatch(name):
                continue
            types = dict(re.findall(r"\$(\d)::(\w+(?:\[\])?)", query))
            values = f"({', '.join(_VALUE[types[number]] for number in sorted(types))})" if types else ""
            connection.execute(f"PREPARE {name} AS {query}", prepare=False)
            rows = connection.execute(f"EXPLAIN EXECUTE {name}{values}", prepare=False).fetchall()
            yield name, [row[0] for row in rows]


@pytest.mark.parametrize("generic", ["force_generic_plan", "force_custom_plan"])
def test_no_statement_walks_a_whole_table(pg_url: str, generic: str) -> None:
    run(pg_url, nothing)
    walking = {}
    for name, lines in plans(pg_url, generic):
        plan = "\n".join(lines)
        if "Seq Scan" in plan or "Hash" in plan or "Merge Join" in plan:
            walking[name] = plan
    assert walking == {}


COMING_AND_GOING = ("ready", "timer", "waits", "lease", "bar")
_FILL = """
INSERT INTO allswell.ready SELECT 't' || n, 1, n FROM generate_series(1, 5000) AS n;
INSERT INTO allswell.timer SELECT 't' || n, n FROM generate_series(1, 5000) AS n;
INSERT INTO allswell.waits SELECT 't' || n, 'need', 'u' || n FROM generate_series(1, 5000) AS n;
INSERT INTO allswell.bar SELECT 't' || n, 'a' FROM generate_series(1, 5000) AS n;
INSERT INTO allswell.lease (task, token, agent, granted_at, deadline, ask_every, ask_wait, grace, command, judged,
                            renewed_at, note, due_at)
SELECT 't' || n, 1, 'a', 1, 1, 1, 1, 1, '', 0, 1, '', n FROM generate_series(1, 5000) AS n;
"""


def test_a_table_that_a_vacuum_found_empty_is_still_looked_up_by_key(pg_url: str) -> None:
    """The planner takes it for one row, and would walk all of it for each row given: 500 took 165 ms (seen)."""
    run(pg_url, nothing)
    with psycopg.connect(pg_url, autocommit=True) as connection:
        connection.execute(_FILL.encode())
        for table in COMING_AND_GOING:
            connection.execute(f"DELETE FROM allswell.{table}".encode())  # noqa: S608 - our own names
            connection.execute(f"VACUUM (TRUNCATE OFF) allswell.{table}".encode())
    walking = {}
    for name, plan in plans(pg_url, "force_generic_plan"):
        whole = [
            line
            for line, after in zip(plan, [*plan[1:], ""], strict=True)
            if ("Index" in line and "Scan" in line and "Index Cond" not in after) or "Join Filter" in line
        ]
        if whole:
            walking[name] = whole
        if name == "delete_ready":
            (found,) = (line for line in plan if "Index Cond" in line)
            assert all(f"({column} = " in found for column in ("lane", "rank", "task")), "by its whole key"
    assert walking == {}
