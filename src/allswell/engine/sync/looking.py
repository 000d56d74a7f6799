"""The reading half of a watch, for code that is not async."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from allswell.domain.checkin import Agent
from allswell.domain.journal import Entry, Position
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import Attempt
from allswell.engine.sync.thread import OwnThread


class SyncLooking(OwnThread):
    """What can be looked at in an open watch."""

    def now(self) -> Millis:
        """The store's clock, in milliseconds since the epoch."""
        return self.wait_for(self._open.now())

    def task(self, task: str) -> TaskRow | None:
        """One task as it stands."""
        return self.wait_for(self._open.task(task))

    def payload(self, task: str) -> Any:  # noqa: ANN401 - whatever the submitter put in
        """What was submitted with a task; None for what is no task."""
        return self.wait_for(self._open.payload(task))

    def result(self, task: str) -> Any:  # noqa: ANN401 - whatever the holder gave
        """A finished task's result."""
        return self.wait_for(self._open.result(task))

    def tasks(self, which: TaskFilter | None = None) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return self.wait_for(self._open.tasks(which))

    def attempts(self, task: str) -> list[Attempt]:
        """How each attempt at a task ended."""
        return self.wait_for(self._open.attempts(task))

    def counts(self) -> dict[str, int]:
        """How many tasks stand where."""
        return self.wait_for(self._open.counts())

    def question(self, question: str) -> Question | None:
        """One question as it stands."""
        return self.wait_for(self._open.question(question))

    def questions(self, *, open_only: bool = True) -> list[Question]:
        """What waits for a human, the oldest first."""
        return self.wait_for(self._open.questions(open_only=open_only))

    def run(self, run: str) -> Run | None:
        """One run as it stands."""
        return self.wait_for(self._open.run(run))

    def runs(self) -> list[Run]:
        """Runs, the newest first."""
        return self.wait_for(self._open.runs())

    def agents(self) -> list[Agent]:
        """Agents that have missed check-ins."""
        return self.wait_for(self._open.agents())

    def services(self) -> list[ServiceRow]:
        """Services that something is, or was, held against."""
        return self.wait_for(self._open.services())

    def unaccounted(self) -> list[TaskId]:
        """Open tasks that nothing will ever move again. There are none: that is the promise, and this checks it."""
        return self.wait_for(self._open.unaccounted())

    def events(self, *, after: Position | None = None, follow: bool = False) -> Iterator[Entry]:
        """The journal, from the start or after a position; with `follow`, it goes on as things happen."""
        if follow:
            return self._followed(after)

        async def read() -> list[Entry]:
            return [entry async for entry in self._open.events(after=after)]

        return iter(self.wait_for(read()))

    def _followed(self, after: Position | None) -> Iterator[Entry]:
        entries = self._open.events(after=after, follow=True)

        async def following() -> Entry:
            return await anext(entries)

        while True:
            yield self.wait_for(following())

    def follow(self, name: str, handler: Callable[[Sequence[Entry]], None]) -> None:
        """Hand the journal to `handler` from where it last was, in a thread, for as long as this watch is open."""

        async def handed(entries: Sequence[Entry]) -> None:
            await asyncio.to_thread(handler, entries)

        async def begin() -> None:
            self._open.follow(name, handed)

        self.wait_for(begin())
