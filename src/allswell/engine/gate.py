"""A watch that is shown to callers from elsewhere: to each of them as its key allows.

The gate opens the watch once, for all of them. `admit` looks up the key that a caller shows, and remembers it for a
second: so every call does not cost a look into the store, and a key that was revoked in another process holds no
longer than that. One that is revoked through this gate is forgotten at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import Self

from msgspec.structs import replace

from allswell.domain.access import NO_POLICIES
from allswell.domain.key import Key, check_key, parts_of
from allswell.domain.names import Millis
from allswell.domain.policy import Policy
from allswell.domain.request import FIGURES, MeshFigures
from allswell.engine.admitted import Admitted
from allswell.engine.backend import Backend
from allswell.engine.budgeting import NO_BUDGETS, Budgets
from allswell.engine.ids import Ids
from allswell.engine.keyring import Keyring
from allswell.engine.known_agents import KnownAgents
from allswell.engine.sessions import SessionDesk
from allswell.engine.watch import Watch
from allswell.errors import Refused

REMEMBERED = 1_000
"""Milliseconds."""
_MOST = 10_000


class Gate:
    """A watch for callers with keys."""

    def __init__(
        self,
        behind: Backend,
        ids: Ids,
        *,
        policies: Mapping[str, Policy] | None = None,
        mesh: MeshFigures = FIGURES,
        budgets: Budgets = NO_BUDGETS,
    ) -> None:
        self._behind = behind
        self._ids = ids
        self._policies = policies
        self._budgets = budgets
        self._mesh = replace(mesh, agents=None)  # who can be asked is looked up here, and not by callers
        self._agents = None if mesh.agents is None else KnownAgents(behind.store, mesh.agents)
        self._known: dict[str, tuple[Key | None, int]] = {}
        """Keys by name, and when they were looked up, on this process's own clock."""
        self.watch = Watch(behind, ids, policies=policies, mesh=mesh)
        """The whole of it: for the server itself, and for nobody who calls."""
        self.keyring = Keyring(self.watch)
        self.sessions = SessionDesk(self.watch)

    async def __aenter__(self) -> Self:
        await self.watch.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.watch.__aexit__(kind, error, trace)

    async def admit(self, shown: str) -> Key:
        """The key that was shown, if it is one and holds; otherwise `Refused`."""
        parts = parts_of(shown)
        if parts is None:
            raise Refused("bad_key", "this is no key of Allswell's", where="Authorization")
        name, secret = parts
        return check_key(await self._find(name), secret, Millis(self._behind.clock.wall()))

    async def _find(self, name: str) -> Key | None:
        now = self._behind.clock.monotonic()
        known = self._known.get(name)
        if known is not None and now - known[1] < REMEMBERED:
            return known[0]
        if len(self._known) >= _MOST:
            self._known.clear()
        found = await self.keyring.find(name)
        self._known[name] = (found, now)
        return found

    def forget(self, name: str) -> None:
        """Look this key up again: it was changed here."""
        self._known.pop(name, None)
        self.sessions.forget(name)

    def backend_for(self, key: Key) -> Backend:
        """Where the commands of a caller with this key go."""
        return Admitted(self._behind, self._ids, key, self._agents, self._policies or NO_POLICIES, self._budgets)

    async def note(self, agent: str) -> None:
        """An agent was here, and can be asked from now on; whoever says so has looked at its key."""
        if self._agents is not None:
            await self._agents.note(agent)

    def watch_for(self, key: Key) -> Watch:
        """The watch as a caller with this key has it; it lives as long as the gate is open."""
        return Watch(self.backend_for(key), self._ids, policies=self._policies, mesh=self._mesh)
