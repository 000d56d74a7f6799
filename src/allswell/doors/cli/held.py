"""Which lease a holder speaks about: named by options, or by the environment it was started in."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.names import AgentId, TaskId
    from allswell.domain.names import Token as TokenNumber
    from allswell.doors.cli.frame import Frame
    from allswell.engine.watch import Watch


class Held(NamedTuple):
    """Which lease is meant: the first fields of every word a holder says."""

    task: TaskId
    token: TokenNumber
    agent: AgentId


async def hold_of(frame: Frame, watch: Watch, task: str | None, token: int | None, agent: str | None) -> Held:
    """The lease that the options or the environment name. An agent that is not named is who has had that token."""
    from allswell.doors.cli.ids import find_task

    if not task:
        raise Refused("no_task", "which task? give --task ID, or set ALLSWELL_TASK", where="task")
    if token is None:
        raise Refused("no_token", "which lease? give --token N as the claim said, or set ALLSWELL_TOKEN", where="token")
    from allswell.domain.names import AgentId
    from allswell.domain.names import Token as TokenNumber

    store = watch.engine.store
    found = await find_task(store, task)
    frame.for_its_holder(found, token)
    if not agent:
        row = await store.view_task(found)
        holders = [past.agent for past in await store.view_attempts(found) if past.token == token]
        if row is not None and row.lease is not None and row.lease.token == token:
            holders = [row.lease.agent]
        agent = holders[0] if holders else "unknown"
    return Held(found, TokenNumber(token), AgentId(agent))
