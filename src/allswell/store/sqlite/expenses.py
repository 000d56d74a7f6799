"""What attempts have cost, in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from typing import TypeVar

from allswell.domain.expense import ExpenseRow, Spent, SpentBy
from allswell.domain.names import TaskId
from allswell.store.sqlite import rows
from allswell.store.sqlite.schema import SQL

T = TypeVar("T")


def expenses(connection: sqlite3.Connection, task: TaskId) -> list[ExpenseRow]:
    """What the attempts at a task have cost."""
    return [ExpenseRow(*row) for row in connection.execute(SQL["read_expense"], (rows.text([task]),)).fetchall()]


def spent(connection: sqlite3.Connection, by: SpentBy, keys: Sequence[str], since: int) -> dict[str, Spent]:
    """The sums of what attempts have cost."""
    column = "''" if by == "all" else by
    statement = SQL["view_spent" if keys else "view_all_spent"].format(column=column)
    values = (rows.text(list(keys)), since) if keys else (since,)
    return {row[0]: Spent(*row[1:]) for row in connection.execute(statement, values).fetchall()}


class ExpenseLooks:
    """The part of a store that shows what attempts have cost."""

    async def _view(self, look: Callable[[sqlite3.Connection], T]) -> T:
        raise NotImplementedError  # the store's own

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost."""
        return await self._view(lambda reader: expenses(reader, task))

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """The sums of what attempts have cost."""
        return await self._view(lambda reader: spent(reader, by, keys, since))
