"""What a key shows of what is kept: everything, one thing by its id, or an agent's own tasks and what it could claim.

Who may look at what is decided in `domain/access/rights.py`. A list is not refused to an agent that may look at its
own: the others are left out of it, so that a supervisor with an agent's key finds what it holds as it would elsewhere.
"""

# ruff: noqa: ARG002 - a look has the arguments of the one behind it

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, ClassVar, TypeVar

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
from allswell.domain.agents.cost import ExpenseRow
from allswell.domain.ids import TaskId, task_of_question
from allswell.domain.notify.delivery import Delivery
from allswell.domain.question import Question
from allswell.domain.rules.event import Position
from allswell.domain.rules.query import (
    Query,
    ViewAttempts,
    ViewExpenses,
    ViewKept,
    ViewPayload,
    ViewQuestion,
    ViewQuestions,
    ViewTask,
    ViewTasks,
    ViewValue,
)
from allswell.domain.task.model import Attempt, TaskRow
from allswell.engine.access.keys import KeyQuota
from allswell.engine.backend import Records
from allswell.store.views import Views

T = TypeVar("T")
_PAGE = 1_000
"""Tasks that are looked at together, however few are wanted: those of others may lie between them."""


class VisibleRecords(Views):
    """What is kept, as far as a key shows it.

    `LOOKS` says which rights a query takes. What more there is to it stands in the table `_narrowed`: which rows a key
    is shown whose right is for its own alone, and what of the watch's own words it is not shown.
    """

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

    async def view(self, query: Query[T]) -> T:
        """The answer to a query, as far as the key shows it."""
        if not self._everything:
            check_act(self._key, *LOOKS[type(query)])
        narrowed = self._narrowed.get(type(query))
        if narrowed is None:
            return await self._behind.view(query)
        answer: T = await narrowed(self, query)
        return answer

    # --- one thing ----------------------------------------------------------------------------------------------------

    async def _task(self, query: ViewTask) -> TaskRow | None:
        """One task; None too where it is another's."""
        row = await self._behind.view(query)
        return row if row is None or await self._sees(row) else None

    async def _payload(self, query: ViewPayload) -> tuple[str | None, str | None]:
        return await self._behind.view(query) if await self._may_see(query.task) else (None, None)

    async def _attempts(self, query: ViewAttempts) -> list[Attempt]:
        return await self._behind.view(query) if await self._may_see(query.task) else []

    async def _expenses(self, query: ViewExpenses) -> list[ExpenseRow]:
        return await self._behind.view(query) if await self._may_see(query.task) else []

    async def _question(self, query: ViewQuestion) -> Question | None:
        found = await self._behind.view(query)
        if found is None or sees_question(self._key, found) or await self._may_see(task_of_question(query.question)):
            return found
        return None

    async def _may_see(self, task: TaskId) -> bool:
        return self._any_one or await self.view_task(task) is not None

    async def _sees(self, row: TaskRow) -> bool:
        if sees_task(self._key, row):
            return True
        return sees_task(self._key, row, await self._behind.view_attempts(row.task.id))

    # --- lists --------------------------------------------------------------------------------------------------------

    async def _tasks(self, query: ViewTasks) -> list[TaskRow]:
        """Tasks by id, a page at a time; those of others are left out, and the page is filled up behind them."""
        if self._everything:
            return await self._behind.view(query)
        found: list[TaskRow] = []
        wanted = query.which.limit
        which = replace(query.which, limit=max(wanted, _PAGE))
        while True:
            page = await self._behind.view_tasks(which)
            found += [row for row in page if sees_task(self._key, row)]
            if len(page) < which.limit or len(found) >= wanted:
                return found[:wanted]
            which = replace(which, after=page[-1].task.id)

    async def _questions(self, query: ViewQuestions) -> list[Question]:
        found = await self._behind.view(query)
        return found if self._everything else [one for one in found if sees_question(self._key, one)]

    # --- the watch's own words ----------------------------------------------------------------------------------------

    async def _kept(self, query: ViewKept) -> dict[str, str]:
        """What the watch keeps about itself, but for keys."""
        kept = await self._behind.view(query)
        return {word: text for word, text in kept.items() if not is_secret(word)}

    async def _value(self, query: ViewValue) -> str | None:
        check_word(self._key, query.key, write=False)
        return await self._behind.view(query)

    _narrowed: ClassVar[Mapping[type[Query[Any]], Callable[[Any, Any], Awaitable[Any]]]] = {
        ViewTask: _task,
        ViewPayload: _payload,
        ViewAttempts: _attempts,
        ViewExpenses: _expenses,
        ViewQuestion: _question,
        ViewTasks: _tasks,
        ViewQuestions: _questions,
        ViewKept: _kept,
        ViewValue: _value,
    }

    async def compare_and_set(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more."""
        self._check_write(key, after)
        return await self._behind.compare_and_set(key, before, after)

    async def put(self, key: str, value: str) -> None:
        """Keep something under a key, whatever was there."""
        self._check_write(key, value)
        await self._behind.put(key, value)

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
