"""Many rows in few statements.

Python gives the interpreter lock away at every step of a statement, and beside a busy event loop it may wait some
milliseconds to get it back: a hundred rows must not be a hundred steps. So `VALUES (?, ?)` is widened to as many rows
as there are, in powers of two, so that few statements need to be prepared.
"""

from __future__ import annotations

import re
import sqlite3
from functools import cache
from itertools import chain

from allswell.store.sqlite.rows import Row
from allswell.store.sqlite.schema import SQL

MOST = 64
"""Rows in one statement; seventeen columns of them stay far below SQLite's limit on parameters."""
_VALUES = re.compile(r"VALUES (\((?:[?,\s]|NULLIF\(\?, (?:-1|'')\))+\))")


def insert(connection: sqlite3.Connection, name: str, given: list[Row]) -> None:
    """Insert rows by a statement that is written for one."""
    start, left = 0, len(given)
    while left:
        size = min(MOST, 1 << (left.bit_length() - 1))
        connection.execute(_widened(name, size), list(chain.from_iterable(given[start : start + size])))
        start += size
        left -= size


@cache
def _widened(name: str, size: int) -> str:
    return _VALUES.sub(lambda one: f"VALUES {', '.join([one[1]] * size)}", SQL[name])
