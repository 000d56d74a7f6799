"""What can be looked at: of a store, of an open watch, and of a store's file that is only read.

Plain values go in and come out, so that whoever looks need not know which of them it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import msgspec

from allswell.domain.agents.cost import ExpenseRow, Spent, SpentBy
from allswell.domain.ids import Millis, QuestionId, RunId, TaskId
from allswell.domain.lease.model import Agent
from allswell.domain.notify.delivery import Delivery, DeliveryFilter
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, TaskFilter, TaskRow

# The part of a store that keeps what sinks still have to deliver. Plain rows: what becomes of them, others decide.


class OutboxViews(Protocol):
    """The part that shows it."""

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        ...


class Outbox(OutboxViews, Protocol):
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


class RunViews(Protocol):
    """The part of a store that shows single runs."""

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        ...


class Agenda(msgspec.Struct, frozen=True):
    """What a sweeper has to do: the store's clock, the earliest timer, and whether consequences are waiting."""

    now: Millis
    next_due: Millis | None
    spreads: bool
    stands: int = 0  # time stands still: the wall was set back by so much, and that is not settled yet
    spread: str = ""  # the oldest of the consequences that wait: the id of the task or run that has ended


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

    async def view_cursors(self) -> dict[str, Position]:
        """Every follower that has ever got anywhere, and where."""
        ...

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        ...
