"""Builds that are not over, at a glance: for the state of the watch."""

from __future__ import annotations

from allswell.domain.build.glance import BuildGlance
from allswell.domain.build.roles import BUILD_ROLE
from allswell.domain.listing import TaskFilter
from allswell.store.views import Views

FEW = 3
"""So many builds are told of where they are one thing among others."""


async def glance_at_builds(views: Views, most: int = FEW) -> list[BuildGlance]:
    """The builds that are not over, the first few of them."""
    found: list[BuildGlance] = []
    for row in await views.view_tasks(TaskFilter(open=True, role=BUILD_ROLE, limit=most)):
        from allswell.build.place import kept_spec  # where there is no build, nothing of one is imported
        from allswell.build.rows import BuildRows

        run = row.task.run
        spec = None if run is None else await kept_spec(views, run)
        if run is not None and spec is not None:
            standing = await BuildRows(views, run).look(spec, row.task.created_at)
            found.append(BuildGlance(run, spec.name, row.lease is not None, standing))
    return found
