"""Every statement of a unit of work finds its rows by an index, whatever the statistics say."""

from __future__ import annotations

import re

import psycopg
import pytest

from allswell.store.postgres import PostgresStore
from allswell.store.postgres.session import SQL
from tests.store.postgres.scene import run

_VALUE = {
    "text": "''",
    "text[]": "'{a,b}'",
    "bigint": "1",
    "bigint[]": "'{1,2}'",
    "integer": "1",
    "integer[]": "'{1,2}'",
    "json": "'[]'",
}
_BY_INDEX = re.compile(r"(lock_(?!schema)|read_|update_|delete_|find_(?!spreads)|pick|count_ready|journal|marked).*")


async def nothing(store: PostgresStore) -> None:
    pass


@pytest.mark.parametrize("generic", ["force_generic_plan", "force_custom_plan"])
def test_no_statement_walks_a_whole_table(pg_url: str, generic: str) -> None:
    run(pg_url, nothing)
    walking = {}
    with psycopg.connect(pg_url, cursor_factory=psycopg.RawCursor) as connection:
        connection.execute(SQL["set_up"], ("10000", "10000", "10000", "on"))
        connection.execute(f"SET plan_cache_mode = {generic}")
        for name, query in SQL.items():
            if not _BY_INDEX.fullmatch(name):
                continue
            types = dict(re.findall(r"\$(\d)::(\w+(?:\[\])?)", query))
            values = ", ".join(_VALUE[types[number]] for number in sorted(types))
            connection.execute(f"PREPARE {name} AS {query}", prepare=False)
            rows = connection.execute(f"EXPLAIN EXECUTE {name}({values})", prepare=False).fetchall()
            plan = "\n".join(row[0] for row in rows)
            if "Seq Scan" in plan or "Hash" in plan or "Merge Join" in plan:
                walking[name] = plan
    assert walking == {}
