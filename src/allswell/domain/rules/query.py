"""What can be looked at, as values: a query has its fields, and its type says what it is answered with.

As with commands, a layer that carries a query (a key's gate, a server, a store that fails on demand) need not know
which one it is: `view(query)` is one method. Each store has a table of what it does for each type (`store/views.py`
says what holds for all of them), and `domain/access/rights.py` one of who may look. `QUERIES` has the names by which
they travel.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Generic, TypeVar, get_args

import msgspec

from allswell.domain.agents.cost import ExpenseRow, Spent, SpentBy
from allswell.domain.ids import Millis, QuestionId, RunId, TaskId
from allswell.domain.lease.model import Agent, AgentRecord
from allswell.domain.notify.delivery import Delivery, DeliveryFilter
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, TaskFilter, TaskRow

T = TypeVar("T")


class SweepAgenda(msgspec.Struct, frozen=True):
    """What a sweeper has to do: the store's clock, the earliest timer, and whether consequences are waiting."""

    now: Millis
    next_due: Millis | None
    spreads: bool
    stands: int = 0  # time stands still: the wall was set back by so much, and that is not settled yet
    spread: str = ""  # the oldest of the consequences that wait: the id of the task or run that has ended


class Query(msgspec.Struct, Generic[T], frozen=True):
    """A look at committed rows, answered with a `T`."""


class ViewAgenda(Query[SweepAgenda], frozen=True):
    """What a sweeper has to do, and when."""


class ViewServices(Query[dict[str, ServiceRow]], frozen=True):
    """The services that something is or was held against."""


class ViewTask(Query[TaskRow | None], frozen=True):
    """One task."""

    task: TaskId


class ViewPayload(Query[tuple[str | None, str | None]], frozen=True):
    """A task's payload and result; neither if there is no such task."""

    task: TaskId


class ViewExpenses(Query[list[ExpenseRow]], frozen=True):
    """What the attempts at a task have cost, those that said so, the oldest first."""

    task: TaskId


class ViewSpent(Query[dict[str, Spent]], frozen=True):
    """The sums of what attempts have cost, as reported since then; without keys, of all. By `all` the key is empty."""

    by: SpentBy
    keys: Sequence[str] = ()
    since: int = 0


class ViewAttempts(Query[list[Attempt]], frozen=True):
    """A task's ended attempts, the oldest first."""

    task: TaskId


class ViewQuestion(Query[Question | None], frozen=True):
    """One question."""

    question: QuestionId


class ViewRun(Query[Run | None], frozen=True):
    """One run."""

    run: RunId


class ViewTasks(Query[list[TaskRow]], frozen=True):
    """Tasks by id, a page at a time."""

    which: TaskFilter


class ViewQuestions(Query[list[Question]], frozen=True):
    """Questions, the oldest first."""

    open_only: bool = True
    limit: int = 1_000


class ViewRuns(Query[list[Run]], frozen=True):
    """Runs, the newest first."""

    limit: int = 1_000


class ViewAgents(Query[list[Agent]], frozen=True):
    """Agents that something is held against."""


class ViewHealth(Query[dict[str, AgentRecord]], frozen=True):
    """What requests say of agents, by their names in the settings."""


class ViewCounts(Query[dict[str, int]], frozen=True):
    """How many tasks stand in each derived state."""


class ViewOrphans(Query[list[TaskId]], frozen=True):
    """Open tasks with no live lease and timer, not ready, no timer, and no live thing they wait for."""

    limit: int = 100


class ViewKept(Query[dict[str, str]], frozen=True):
    """What the watch keeps about itself under every key that begins so."""

    prefix: str


class ViewDeliveries(Query[list[Delivery]], frozen=True):
    """What is still to be delivered or was given up, in its order."""

    which: DeliveryFilter


class ViewResults(Query[list[tuple[TaskId, str]]], frozen=True):
    """The results of a run's tasks of one role that are done, by id, a page at a time after an id."""

    run: RunId
    role: str
    after: str
    limit: int


class ViewCursors(Query[dict[str, Position]], frozen=True):
    """Every follower that has ever got anywhere, and where."""


class ViewJournal(Query[list[Entry]], frozen=True):
    """Events after a position in the journal's order; never skips one that commits late."""

    after: Position
    limit: int


class ViewCursor(Query[Position], frozen=True):
    """Where a follower has got to."""

    follower: str


class ViewValue(Query[str | None], frozen=True):
    """What the watch keeps about itself under a key."""

    key: str


QUERIES: Mapping[str, type[Query[Any]]] = {
    "view_agenda": ViewAgenda,
    "view_services": ViewServices,
    "view_task": ViewTask,
    "view_payload": ViewPayload,
    "view_expenses": ViewExpenses,
    "view_spent": ViewSpent,
    "view_attempts": ViewAttempts,
    "view_question": ViewQuestion,
    "view_run": ViewRun,
    "view_tasks": ViewTasks,
    "view_questions": ViewQuestions,
    "view_runs": ViewRuns,
    "view_agents": ViewAgents,
    "view_health": ViewHealth,
    "view_counts": ViewCounts,
    "view_unaccounted": ViewOrphans,
    "view_kept": ViewKept,
    "view_deliveries": ViewDeliveries,
    "view_results": ViewResults,
    "view_cursors": ViewCursors,
    "journal": ViewJournal,
    "cursor": ViewCursor,
    "recall": ViewValue,
}
"""Every query, by the name under which it travels."""
NAME_OF: Mapping[type[Query[Any]], str] = {kind: name for name, kind in QUERIES.items()}


def answer_of(kind: type[Query[T]]) -> type[T]:
    """What a query of this type is answered with."""
    (base,) = kind.__orig_bases__  # type: ignore[attr-defined]
    (answer,) = get_args(base)
    return answer  # type: ignore[no-any-return]
