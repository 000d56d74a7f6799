"""Many rows in few statements.

Python gives the interpreter lock away at every step of a statement, and beside a busy event loop it may wait some
milliseconds to get it back: a hundred rows must not be a hundred steps. So `VALUES (?, ?)` is widened to as many rows
as there are, in powers of two, so that few statements need to be prepared. And what is decided together is much alike:
leases that were claimed together and are renewed together differ in nothing but their task. Those whose values are all
the same are made and changed by one statement, to which their tasks are given as a list.
"""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Sequence
from functools import cache
from itertools import chain, groupby
from operator import itemgetter

from allswell.store.sqlite.rows import Row, text
from allswell.store.sqlite.schema import SQL

MOST = 64
"""Rows in one statement; seventeen columns of them stay far below SQLite's limit on parameters."""
FEW = 4
"""So many rows at most are changed one by one, though they are alike: reading a list costs something too."""
_ABSENT = r"NULLIF\(\?, (?:-1|'')\)"
_VALUES = re.compile(rf"VALUES (\((?:[?,\s]|{_ABSENT}|coalesce\({_ABSENT}, '[^']*'\))+\))")
_TASK = re.compile(r"\b(task|id) = \?$")
_TASK_VALUE = re.compile(r"VALUES \((.*), \?\)$", re.DOTALL)
_values_of, _task_of = itemgetter(0), itemgetter(1)


def insert(connection: sqlite3.Connection, name: str, given: list[Row]) -> None:
    """Insert rows by a statement that is written for one."""
    if len(given) == 1:
        connection.execute(SQL[name], given[0])
        return
    start, left = 0, len(given)
    while left:
        size = min(MOST, 1 << (left.bit_length() - 1))
        connection.execute(_widened(name, size), list(chain.from_iterable(given[start : start + size])))
        start += size
        left -= size


def change(connection: sqlite3.Connection, name: str, given: Sequence[tuple[Row, str]]) -> int:
    """Change or delete rows by a statement that is written for one and ends with its task; how many there were.

    Each is given as the values of all other parameters, and its task.
    """
    if len(given) == 1:
        ((values, task),) = given
        return connection.execute(SQL[name], (*values, task)).rowcount
    if len(given) <= FEW:
        return connection.executemany(SQL[name], [(*values, task) for values, task in given]).rowcount
    singles, lists = _alike(given)
    changed = sum([connection.execute(_listed(name), row).rowcount for row in lists])
    if singles:
        changed += connection.executemany(SQL[name], singles).rowcount
    return changed


def insert_alike(connection: sqlite3.Connection, name: str, given: Sequence[tuple[Row, str]]) -> None:
    """Insert rows, given as to `change`, by a statement that is written for one and ends with its task."""
    if len(given) <= FEW:
        insert(connection, name, [(*values, task) for values, task in given])
        return
    singles, lists = _alike(given)
    for row in lists:
        connection.execute(_selected(name), row)
    insert(connection, name, singles)


def _alike(given: Sequence[tuple[Row, str]]) -> tuple[list[Row], list[Row]]:
    """Rows that go one by one, and rows whose last value is a list of tasks; what is alike was decided in a row."""
    singles: list[Row] = []
    lists: list[Row] = []
    for values, group in groupby(given, _values_of):
        tasks = [*map(_task_of, group)]
        if len(tasks) <= FEW:
            singles += [(*values, task) for task in tasks]
        else:
            lists.append((*values, text(tasks)))
    return singles, lists


@cache
def _listed(name: str) -> str:
    return _TASK.sub(r"\1 IN (SELECT value FROM json_each(?))", SQL[name])


@cache
def _selected(name: str) -> str:
    return _TASK_VALUE.sub(r"SELECT \1, value FROM json_each(?)", SQL[name])


@cache
def _widened(name: str, size: int) -> str:
    return _VALUES.sub(lambda one: f"VALUES {', '.join([one[1]] * size)}", SQL[name])
