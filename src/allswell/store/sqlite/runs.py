"""What a transaction looks up about runs and requests, without locks; on SQLite there is nothing left to lock."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from allswell.domain.circle import asking_line
from allswell.domain.names import RunId, TaskId
from allswell.domain.run import Run
from allswell.store.sqlite import rows
from allswell.store.sqlite.schema import SQL


class RunLooks:
    """The part of a transaction that is about runs, and about who waits for whom."""

    _connection: sqlite3.Connection

    async def runs(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        """Runs as they are in this transaction."""
        found = self._connection.execute(SQL["read_run"], (rows.text(ids),)).fetchall()
        return {row[0]: Run(*row) for row in found}

    async def find_runs(self, tasks: Sequence[TaskId]) -> dict[TaskId, RunId]:
        """In which runs these tasks are."""
        return dict(self._connection.execute(SQL["find_runs"], (rows.text(tasks),)).fetchall())

    async def find_held(self, run: RunId, after: str, limit: int) -> Sequence[TaskId]:
        """Tasks of a run that somebody holds, by id."""
        found = self._connection.execute(SQL["find_held"], (run, after, limit)).fetchall()
        return [TaskId(row[0]) for row in found]

    async def find_target(self, task: TaskId) -> Sequence[str]:
        """A task's role, and who holds it."""
        found = self._connection.execute(SQL["find_target"], (task,)).fetchall()
        return [name for row in found for name in row if name is not None]

    async def find_asking(self) -> Sequence[str]:
        """Which agents wait for an answer of which; nobody else can ask before this is over."""
        found = self._connection.execute(SQL["find_asking"]).fetchall()
        return [line for row in found if (line := asking_line(rows.task(row))) is not None]
