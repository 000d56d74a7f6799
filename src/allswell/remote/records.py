"""What is kept on a server, looked at from elsewhere: each view is a call by its name, with the types it has here."""

# ruff: noqa: ANN401, ARG002 - a view's own type says what it is; what is refused takes what it takes elsewhere

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from allswell.domain.checkin import Agent
from allswell.domain.delivery import Delivery, DeliveryFilter
from allswell.domain.expense import ExpenseRow, Spent, SpentBy
from allswell.domain.journal import Entry, Position
from allswell.domain.listing import TaskFilter, TaskRow
from allswell.domain.names import QuestionId, RunId, TaskId
from allswell.domain.question import Question
from allswell.domain.run import Run
from allswell.domain.service import ServiceRow
from allswell.domain.task import Attempt
from allswell.errors import Refused
from allswell.remote.server import Server
from allswell.store.views import Agenda


class RemoteRecords:
    """What a server shows of what it keeps."""

    def __init__(self, server: Server) -> None:
        self._server = server

    @property
    def url(self) -> str:
        """Where it is."""
        return self._server.url

    async def _look(self, name: str, **given: Any) -> Any:
        return await self._server.look(name, given)

    async def view_agenda(self) -> Agenda:
        """What a sweeper has to do, and when."""
        found: Agenda = await self._look("view_agenda")
        return found

    async def view_tasks(self, which: TaskFilter) -> list[TaskRow]:
        """Tasks by id, a page at a time."""
        found: list[TaskRow] = await self._look("view_tasks", which=which)
        return found

    async def view_task(self, task: TaskId) -> TaskRow | None:
        """One task."""
        found: TaskRow | None = await self._look("view_task", task=task)
        return found

    async def view_payload(self, task: TaskId) -> tuple[str | None, str | None]:
        """A task's payload and result."""
        found: tuple[str | None, str | None] = await self._look("view_payload", task=task)
        return found

    async def view_attempts(self, task: TaskId) -> list[Attempt]:
        """A task's ended attempts, the oldest first."""
        found: list[Attempt] = await self._look("view_attempts", task=task)
        return found

    async def view_expenses(self, task: TaskId) -> list[ExpenseRow]:
        """What the attempts at a task have cost, as far as it was told."""
        found: list[ExpenseRow] = await self._look("view_expenses", task=task)
        return found

    async def view_spent(self, by: SpentBy, keys: Sequence[str] = (), since: int = 0) -> dict[str, Spent]:
        """What was spent, added up."""
        found: dict[str, Spent] = await self._look("view_spent", by=by, keys=list(keys), since=since)
        return found

    async def view_questions(self, *, open_only: bool = True, limit: int = 1_000) -> list[Question]:
        """Questions, the oldest first."""
        found: list[Question] = await self._look("view_questions", open_only=open_only, limit=limit)
        return found

    async def view_question(self, question: QuestionId) -> Question | None:
        """One question."""
        found: Question | None = await self._look("view_question", question=question)
        return found

    async def view_run(self, run: RunId) -> Run | None:
        """One run."""
        found: Run | None = await self._look("view_run", run=run)
        return found

    async def view_runs(self, limit: int = 1_000) -> list[Run]:
        """Runs, the newest first."""
        found: list[Run] = await self._look("view_runs", limit=limit)
        return found

    async def view_agents(self) -> list[Agent]:
        """Agents that something is held against."""
        found: list[Agent] = await self._look("view_agents")
        return found

    async def view_services(self) -> dict[str, ServiceRow]:
        """The services that something is or was held against."""
        found: dict[str, ServiceRow] = await self._look("view_services")
        return found

    async def view_counts(self) -> dict[str, int]:
        """How many tasks stand in each derived state."""
        found: dict[str, int] = await self._look("view_counts")
        return found

    async def view_unaccounted(self, limit: int = 100) -> list[TaskId]:
        """Open tasks that nothing will ever move again."""
        found: list[TaskId] = await self._look("view_unaccounted", limit=limit)
        return found

    async def view_kept(self, prefix: str) -> dict[str, str]:
        """What the watch keeps about itself under every key that begins so."""
        found: dict[str, str] = await self._look("view_kept", prefix=prefix)
        return found

    async def view_deliveries(self, which: DeliveryFilter) -> list[Delivery]:
        """What is still to be delivered or was given up, in its order."""
        found: list[Delivery] = await self._look("view_deliveries", which=which)
        return found

    async def view_results(self, run: RunId, role: str, after: str, limit: int) -> list[tuple[TaskId, str]]:
        """The results of a run's tasks of one role that are done, by id."""
        found: list[tuple[TaskId, str]] = await self._look("view_results", run=run, role=role, after=after, limit=limit)
        return found

    async def view_cursors(self) -> dict[str, Position]:
        """Every follower that has ever got anywhere, and where."""
        found: dict[str, Position] = await self._look("view_cursors")
        return found

    async def journal(self, after: Position, limit: int) -> list[Entry]:
        """Events after a position in the journal's order."""
        found: list[Entry] = await self._look("journal", after=after, limit=limit)
        return found

    async def cursor(self, follower: str) -> Position:
        """Where a follower has got to."""
        found: Position = await self._look("cursor", follower=follower)
        return found

    async def recall(self, key: str) -> str | None:
        """What is kept under a key."""
        found: str | None = await self._look("recall", key=key)
        return found

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more."""
        found: bool = await self._look("swap", key=key, before=before, after=after)
        return found

    async def revise(self, changed: Sequence[Delivery], gone: Sequence[Delivery] = ()) -> None:
        """Write deliveries as they are now, and forget those that are gone."""
        await self._look("revise", changed=list(changed), gone=list(gone))

    # --- what is done beside the store --------------------------------------------------------------------------------

    async def remember(self, key: str, value: str) -> None:
        """The watch's own doing."""
        raise _beside_the_store()

    async def enlist(
        self, follower: str, after: Position, upto: Position, deliveries: Sequence[Delivery], memory: str = ""
    ) -> bool:
        """A sink's own doing."""
        raise _beside_the_store()

    async def forget(self, follower: str, sink: str) -> None:
        """A sink's own doing."""
        raise _beside_the_store()

    async def advance(self, follower: str, position: Position) -> None:
        """A sink's own doing."""
        raise _beside_the_store()


def _beside_the_store() -> Refused:
    text = "this is done beside the store, and not over a network: name the store itself with --store"
    return Refused("not_remote", text, where="store")
