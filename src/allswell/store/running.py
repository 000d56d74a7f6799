"""What a store tells of runs beside their rows: which run a task is in, who holds what in it, and how it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from allswell.domain.names import RunId, TaskId
from allswell.domain.run import Run


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
