"""Which run a new task joins: the one that is open under a name, or else a new one.

A name stands for one open run at a time. The id of a new run follows from its name and from the last run that had it,
so that two who open "night" in the same moment open the same run. Nothing is opened before all that is to be
submitted has been looked at: a mistake leaves no empty run behind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from allswell.domain.names import RunId
from allswell.domain.run import Run
from allswell.domain.submit import check_name
from allswell.engine.finding import find_run
from allswell.engine.ids import run_for_key
from allswell.errors import Refused
from allswell.store.views import Views


class Joining:
    """The runs that tasks which are handed over together join; each is looked up once."""

    def __init__(self, views: Views, timeout: int | None) -> None:
        self._views = views
        self._timeout = timeout
        self._runs: list[Run] | None = None
        self.found: dict[str, RunId] = {}
        """Every run by what it was called."""
        self.missing: dict[str, str] = {}
        """Those that have to be opened, and under which keys."""

    async def find(self, text: str) -> RunId:
        """The id of the run that a name or an id means; that of a new one where no open run has this name."""
        if text not in self.found:
            self.found[text] = await self._look(text)
        return self.found[text]

    async def _look(self, text: str) -> RunId:
        if self._runs is None:
            self._runs = await self._views.view_runs()
        named = [run for run in self._runs if run.name == text]
        if text.startswith("r_") or any(run.ended_at is None for run in named):
            return await find_run(self._views, text)
        check_name(text, "run")
        key = f"{text}\0{named[0].id if named else ''}"
        self.missing[text] = key
        return run_for_key(key)

    def check(self) -> None:
        """Refuse a timeout that no run could get."""
        if self._timeout is not None and not self.found:
            raise Refused("no_run", "a run_timeout is a run's, and no task names a run", where="run_timeout")

    async def open(self, open_run: Callable[[str, int | None, str], Awaitable[RunId]]) -> None:
        """Open the runs that are new, each with its name, its timeout and its key."""
        for name, key in self.missing.items():
            await open_run(name, self._timeout, key)
