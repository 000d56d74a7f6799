"""Which task is meant where a need is named: by its id, as a fellow, or as the only task of that name.

In this order. An id is what a store has under it. Fellows are tasks that are handed over together; the first of a name
is meant. Otherwise it is the only task in the store that has the name, open or ended; where there are several, or none,
the caller is told which, or what is nearest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from msgspec.structs import replace

from allswell.domain.command import NewTask
from allswell.domain.names import TaskId, can_name
from allswell.engine.finding import find_task
from allswell.engine.ids import SPELLED
from allswell.errors import Refused
from allswell.store.views import Views

_ID = re.compile(f"t_{SPELLED}")


async def is_id(views: Views, need: str) -> bool:
    """Whether the store has a task under this id."""
    return need.startswith("t_") and can_name(need) and await views.view_task(TaskId(need)) is not None


async def meant(views: Views, need: str, fellows: Mapping[str, TaskId]) -> TaskId:
    """The task that a need names; `Refused` if there is none, or more than one."""
    if await is_id(views, need):
        return TaskId(need)
    return fellows[need] if need in fellows else await find_task(views, need, "needs")


async def with_ids(views: Views, tasks: Sequence[NewTask]) -> tuple[NewTask, ...]:
    """Tasks that are handed over in one piece, with ids where names stood.

    What is spelled as an id is not looked for: if there is no such task, the core says so, and refuses them all.
    """
    own = {new.id for new in tasks}
    fellows: dict[str, TaskId] = {}
    if len(tasks) > 1:  # one that comes alone may need an older task of its name
        for new in tasks:
            fellows.setdefault(new.name, new.id)
    found: dict[str, TaskId] = {}
    for place, new in enumerate(tasks):
        for need in new.needs:
            if need in found:
                continue
            if need in own or _ID.fullmatch(need):
                found[need] = TaskId(need)
                continue
            try:
                found[need] = await meant(views, need, fellows)
            except Refused as refused:
                if refused.code == "unknown_task" and need.startswith("t_"):
                    found[need] = TaskId(need)
                    continue
                refused.place = place
                raise
    return tuple(with_found(new, found) for new in tasks)


def with_found(new: NewTask, found: Mapping[str, TaskId]) -> NewTask:
    """A task with the ids that were found for its needs."""
    return replace(new, needs=tuple(dict.fromkeys(found[need] for need in new.needs))) if new.needs else new
