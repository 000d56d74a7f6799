"""Requests to a role that nobody is known to have: they are never refused, and are told by whoever looks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

from allswell.domain.address import role_of
from allswell.domain.listing import TaskFilter
from allswell.domain.names import is_request
from allswell.engine.candidates import can_serve
from allswell.store.views import Views

_PAGE = 500


async def unserved_roles(views: Views, has_role: Callable[[str], bool]) -> dict[str, int]:
    """How many requests are open for each role that nobody has; `has_role` tells of the agents that are set up."""
    asked: Counter[str] = Counter()
    after = "m_"
    while is_request(after):
        page = await views.view_tasks(TaskFilter(open=True, after=after, limit=_PAGE))
        specs = [row.task.spec.request for row in page if row.lease is None]
        asked.update(role for spec in specs if spec is not None and (role := role_of(spec.to)) is not None)
        after = page[-1].task.id if len(page) == _PAGE else ""
    return {
        role: count
        for role, count in sorted(asked.items())
        if not has_role(role) and not await can_serve(views, role, "")
    }
