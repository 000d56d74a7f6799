"""Which run a new task joins: the one that is open under a name, or else a new one.

A name stands for one open run at a time. The id of a new run follows from its name and from the last run that had it,
so that two who open "night" in the same moment open the same run. Nothing is opened before all that is to be
submitted has been looked at: a mistake leaves no empty run behind.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from allswell.doors.cli.render import plain
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.names import RunId
    from allswell.domain.run import Run
    from allswell.doors.shapes.submitted import JoinedRunShape
    from allswell.engine.watch import Watch


class Joining:
    """The runs that one call of `submit` joins; each is looked up once."""

    def __init__(self, watch: Watch, timeout: str | None) -> None:
        from allswell.domain.duration import parse

        self._watch = watch
        self._timeout = None if timeout is None else parse(timeout, where="--run-timeout")
        self._runs: list[Run] | None = None
        self._found: dict[str, RunId] = {}
        self._missing: dict[str, str] = {}

    async def find(self, text: str) -> RunId:
        """The id of the run that a name or an id means; that of a new one where no open run has this name."""
        if text not in self._found:
            self._found[text] = await self._look(text)
        return self._found[text]

    async def _look(self, text: str) -> RunId:
        from allswell.domain.submit import check_name
        from allswell.doors.cli.ids import find_run
        from allswell.engine.ids import run_for_key

        views = self._watch.views
        if self._runs is None:
            self._runs = await views.view_runs()
        named = [run for run in self._runs if run.name == text]
        if text.startswith("r_") or any(run.ended_at is None for run in named):
            return await find_run(views, text)
        check_name(text, "run")
        key = f"{text}\0{named[0].id if named else ''}"
        self._missing[text] = key
        return run_for_key(key)

    async def open(self) -> None:
        """Open the runs that are new."""
        for name, key in self._missing.items():
            await self._watch.open_run(name, timeout=self._timeout, key=key)

    def check(self) -> None:
        """Refuse a timeout that no run could get."""
        if self._timeout is not None and not self._found:
            raise Refused("no_run", "--run-timeout is a run's; name the run with --run", where="--run-timeout")

    def told(self) -> list[JoinedRunShape]:
        """What a program is told: each run by the name it was called, and which of them are new."""
        from allswell.doors.shapes.submitted import JoinedRunShape

        return [JoinedRunShape(id_, name, name in self._missing) for name, id_ in self._found.items()]

    def words(self) -> str:
        """What is worth saying: that a run was opened, which a mistyped name would do too."""
        opened = ", ".join(map(plain, self._missing))
        return f"opened the run {opened}; " if opened else ""
