"""Builds at a glance: for the state of the watch, and for who asks why a component stands where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from msgspec.structs import replace

from allswell.domain.build.limits import AUDIT_ROLE, BUILD_ROLE, BUILD_ROLES, COMPONENT_ROLE
from allswell.domain.build.state import BuildGlance, told_of
from allswell.domain.ids import TaskId
from allswell.domain.task.model import TaskFilter, TaskRow
from allswell.errors import Refused
from allswell.store.views import Views

if TYPE_CHECKING:
    from allswell.domain.question import Pause
    from allswell.engine.status.agents import StillRun
    from allswell.engine.status.explanation import Explanation

_MANY = 100
_LINE_MOST = 500
FEW = 3
"""So many builds are told of where they are one thing among others."""


async def glance_at_builds(views: Views, most: int = FEW) -> list[BuildGlance]:
    """The builds that are not over, the first few of them."""
    found: list[BuildGlance] = []
    for row in await views.view_tasks(TaskFilter(open=True, role=BUILD_ROLE, limit=most)):
        from allswell.build.state import (
            BuildRows,
            kept_spec,  # where there is no build, nothing of one is imported
        )

        run = row.task.run
        spec = None if run is None else await kept_spec(views, run)
        if run is not None and spec is not None:
            standing = await BuildRows(views, run).look(spec, row.task.created_at)
            found.append(BuildGlance(run, spec.name, row.lease is not None, standing))
    return found


async def why(
    views: Views, id_: str, most: int | None = None, *, pause: Pause = "task", still_running: StillRun | None = None
) -> Explanation:
    """Why something stands where it stands (`engine/status/why.py`); of a build's task also what it is there."""
    from allswell.engine.status.agents import as_said
    from allswell.engine.status.explanation import clean
    from allswell.engine.status.why import TASKS_MOST
    from allswell.engine.status.why import why as explained

    told = await explained(views, id_, most or TASKS_MOST, pause=pause, still_running=still_running or as_said)
    row = await views.view_task(TaskId(told.id)) if told.kind == "task" and told.chain else None
    if row is None or row.task.role not in BUILD_ROLES:
        return told
    try:
        lines = await told_of_task(views, row)
    except Refused:  # an agent's key does not see what the watch keeps about a build
        return told
    first, *others = told.chain
    says = (*first.says, *(clean(line, _LINE_MOST) for line in lines))
    return replace(told, chain=(replace(first, says=says), *others))


async def told_of_task(views: Views, row: TaskRow) -> list[str]:
    """What a task is in its build, in sentences; nothing of a task that is of none."""
    task = row.task
    if task.role not in BUILD_ROLES or task.run is None:
        return []
    from allswell.build.state import AuditJob, BuildRows, kept_spec

    spec = await kept_spec(views, task.run)
    if spec is None:
        return []
    if task.role == BUILD_ROLE:
        return [f"It is the build {spec.name} itself: its holder is the coordinator."]
    standing = await BuildRows(views, task.run).look(spec, task.created_at)
    if task.role == AUDIT_ROLE:
        payload, _ = await views.view_payload(task.id)
        job = msgspec.json.decode(payload or "", type=AuditJob)
        which = f"It is an audit of {job.component} in the build {spec.name}: {job.audit.builder} has handed in"
        return [f"{which} {job.audit.url or 'its work'}, and may not judge it itself."]
    one = standing.components.get(task.name)
    if task.role != COMPONENT_ROLE or one is None:
        return []
    return [f"It is a component of the build {spec.name}.", *told_of(one, standing)]


async def told_of_name(views: Views, name: str) -> list[str]:
    """What a component of this name waits for that is no task yet, in a build that is not over."""
    for build in await glance_at_builds(views, _MANY):
        one = build.standing.components.get(name)
        if one is not None and one.task is None:
            return [f"{name} is a component of the build {build.name}.", *told_of(one, build.standing)]
    return []
