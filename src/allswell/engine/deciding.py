"""A watch as those have it who look after ended work: hand it over again, or say that it was seen."""

from __future__ import annotations

from allswell.domain.dismissal import DismissQuestion, DismissTask
from allswell.domain.names import CommandId, QuestionId, TaskId
from allswell.domain.resubmission import Resubmit
from allswell.engine.claiming import Claiming
from allswell.engine.ids import task_for_key


class Deciding(Claiming):
    """What is decided about work that has ended, through an open watch."""

    async def retry(
        self,
        task: str,
        *,
        dependents: bool = False,
        again: bool = False,
        run: str | None = None,
        by: str = "",
        command: str | None = None,
    ) -> dict[TaskId, TaskId]:
        """Hand an ended task over again as a new one, which carries its history; the new ids by the old ones.

        With `dependents`, those that were skipped because of it, too; one that is done only with `again`. The new ones
        are in the run of the old ones, which must be open, or in `run`. Under the same `command` it is done once, and
        answered with the same ids.
        """
        from allswell.engine.resubmitting import named, renewals

        def new_id(old: TaskId) -> TaskId:
            return self._ids.task() if command is None else task_for_key(f"retry {command} {old}")

        made = await renewals(self.views, TaskId(task), new_id, dependents=dependents, run=run)
        await self._engine.do(Resubmit(self._command(command), made, again, by))
        return named(made)

    async def dismiss(self, what: str, by: str, *, command: str | None = None) -> None:
        """Note that somebody has seen a question, which stays open, or how a task ended: it needs nobody any more."""
        id_ = self._command(command)
        seen = DismissQuestion(id_, QuestionId(what), by) if what[:2] == "q_" else DismissTask(id_, TaskId(what), by)
        await self._engine.do(seen)

    def _command(self, given: str | None) -> CommandId:
        return self._ids.command() if given is None else CommandId(given)
