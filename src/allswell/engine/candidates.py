"""Who is known to have a role: a hint for a request to it; whom of them to pass over is decided by domain/standing.py.

Known are the slots of supervisors that are alive, and whoever holds a task of the role. Others may have it, too: they
are not in the way of anything, for nobody is barred from a request whom this does not name.
"""

from __future__ import annotations

import msgspec

from allswell.domain.listing import TaskFilter
from allswell.domain.names import AgentId
from allswell.domain.presence import PREFIX, Presence, is_alive
from allswell.store.views import Views

_MOST = 1_000


async def can_serve(views: Views, role: str, asker: str) -> tuple[AgentId, ...]:
    """The holders that are known to have this role, without the one who asks."""
    now = (await views.view_agenda()).now
    known = [msgspec.json.decode(text, type=Presence) for text in (await views.view_kept(PREFIX)).values()]
    posts = [post for presence in known if is_alive(presence, now) for post in presence.posts]
    found = [post.holder for post in posts if post.role in (None, role)]
    rows = await views.view_tasks(TaskFilter(role=role, states=("held",), limit=_MOST))
    found += [row.lease.agent for row in rows if row.lease is not None]
    return tuple(AgentId(holder) for holder in sorted({*found} - {asker}))
