"""A watch as agents have it that ask and answer each other; and as those who speak for one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Unpack

from allswell.domain.duration import Duration, parse
from allswell.domain.inbox import InboxItem
from allswell.domain.names import AgentId, TaskId, Token
from allswell.engine.backend import Backend
from allswell.engine.guarding import Guarding
from allswell.engine.held import Held
from allswell.engine.ids import Ids
from allswell.engine.mesh import Mesh, Requested, Wishes


class Meshing(Guarding):
    """What agents say to each other, through an open watch."""

    def __init__(self, engine: Backend, ids: Ids, mesh: Mesh) -> None:
        super().__init__(engine, ids)
        self._mesh = mesh

    def held(self, task: str, token: int, agent: str) -> Held:
        """An attempt that somebody holds, to speak for it: nothing is asked before something is said."""
        return Held(self._engine, self._ids, TaskId(task), Token(token), AgentId(agent), self._mesh)

    async def request(
        self,
        to: str,
        kind: str,
        summary: str,
        *,
        held: Held,
        roles: Sequence[str] | None = None,
        lease: Duration | None = None,
        **wishes: Unpack[Wishes],
    ) -> Requested:
        """Ask another agent for whoever holds an attempt, and wait for the answer: as `Lease.request`."""
        return await held.request(to, kind, summary, roles=roles, lease=lease, **wishes)

    async def inbox(self, agent: str, *, roles: Sequence[str] = (), wait: Duration = 0) -> list[InboxItem]:
        """The requests that this agent, which has these roles, can answer; `wait` is as of `claim`."""
        return await self._mesh.inbox(agent, roles, wait=parse(wait, where="wait") / 1_000)

    async def inboxes(self, agents: Mapping[str, Sequence[str]]) -> dict[str, list[InboxItem]]:
        """What each of these agents, with its roles, can answer: one look for all of them."""
        return await self._mesh.inboxes(agents)

    async def respond(
        self, request: str, answer: object = None, *, agent: str, roles: Sequence[str] = (), command: str | None = None
    ) -> None:
        """Answer a request, as this agent; the first answer counts, and a late one too."""
        await self._mesh.respond(request, answer, agent=agent, roles=roles, command=command)
