"""The reading half of a watch: what can be looked at, and what tells that it is worth looking again.

Everything here is plain values; nothing is changed, and nobody waits for writers.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.journal import Entry, Position
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, QuestionId, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import Attempt, State
from allswell.engine.backend import Backend
from allswell.engine.follow import events, follow
from allswell.engine.signal import Bell
from allswell.store.outbox import Outbox
from allswell.store.views import Views


class Looking:
    """What can be looked at in an open watch."""

    def __init__(self, engine: Backend) -> None:
        self._engine = engine

    @property
    def views(self) -> Views:
        """Everything that can be looked at, as the command line and the explanations read it."""
        return self._engine.store

    @property
    def outbox(self) -> Outbox:
        """What sinks have to deliver: for those who deliver it, and those who look after them."""
        return self._engine.store

    async def now(self) -> Millis:
        """The store's clock, in milliseconds since the epoch."""
        return (await self._engine.store.view_agenda()).now

    async def task(self, task: str) -> TaskRow | None:
        """One task as it stands."""
        return await self._engine.store.view_task(TaskId(task))

    async def payload(self, task: str) -> Any:  # noqa: ANN401 - whatever the submitter put in
        """What was submitted with a task; None for what is no task."""
        payload, _ = await self._engine.store.view_payload(TaskId(task))
        return None if payload is None else msgspec.json.decode(payload)

    async def result(self, task: str) -> Any:  # noqa: ANN401 - whatever the holder gave
        """The result of a task that is done; what its holder says before that was verified is none yet."""
        _, result = await self._engine.store.view_payload(TaskId(task))
        row = None if result is None else await self._engine.store.view_task(TaskId(task))
        return None if result is None or row is None or row.task.state != State.DONE else msgspec.json.decode(result)

    async def tasks(self, which: TaskFilter | None = None) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return await self._engine.store.view_tasks(which or TaskFilter())

    async def attempts(self, task: str) -> list[Attempt]:
        """How each attempt at a task ended."""
        return await self._engine.store.view_attempts(TaskId(task))

    async def counts(self) -> dict[str, int]:
        """How many tasks stand where."""
        return await self._engine.store.view_counts()

    async def question(self, question: str) -> Question | None:
        """One question as it stands."""
        return await self._engine.store.view_question(QuestionId(question))

    async def questions(self, *, open_only: bool = True) -> list[Question]:
        """What waits for a human, the oldest first."""
        return await self._engine.store.view_questions(open_only=open_only)

    async def run(self, run: str) -> Run | None:
        """One run as it stands."""
        return await self._engine.store.view_run(RunId(run))

    async def runs(self) -> list[Run]:
        """Runs, the newest first."""
        return await self._engine.store.view_runs()

    async def agents(self) -> list[Agent]:
        """Agents that have missed check-ins."""
        return [agent for agent in await self._engine.store.view_agents() if not agent.standing]

    async def services(self) -> list[ServiceRow]:
        """Services that something is, or was, held against."""
        return list((await self._engine.store.view_services()).values())

    async def unaccounted(self) -> list[TaskId]:
        """Open tasks that nothing will ever move again. There are none: that is the promise, and this checks it."""
        return await self._engine.store.view_unaccounted()

    def events(self, *, after: Position | None = None, follow: bool = False) -> AsyncIterator[Entry]:
        """The journal, from the start or after a position; with `follow`, it goes on as things happen."""
        return events(self._engine, after or Position(), follow=follow)

    def follow(self, name: str, handler: Callable[[Sequence[Entry]], Awaitable[None]]) -> None:
        """Hand the journal to `handler` from where it last was, for as long as this watch is open."""
        self._engine.start(follow(self._engine, name, handler), name=f"follower {name}")

    # --- when to look again: listen first, then look, then wait, and no call is lost ----------------------------------

    def on_ready(self) -> Bell:
        """What rings when a task may have become ready. It is a hint: whoever waits for it also looks by itself."""
        return self._engine.ready.listen()

    def on_event(self) -> Bell:
        """What rings when the journal may have grown. It is a hint, as `on_ready` is."""
        return self._engine.journal.listen()
