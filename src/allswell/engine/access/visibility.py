"""What a key shows of what is kept: everything, one thing by its id, or an agent's own tasks and what it could claim.

Who may look at what is decided in `domain/access/rights.py`. A list is not refused to an agent that may look at its
own: the others are left out of it, so that a supervisor with an agent's key finds what it holds as it would elsewhere.
"""

# ruff: noqa: ARG002 - a look has the arguments of the one behind it

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from allswell.domain.access.key import Key
from allswell.domain.access.rights import (
    LOOKS,
    Operation,
    check_act,
    check_value,
    check_word,
    is_secret,
    may,
    refuse_sinks,
    sees_question,
    sees_task,
)
from allswell.domain.agents.cost import ExpenseRow, Spent, SpentBy
from allswell.domain.ids import QuestionId, RunId, TaskId, task_of_question
from allswell.domain.lease.model import Agent
from allswell.domain.notify.delivery import Delivery, DeliveryFilter
from allswell.domain.question import Question
from allswell.domain.rules.event import Entry, Position
from allswell.domain.run.run import Run
from allswell.domain.service.service import ServiceRow
from allswell.domain.task.model import Attempt, TaskFilter, TaskRow
from allswell.engine.access.keys import KeyQuota
from allswell.engine.backend import Records
from allswell.store.views import Agenda

_PAGE = 1_000
"""Tasks that are looked at together, however few are wanted: those of others may lie between them."""


class Sight:
    """What is kept, as far as a key shows it."""

    def __init__(self, behind: Records, key: Key, quota: KeyQuota) -> None:
        self._behind = behind
        self._key = key
        self._quota = quota
        self._everything = may(key, Operation.LOOK)
        self._any_one = self._everything or may(key, Operation.LOOK_AT_ONE)

    @property
    def url(self) -> str:
        """Where it is."""
        return self._behind.url

    def _check(self, look: str) -> None:
        if not self._everything:
            check_act(self._key, *LOOKS[look])

    # --- one thing ----------------------------------------------------------------------------------------------------

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task; None too where it is another's."""
        self._check("view_task")
        row = await self._behind.view_task(task)
        return row if row is None or await self._sees(row) else None

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        self._check("view_payload")
        return await self._behind.view_payload(task) if await self._may_see(task) else (None, None)

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        self._check("view_attempts")
        return await self._behind.view_attempts(task) if await self._may_see(task) else []

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost."""
        self._check("view_expenses")
        return await self._behind.view_expenses(task) if await self._may_see(task) else []

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """The sums of what attempts have cost."""
        self._check("view_spent")
        return await self._behind.view_spent(by, keys, since)

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        self._check("view_question")
        found = await self._behind.view_question(question)
        if found is None or sees_question(self._key, found) or await self._may_see(task_of_question(question)):
            return found
        return None

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        self._check("view_run")
        return await self._behind.view_run(run)

    async def _may_see(self, task: TaskId) -> bool:
        return self._any_one or await self.view_task(task) is not None

    async def _sees(self, row: TaskRow) -> bool:
        if sees_task(self._key, row):
            return True
        return sees_task(self._key, row, await self._behind.view_attempts(row.task.id))

    # --- lists --------------------------------------------------------------------------------------------------------

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time; those of others are left out, and the page is filled up behind them."""
        self._check("view_tasks")
        if self._everything:
            return await self._behind.view_tasks(which)
        found: list[TaskRow] = []
        wanted = which.limit
        which = replace(which, limit=max(wanted, _PAGE))
        while True:
            page = await self._behind.view_tasks(which)
            found += [row for row in page if sees_task(self._key, row)]
            if len(page) < which.limit or len(found) >= wanted:
                return found[:wanted]
            which = replace(which, after=page[-1].task.id)

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        self._check("view_questions")
        found = await self._behind.view_questions(open_only=open_only, limit=limit)
        return found if self._everything else [one for one in found if sees_question(self._key, one)]

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        self._check("view_agenda")
        return await self._behind.view_agenda()

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        self._check("view_runs")
        return await self._behind.view_runs(limit)

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        self._check("view_agents")
        return await self._behind.view_agents()

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        self._check("view_services")
        return await self._behind.view_services()

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        self._check("view_counts")
        return await self._behind.view_counts()

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks that nothing will ever move again."""
        self._check("view_unaccounted")
        return await self._behind.view_unaccounted(limit)

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        self._check("view_deliveries")
        return await self._behind.view_deliveries(which)

    async def view_results(self, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
        """The results of a run's tasks of one role that are done, by id."""
        self._check("view_results")
        return await self._behind.view_results(run, role, after, limit)

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order."""
        self._check("journal")
        return await self._behind.journal(after, limit)

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        self._check("cursor")
        return await self._behind.cursor(follower)

    async def view_cursors(self) -> dict[str, Position]:
        """Every follower that has ever got anywhere, and where."""
        self._check("view_cursors")
        return await self._behind.view_cursors()

    # --- the watch's own words ----------------------------------------------------------------------------------------

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under every key that begins so, but for keys."""
        self._check("view_kept")
        kept = await self._behind.view_kept(prefix)
        return {word: text for word, text in kept.items() if not is_secret(word)}

    async def recall(self, key: str) -> str | None:
        """What is kept under a key."""
        self._check("recall")
        check_word(self._key, key, write=False)
        return await self._behind.recall(key)

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more."""
        self._check_write(key, after)
        return await self._behind.swap(key, before, after)

    async def remember(self, key: str, value: str) -> None:
        """Keep something under a key, whatever was there."""
        self._check_write(key, value)
        await self._behind.remember(key, value)

    def _check_write(self, word: str, text: str) -> None:
        check_word(self._key, word, write=True)
        check_value(self._key, word, text)
        self._quota.written(self._key, len(text))

    # --- what sinks have to deliver -----------------------------------------------------------------------------------

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone: tried again, or dropped."""
        check_act(self._key, Operation.DECIDE)
        await self._behind.revise(changed, gone)

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """A sink's own doing."""
        raise refuse_sinks()

    async def forget(self, follower: str, sink: str) -> None:
        """A sink's own doing."""
        raise refuse_sinks()

    async def advance(self, follower: str, position: Position) -> None:
        """A sink's own doing."""
        raise refuse_sinks()
