"""Which agents there are, as far as anybody can know: so that a request to a name that was mistyped is refused.

Known is who is set up here, has a key, is in a supervisor's fleet, holds a task now, or has ever asked somebody or
looked into its inbox: that is noted, once, under the agent's name.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from allswell.domain.address import family, is_agent, names_of
from allswell.domain.key import PREFIX as KEYS
from allswell.domain.key import Key
from allswell.domain.listing import TaskFilter
from allswell.domain.presence import PREFIX as SUPERVISORS
from allswell.domain.presence import Presence
from allswell.engine.backend import Records
from allswell.engine.finding import did_you_mean
from allswell.errors import Refused

_SEEN = "mesh.agent."
"""What is kept of an agent that was seen."""
_PAGE = 1_000


class KnownAgents:
    """The agents that a request can be for."""

    def __init__(self, store: Records, set_up: Collection[str]) -> None:
        self._store = store
        self._set_up = set_up
        self._noted: set[str] = set()
        self._checked: set[str] = set()

    async def note(self, agent: str) -> None:
        """This agent was here."""
        name = family(agent)
        if name and name not in self._noted and name.isprintable() and len(name) <= 200:  # else it is refused anyway
            await self._store.remember(f"{_SEEN}{name}", "1")
            self._noted.add(name)

    async def check(self, to: str) -> None:
        """Refuse a name that nobody has."""
        if to in self._checked or any(is_agent(to, name) or is_agent(name, to) for name in self._set_up):
            return
        known = await self._seen()
        if to not in known:
            near = did_you_mean(to, sorted(known | set(self._set_up))) or "; for whoever has a role, ask role:NAME"
            raise Refused(
                "unknown_agent", f"nobody is called {to!r}: not set up here, no key, never seen{near}", where="to"
            )
        self._checked.add(to)

    async def _seen(self) -> set[str]:
        names = {word.removeprefix(_SEEN) for word in await self._store.view_kept(_SEEN)}
        for text in (await self._store.view_kept(SUPERVISORS)).values():
            posts = msgspec.json.decode(text, type=Presence).posts
            names |= {name for post in posts for name in (post.agent, *names_of(post.holder))}
        for text in (await self._store.view_kept(KEYS)).values():
            names |= set(msgspec.json.decode(text, type=Key).agents)
        after = ""
        while True:
            page = await self._store.view_tasks(TaskFilter(states=("held",), after=after, limit=_PAGE))
            names |= {name for row in page if row.lease is not None for name in names_of(row.lease.agent)}
            if len(page) < _PAGE:
                return names
            after = page[-1].task.id
