"""From what people type to an id: an id is taken as it is, a name where only one thing has it.

What is not found is answered with what is nearest.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from allswell.domain.ids import AgentId, QuestionId, RunId, TaskId, can_name
from allswell.domain.task.model import TaskFilter
from allswell.domain.values import alike
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.store.views import Views

_LOOKED_AT = 2_000
"""How many names are compared when something is not found."""
_LISTED = 5
_RETRIED = 100
"""How many tasks of one name are looked through for the one that was not handed over again."""


async def find(views: Views, text: str) -> TaskId | RunId | QuestionId:
    """The id of any of them: a task, a run, a question."""
    if text.startswith("q_"):
        return await find_question(views, text)
    if text.startswith("r_"):
        return await find_run(views, text)
    if not text.startswith("t_"):
        named = can_name(text) and any(run.name == text for run in await views.view_runs())
        if named and not await views.view_tasks(TaskFilter(name=text, limit=1)):
            return await find_run(views, text, "ID")
    return await find_task(views, text)


async def find_task(views: Views, text: str, where: str = "task") -> TaskId:
    """The task with this id, or the only one with this name: of those that were retried, the newest."""
    if can_name(text):
        if await views.view_task(TaskId(text)) is not None:
            return TaskId(text)
        named = await views.view_tasks(TaskFilter(name=text, limit=_RETRIED))
        newest = [row.task.id for row in named if row.task.record.retried_as is None]
        if len(newest) == 1:  # what was handed over again is known by what it was handed over as
            return newest[0]
        if named:
            listed = ", ".join(f"{row.task.id} ({row.task.state})" for row in named[:_LISTED])
            more = " and more" if len(named) > _LISTED else ""
            raise Refused(
                "ambiguous", f"several tasks are called {text!r}: {listed}{more}; name one by its id", where=where
            )
    raise Refused("unknown_task", f"there is no task {text!r}{await _nearest_tasks(views, text)}", where=where)


async def find_holder(views: Views, task: TaskId, token: int) -> AgentId | None:
    """The agent that has, or had, this token of a task; None if it is unknown."""
    row = await views.view_task(task)
    if row is not None and row.lease is not None and row.lease.token == token:
        return row.lease.agent
    return next((ended.agent for ended in await views.view_attempts(task) if ended.token == token), None)


async def _nearest_tasks(views: Views, text: str) -> str:
    if text.startswith("t_") and can_name(text):
        stem = text[: max(4, len(text) // 2)]
        after = await views.view_tasks(TaskFilter(after=stem, limit=_LOOKED_AT))
        return did_you_mean(text, [row.task.id for row in after if row.task.id.startswith(stem)])
    unended = await views.view_tasks(TaskFilter(open=True, limit=_LOOKED_AT))
    ended = await views.view_tasks(TaskFilter(open=False, limit=_LOOKED_AT)) if len(unended) < _LOOKED_AT else []
    return did_you_mean(text, [row.task.name for row in (*unended, *ended)])


async def find_run(views: Views, text: str, where: str = "run") -> RunId:
    """The run with this id, or the only one with this name; where several had it, the one that is still open."""
    runs = await views.view_runs()
    found = [run.id for run in runs if run.id == text] or [run.id for run in runs if run.name == text]
    alive = [run.id for run in runs if run.id in found and run.ended_at is None]
    if len(found) == 1 or len(alive) == 1:
        return found[0] if len(found) == 1 else alive[0]
    if found:
        listed = ", ".join(found[:_LISTED])
        raise Refused("ambiguous", f"several runs are called {text!r}: {listed}; name one by its id", where=where)
    known = [name for run in runs for name in (run.id, run.name)]
    raise Refused("unknown_run", f"there is no run {text!r}{did_you_mean(text, known)}", where=where)


async def find_question(views: Views, text: str) -> QuestionId:
    """The question with this id, or the only open one about the service or the task that is meant."""
    if can_name(text) and text.startswith("q_") and await views.view_question(QuestionId(text)) is not None:
        return QuestionId(text)
    unanswered = await views.view_questions()
    if not text.startswith("q_"):
        about = [question.id for question in unanswered if question.service == text]
        if not about:
            task = await find_task(views, text, "question")
            about = [question.id for question in unanswered if question.task == task]
        if len(about) == 1:
            return about[0]
        if about:
            listed = ", ".join(about)
            raise Refused("ambiguous", f"several questions are open about {text!r}: {listed}", where="question")
        raise Refused("unknown_question", f"no question is open about {text!r}", where="question")
    hint = did_you_mean(text, [question.id for question in unanswered]) or "; `allswell questions` lists the open ones"
    raise Refused("unknown_question", f"there is no question {text!r}{hint}", where="question")


def did_you_mean(text: str, known: Iterable[str]) -> str:
    """What may have been meant, as the end of a sentence; nothing where nothing is near."""
    names = list(map(str, known))
    inside = [name for name in names if text and text.casefold() in name.casefold()]
    offered = list(dict.fromkeys([*alike(text, names, most=3, ratio=0.5), *inside]))[:3]
    return f"; did you mean {' or '.join(map(repr, offered))}?" if offered else ""
