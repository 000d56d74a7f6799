"""What can be looked at: of a store, of an open watch, and of a store's file that is only read.

Plain values go in and come out, so that whoever looks need not know which of them it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.expense import ExpenseRow, Spent, SpentBy
from allswell.domain.journal import Entry, Position
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import Millis, QuestionId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import Attempt
from allswell.store.outbox import OutboxViews
from allswell.store.running import RunViews


class Agenda(msgspec.Struct, frozen=True):
    """What a sweeper has to do: the store's clock, the earliest timer, and whether consequences are waiting."""

    now: Millis
    next_due: Millis | None
    spreads: bool
    stands: int = 0  # time stands still: the wall was set back by so much, and that is not settled yet


class Views(RunViews, OutboxViews, Protocol):
    """What can be looked at: committed rows only, and no view waits for writers."""

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        ...

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        ...

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        ...

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        ...

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        ...

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost, those that said so, the oldest first."""
        ...

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """The sums of what attempts have cost, told since then; without keys, of all. By `all` the key is empty."""
        ...

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        ...

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        ...

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        ...

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        ...

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        ...

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        ...

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks with no live lease and timer, not ready, no timer, and no live thing they wait for."""
        ...

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under every key that begins so."""
        ...

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order; never skips one that commits late."""
        ...

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        ...
