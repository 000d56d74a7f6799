"""What a claim is to be picked from."""

from __future__ import annotations

import msgspec

from allswell.domain.names import AgentId, RunId


class Pick(msgspec.Struct, frozen=True):
    """What `Transaction.pick` is asked for."""

    lanes: tuple[int, ...]
    count: int
    agent: AgentId | None
    outside: tuple[RunId, ...] = ()
