"""A watch as those have it who do the work: take tasks, hold them, prove progress on many, complete many."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from allswell.domain.claim import Granted
from allswell.domain.command import Claim
from allswell.domain.duration import Duration, parse
from allswell.domain.hold import Orders
from allswell.domain.names import NO_COMMAND, AgentId, TaskId
from allswell.engine.backend import Backend
from allswell.engine.handle import Lease
from allswell.engine.ids import Ids
from allswell.engine.mesh import Mesh
from allswell.engine.meshing import Meshing
from allswell.engine.renewing import Renewing, say_many
from allswell.errors import AllswellError, Refused


class Claiming(Meshing):
    """What is claimed through an open watch, and held for as long as it is open."""

    def __init__(self, engine: Backend, ids: Ids, mesh: Mesh) -> None:
        super().__init__(engine, ids, mesh)
        self._renewing = Renewing(engine)

    async def claim(
        self,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: Duration = 0,
        lease: Duration | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> Lease | None:
        """Take one task, or None if there is none within `wait`.

        With `task` it is that one or none.
        """
        got = await self.claim_many(1, agent=agent, roles=roles, wait=wait, lease=lease, command=command, task=task)
        return got[0] if got else None

    async def claim_many(
        self,
        count: int,
        *,
        agent: str,
        roles: Sequence[str] | None = None,
        wait: Duration = 0,
        lease: Duration | None = None,
        command: str | None = None,
        task: str | None = None,
    ) -> list[Lease]:
        """Take up to `count` tasks. With `lease`, they are renewed for as long as this watch is open, or else lapse."""
        seconds = parse(wait, where="wait") / 1_000
        length = None if lease is None else parse(lease, where="lease")
        if isinstance(roles, str):
            raise Refused("bad_field", "roles must be a list", where="roles")
        wanted = {
            "id": command or NO_COMMAND,
            "agent": agent,
            "roles": None if roles is None else tuple(roles),
            "count": count,
            "length": length,
            "task": task,
        }
        try:
            claim = msgspec.convert(wanted, Claim)
        except msgspec.ValidationError as error:
            raise Refused("bad_field", f"this cannot be claimed: {error}", where="claim") from None
        granted = await self._engine.claim(claim, wait=seconds)
        return [self.hold(one, granted.sent) for one in granted.granted]

    async def claim_each(
        self, tasks: Sequence[TaskId], *, agent: str, lease: int | None = None
    ) -> list[Lease | AllswellError | None]:
        """Take these tasks, each if it can be had; a lease, None, or what is wrong, for each."""
        claims = [Claim(NO_COMMAND, AgentId(agent), length=lease, task=task) for task in tasks]
        answers, sent = await self._engine.claim_each(claims)
        got: list[Lease | AllswellError | None] = []
        for answer in answers:
            if isinstance(answer, AllswellError):
                got.append(answer)
            else:
                got.append(self.hold(answer[0], sent) if answer else None)
        return got

    def hold(self, granted: Granted, sent: float) -> Lease:
        """A handle on what was granted when this was sent; renewed for as long as this watch is open, if it need be."""
        held = Lease(self._engine, self._ids, granted, sent, self._mesh)
        if held.length is not None:
            self._renewing.hold(held)
        return held

    async def checkin_many(self, leases: Sequence[Lease]) -> list[Orders | AllswellError]:
        """Prove progress on many leases at once; orders, or what went wrong, for each."""
        return await say_many(self._engine, leases, proof=True)

    async def renew_many(self, leases: Sequence[Lease]) -> list[Orders | AllswellError]:
        """Renew many leases at once, without proof of progress; orders, or what went wrong, for each."""
        return await say_many(self._engine, leases, proof=False)

    async def complete_many(self, done: Sequence[tuple[Lease, object]]) -> list[AllswellError | None]:
        """Complete many tasks at once, each with its result; what went wrong, or None, for each."""
        # One word about many tasks: each knows it again by its own lease. Of the same task twice it would be two words.
        one = self._ids.command() if len({lease.task for lease, _ in done}) == len(done) else None
        commands = [lease.completion(result, one or self._ids.command()) for lease, result in done]
        answers = await self._engine.do_many(commands)
        return [lease.ended(answer) for (lease, _), answer in zip(done, answers, strict=True)]
