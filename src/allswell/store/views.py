"""What can be looked at: of a store, of an open watch, and of a store's file that is only read.

A look is a query, a value (`domain/rules/query.py`): whoever implements `Views` writes `view` and nothing else. The
other methods are the same queries as calls, for those who look.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol, TypeVar

from allswell.domain.agents.cost import ExpenseRow, Spent, SpentBy
from allswell.domain.ids import QuestionId, RunId, TaskId
from allswell.domain.lease.model import Agent, AgentRecord
from allswell.domain.notify.delivery import Delivery, DeliveryFilter
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.rules.query import (
    Query,
    SweepAgenda,
    ViewAgenda,
    ViewAgents,
    ViewAttempts,
    ViewCounts,
    ViewCursor,
    ViewCursors,
    ViewDeliveries,
    ViewExpenses,
    ViewHealth,
    ViewJournal,
    ViewKept,
    ViewOrphans,
    ViewPayload,
    ViewQuestion,
    ViewQuestions,
    ViewResults,
    ViewRun,
    ViewRuns,
    ViewServices,
    ViewSpent,
    ViewTask,
    ViewTasks,
    ViewValue,
)
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, TaskFilter, TaskRow

T = TypeVar("T")

# What a store tells of runs beside their rows: which run a task is in, who holds what in it, and how it stands.


class RunHints(Protocol):
    """The part of a unit of work that looks at runs without locks."""

    async def runs(self, ids: Sequence[RunId]) -> dict[RunId, Run]:
        """Runs as they were last committed, or as written by this transaction. Also after a pick: nothing waits."""
        ...

    async def find_runs(self, tasks: Sequence[TaskId]) -> dict[TaskId, RunId]:
        """In which runs these tasks are. That never changes; those that are in none are missing."""
        ...

    async def find_held(self, run: RunId, after: str, limit: int) -> Sequence[TaskId]:
        """Tasks of a run that somebody holds, by id, for a walk over all of them."""
        ...


class Views(Protocol):
    """What can be looked at: committed rows only, and no look waits for writers."""

    async def view(self, query: Query[T]) -> T:
        """The answer to a query."""
        ...

    async def view_agenda(self) -> SweepAgenda:
        """What a sweeper has to do, and when."""
        return await self.view(ViewAgenda())

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        return await self.view(ViewTasks(which))

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        return await self.view(ViewTask(task))

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result; neither if there is no such task."""
        return await self.view(ViewPayload(task))

    async def view_results(self, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
        """The results of a run's tasks of one role that are done, by id, a page at a time after an id."""
        return await self.view(ViewResults(run, role, after, limit))

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        return await self.view(ViewAttempts(task))

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost, those that said so, the oldest first."""
        return await self.view(ViewExpenses(task))

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """The sums of what attempts have cost, told since then; without keys, of all. By `all` the key is empty."""
        return await self.view(ViewSpent(by, keys, since))

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        return await self.view(ViewQuestions(open_only, limit))

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        return await self.view(ViewQuestion(question))

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        return await self.view(ViewRuns(limit))

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        return await self.view(ViewRun(run))

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        return await self.view(ViewAgents())

    async def view_health(self) -> dict[str, AgentRecord]:
        """What requests say of agents, by their names in the settings."""
        return await self.view(ViewHealth())

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        return await self.view(ViewServices())

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        return await self.view(ViewCounts())

    async def view_orphans(self, limit: int = 100) -> list[TaskId]:
        """Open tasks with no live lease and timer, not ready, no timer, and no live thing they wait for."""
        return await self.view(ViewOrphans(limit))

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under every key that begins so."""
        return await self.view(ViewKept(prefix))

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        return await self.view(ViewDeliveries(which))

    async def view_cursors(self) -> dict[str, Position]:
        """Every follower that has ever got anywhere, and where."""
        return await self.view(ViewCursors())

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order; never skips one that commits late."""
        return await self.view(ViewJournal(after, limit))

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        return await self.view(ViewCursor(follower))

    async def get(self, key: str) -> str | None:
        """What the watch keeps about itself under a key."""
        return await self.view(ViewValue(key))


# The part of a store that keeps what sinks still have to deliver. Plain rows: what becomes of them, others decide.


class Outbox(Views, Protocol):
    """Deliveries, beside the cursors of those who make them."""

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """Keep new deliveries, move a follower's cursor and keep its memory: all of it or nothing.

        False, and nothing is changed, if the cursor is not where the follower believes it is (`after`): somebody else
        follows in its name, or an answer was lost. So no event is taken in twice. The memory is a word under
        `memory_key(follower)`; an empty one leaves that as it was.
        """
        ...

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower: its cursor, what its sink still had to deliver, and every word under its name."""
        ...

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone; what is not there any more stays away."""
        ...
