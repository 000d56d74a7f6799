"""Finished tasks put in by SQL: what each contestant's own worker leaves behind for one that succeeded.

The statements are in `finished.sql`, each under the name of who it is for; they run in their order.
"""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path

_NAMED = re.compile(r"^-- name: (\w+) \w+$", re.MULTILINE)


def statements(name: str) -> list[str]:
    """Those of one contestant."""
    parts = _NAMED.split((Path(__file__).parent / "finished.sql").read_text())
    return [text.strip() for whose, text in zip(parts[1::2], parts[2::2], strict=True) if whose == name]


def texts(name: str, count: int, *, after: int = 0, lite: bool = False) -> list[str]:
    """The statements for so many tasks: {n} counts them, going on after a number; {ms} is the present moment."""
    numbers = f"generate_series({after + 1}, {after + count}) AS n"
    if lite:
        counting = (
            f"WITH RECURSIVE s(n) AS (SELECT {after + 1} UNION ALL SELECT n + 1 FROM s WHERE n < {after + count})"  # noqa: S608
        )
        numbers = f"({counting} SELECT n FROM s) AS s"  # noqa: S608
    pieces = {
        "{n}": numbers,
        "{ms}": str(time.time_ns() // 1_000_000),
        "{schema}": "" if lite else "allswell.",
        # Our journal on SQLite is numbered by hand: a row has the number of its last event.
        "{numbered}": "last, " if lite else "",
        "{number}": "(SELECT coalesce(max(last), 0) FROM journal) + 3 * n, " if lite else "",
        # Ids of ours begin with the time: these are older than any that come.
        "{id}": "'t_0' || printf('%015d', n)" if lite else "'t_0' || lpad(n::text, 15, '0')",
    }
    found = statements(name)
    for mark, text in pieces.items():
        found = [one.replace(mark, text) for one in found]
    return found


def execute(place: str, name: str, count: int, *, after: int = 0) -> None:
    """Put in so many finished tasks of one contestant, beside as many as were put in before."""
    if place.startswith("sqlite"):
        database = sqlite3.connect(place.removeprefix("sqlite:///"), timeout=60)
        with database:
            for text in texts(name, count, after=after, lite=True):
                database.execute(text)
        database.close()
        return
    import psycopg

    with psycopg.connect(place, autocommit=True) as server:
        for text in texts(name, count, after=after):
            server.execute(text)
        server.execute("VACUUM (ANALYZE)")
