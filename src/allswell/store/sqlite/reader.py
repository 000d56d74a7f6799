"""The views of a store that is there, read in the caller's own thread: no event loop, no writer, nothing to wait for.

It is for those who look once and go, such as a command line, and must start fast. None of its coroutines ever
suspends, so `store.drive` can run them without an event loop.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from allswell.domain.checkin import Agent
from allswell.domain.delivery import Delivery, DeliveryFilter
from allswell.domain.journal import Entry, Position
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import QuestionId, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import Attempt
from allswell.errors import Unavailable
from allswell.store.own_clock import StoreClock
from allswell.store.sqlite import accounting, outbox, place, views
from allswell.store.sqlite.connection import connect_reader
from allswell.store.sqlite.expenses import ExpenseLooks
from allswell.store.sqlite.faults import translated
from allswell.store.sqlite.schema import NEWEST, SQL
from allswell.store.views import Agenda
from allswell.timing.clock import SystemClock

T = TypeVar("T")


class SqliteReader(ExpenseLooks):
    """A store to look at; `with` opens it. `current` is false where its schema is not this version's."""

    def __init__(self, location: str | Path, *, busy_timeout: int = 5_000) -> None:
        self.path = place.locate(location)
        self._busy_timeout = busy_timeout
        self._clock = StoreClock(SystemClock())
        self._reader: sqlite3.Connection | None = None

    def __enter__(self) -> Self:
        place.close_to_others(self.path)
        with translated(self.path, self._busy_timeout):
            self._reader = connect_reader(self.path, self._busy_timeout)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.close()

    def _look(self, look: Callable[[sqlite3.Connection], T]) -> T:
        if self._reader is None:
            raise Unavailable("the store is not open")
        with translated(self.path, self._busy_timeout):
            return look(self._reader)

    @property
    def current(self) -> bool:
        """Whether the views fit the schema; where they do not, opening the store brings it up to date or refuses."""

        def version(connection: sqlite3.Connection) -> bool:
            if connection.execute(SQL["find_meta"]).fetchone() != (1,):
                return False
            return bool(connection.execute(SQL["read_version"]).fetchone() == (NEWEST,))

        return self._look(version)

    async def _view(self, look: Callable[[sqlite3.Connection], T]) -> T:
        return self._look(look)

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        return self._look(lambda reader: views.agenda(reader, self._clock))

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """The tasks that fit, by id."""
        return self._look(lambda reader: views.tasks(reader, which))

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        return self._look(lambda reader: views.one_task(reader, task))

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        return self._look(lambda reader: views.payload(reader, task))

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, in order."""
        return self._look(lambda reader: views.attempts(reader, task))

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        return self._look(lambda reader: views.questions(reader, open_only=open_only, limit=limit))

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        return self._look(lambda reader: views.one_question(reader, question))

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        return self._look(lambda reader: views.runs(reader, limit))

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        return self._look(lambda reader: views.one_run(reader, run))

    async def view_agents(self) -> list[Agent]:
        """What is held against agents."""
        return self._look(views.agents)

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        return self._look(views.services)

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        return self._look(accounting.counts)

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks that nothing will ever move again."""
        return self._look(lambda reader: accounting.unaccounted(reader, limit))

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under keys that begin so."""
        return self._look(lambda reader: views.all_kept(reader, prefix))

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        return self._look(lambda reader: outbox.deliveries_of(reader, which))

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position."""
        return self._look(lambda reader: views.journal(reader, after, limit))

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        return self._look(lambda reader: views.cursor(reader, follower))
