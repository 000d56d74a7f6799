"""Finding what is handed over again with an ended task: who was skipped because of it, and what stands for its needs.

What is found are hints; the rule (domain/resubmission.py) holds each to the rows as they then are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from allswell.domain.listing import TaskFilter
from allswell.domain.names import RunId, TaskId
from allswell.domain.resubmission import Renewal
from allswell.domain.task import State, Task
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.store.views import Views

_PAGE = 1_000
_LOOKED_AT = 100_000
"""Skipped tasks that are looked through for those that needed it."""
_TIMES = 1_000
"""Steps from a task to the one that stands for it now."""


async def renewals(
    views: Views, task: TaskId, new_id: Callable[[TaskId], TaskId], *, dependents: bool, run: str | None
) -> tuple[Renewal, ...]:
    """The task with, if they are wanted, all that were skipped because of it; `new_id` says what one becomes."""
    row = await views.view_task(task)
    if row is None:
        raise Refused("unknown_task", f"there is no task {task}", where="task")
    old = [row.task, *(await _skipped_for(views, row.task, new_id) if dependents else ())]
    together = {one.id: new_id(one.id) for one in old}
    made = []
    for one in old:
        needs = [
            (need, together[need]) if need in together else await _standing_for(views, need) for need in one.spec.needs
        ]
        made.append(
            Renewal(one.id, together[one.id], tuple(needs), RunId(run) if run else one.run, one.role, one.spec.services)
        )
    return tuple(made)


async def _skipped_for(views: Views, root: Task, new_id: Callable[[TaskId], TaskId]) -> list[Task]:
    """Who was skipped because of a task, at one remove or several, in an order in which needs come first.

    Whoever was retried since is left out, unless by this very command, whose answer was lost.
    """
    skipped: dict[TaskId, Task] = {}
    after = ""
    while len(skipped) < _LOOKED_AT:
        which = TaskFilter(open=False, run=root.run, states=(State.SKIPPED.value,), after=after, limit=_PAGE)
        page = await views.view_tasks(which)
        skipped |= {one.task.id: one.task for one in page if _is_left(one.task, new_id)}
        if len(page) < _PAGE:
            break
        after = page[-1].task.id
    found: dict[TaskId, Task] = {}
    known = {root.id}
    while new := [one for one in skipped.values() if one.id not in known and not known.isdisjoint(one.spec.needs)]:
        found |= {one.id: one for one in new}
        known |= {one.id for one in new}
    return list(found.values())


def _is_left(task: Task, new_id: Callable[[TaskId], TaskId]) -> bool:
    after = task.record.retried_as
    return after is None or after == new_id(task.id)


async def _standing_for(views: Views, need: TaskId) -> tuple[TaskId, ...]:
    """A task, and those that it was handed over as, the last one last."""
    chain = [need]
    for _ in range(_TIMES):
        row = await views.view_task(chain[-1])
        if row is None or row.task.record.retried_as is None:
            break
        chain.append(row.task.record.retried_as)
    return tuple(chain)


def named(made: Sequence[Renewal]) -> dict[TaskId, TaskId]:
    """The new ids by the old ones."""
    return {one.of: one.id for one in made}
