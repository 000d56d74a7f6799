"""What can be looked at without a transaction: committed rows only, and nobody is waited for."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from heapq import nlargest, nsmallest
from typing import TYPE_CHECKING

from allswell.domain.checkin import Agent
from allswell.domain.delivery import Delivery, DeliveryFilter, memory_key
from allswell.domain.expense import ExpenseRow, Spent, SpentBy, together
from allswell.domain.journal import Entry, Position
from allswell.domain.listing import LAST, TaskFilter, TaskRow, folded
from allswell.domain.names import QuestionId, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import OPEN, Attempt, State, Task
from allswell.store.views import Agenda

if TYPE_CHECKING:
    from allswell.store.memory.database import Database


class MemoryViews:
    """The reading half of the memory store, with the journal and its followers' cursors."""

    database: Database

    async def give_way(self, statement: str) -> None:
        """What every statement begins with."""
        raise NotImplementedError

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        await self.give_way("view_agenda")
        tables = self.database.tables
        first = tables.timer_order[0][0] if tables.timer_order else None
        now, stands = self.database.see()
        return Agenda(now, first, bool(tables.spreads), stands)

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        await self.give_way("view_tasks")
        tables = self.database.tables
        among: Collection[TaskId] = tables.open_tasks if which.open else tables.tasks
        if which.states == ("held",):
            among = tables.leases  # few, however many tasks there are
        elif which.open and which.run is not None:
            among = tables.open_by_run.get(which.run, {})
        if which.ids is not None:
            among = dict.fromkeys(id_ for id_ in which.ids if id_ in among)
        if which.newest:
            older = (id_ for id_ in among if id_ < (which.after or LAST) and self._fits(id_, which))
            return [self._row(id_) for id_ in nlargest(which.limit, older)]
        fitting = (id_ for id_ in among if id_ > which.after and self._fits(id_, which))
        return [self._row(id_) for id_ in nsmallest(which.limit, fitting)]

    def _fits(self, id_: TaskId, which: TaskFilter) -> bool:
        tables = self.database.tables
        task = tables.tasks[id_]
        return (
            (which.open is None or which.open == (task.state == OPEN))
            and (which.run is None or which.run == task.run)
            and (which.name is None or which.name == task.name)
            and (which.role is None or which.role == task.role)
            and (not which.states or tables.stands(id_) in which.states)
            and (not which.text or folded(which.text) in folded(self._called(task)))
        )

    def _called(self, task: Task) -> str:
        """What a task is known by, for finding it by a text."""
        lease = self.database.tables.leases.get(task.id)
        return "\n".join((task.name, task.id, task.role, "" if lease is None else lease.agent))

    def _row(self, id_: TaskId) -> TaskRow:
        tables = self.database.tables
        return TaskRow(
            tables.tasks[id_],
            tables.leases.get(id_),
            id_ in tables.ready,
            tables.timers.get(id_),
            tables.waits.get(id_, ()),
        )

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        await self.give_way("view_task")
        return self._row(task) if task in self.database.tables.tasks else None

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        await self.give_way("view_payload")
        tables = self.database.tables
        return tables.payloads.get(task), tables.results.get(task)

    async def view_results(self, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
        """The results of a run's tasks of one role that are done."""
        await self.give_way("view_results")
        tables = self.database.tables
        done = (
            task.id
            for task in tables.tasks.values()
            if task.run == run and task.role == role and task.state == State.DONE and task.id > after
        )
        return [(id_, tables.results.get(id_, "null")) for id_ in nsmallest(limit, done)]

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        await self.give_way("view_attempts")
        tables = self.database.tables
        return [tables.attempts[(task, token)] for token in tables.attempts_of.get(task, ())]

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost."""
        await self.give_way("view_expenses")
        return list(self.database.tables.expenses.get(task, ()))

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """The sums of what attempts have cost."""
        await self.give_way("view_spent")
        found: dict[str, list[ExpenseRow]] = {}
        for row in (row for told in self.database.tables.expenses.values() for row in told):
            key = "" if by == "all" else getattr(row, by)
            if key is not None and row.told_at >= since and (not keys or key in keys):
                found.setdefault(key, []).append(row)
        return {key: together(rows) for key, rows in found.items()}

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        await self.give_way("view_questions")
        questions = self.database.tables.questions.values()
        found = [question for question in questions if not open_only or question.closed_at is None]
        return nsmallest(limit, found, key=lambda question: (question.asked_at, question.id))

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        await self.give_way("view_question")
        return self.database.tables.questions.get(question)

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        await self.give_way("view_runs")
        runs = self.database.tables.runs.values()
        return sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True)[:limit]

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        await self.give_way("view_run")
        return self.database.tables.runs.get(run)

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        await self.give_way("view_agents")
        return sorted(self.database.tables.agents.values(), key=lambda agent: agent.id)

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        await self.give_way("view_services")
        return dict(self.database.tables.services)

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        await self.give_way("view_counts")
        counts: dict[str, int] = {}
        for id_ in self.database.tables.tasks:
            stands = str(self.database.tables.stands(id_))
            counts[stands] = counts.get(stands, 0) + 1
        return counts

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks that would hang silently; kept up to date with every commit, so this costs nothing."""
        await self.give_way("view_unaccounted")
        return self.unaccounted(limit)

    def unaccounted(self, limit: int = 100) -> list[TaskId]:
        """The same at once, for a hook that cannot wait."""
        return nsmallest(limit, self.database.tables.unaccounted)

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order; never skips one that commits late."""
        await self.give_way("journal")
        return self.database.journal(after, limit)

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        await self.give_way("cursor")
        return self.database.cursors.get(follower, Position())

    async def view_cursors(self) -> dict[str, Position]:
        """Where every follower has got to."""
        await self.give_way("view_cursors")
        return dict(self.database.cursors)

    async def advance(self, follower: str, position: Position) -> None:
        """Note where a follower has got to; never backwards."""
        await self.give_way("advance")
        self.database.cursors[follower] = max(position, self.database.cursors.get(follower, Position()))

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """Keep new deliveries, move a follower's cursor and keep its memory: all of it or nothing."""
        await self.give_way("enlist")
        base = self.database
        if base.cursors.get(follower, Position()) != after:
            return False
        base.cursors[follower] = max(upto, after)
        base.deliveries |= {(one.sink, one.place): one for one in deliveries}
        if memory:
            base.kept[memory_key(follower)] = memory
        return True

    async def forget(self, follower: str, sink: str) -> None:
        """Forget a follower with all that is kept of it."""
        await self.give_way("forget")
        base = self.database
        base.cursors.pop(follower, None)
        base.deliveries = {key: one for key, one in base.deliveries.items() if one.sink != sink}
        for key in [key for key in base.kept if key == follower or key.startswith(f"{follower}.")]:
            del base.kept[key]

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self.give_way("revise")
        kept = self.database.deliveries
        kept |= {(one.sink, one.place): one for one in changed if (one.sink, one.place) in kept}
        for one in gone:
            kept.pop((one.sink, one.place), None)

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        await self.give_way("view_deliveries")
        kept = self.database.deliveries
        found = [
            kept[key]
            for key in sorted(kept)
            if which.sink in (None, key[0])
            and which.target in (None, kept[key].target)
            and which.given_up in (None, kept[key].given_up)
        ]
        return found[: which.limit]

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under keys that begin so."""
        await self.give_way("view_kept")
        return {key: value for key, value in sorted(self.database.kept.items()) if key.startswith(prefix)}

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there, if that is still so."""
        await self.give_way("swap")
        if self.database.kept.get(key) != before:
            return False
        self.database.kept[key] = after
        return True

    async def recall(self, key: str) -> str | None:
        """What the watch keeps about itself."""
        await self.give_way("recall")
        return self.database.kept.get(key)

    async def remember(self, key: str, value: str) -> None:
        """Keep something about the watch itself."""
        await self.give_way("remember")
        self.database.kept[key] = value
