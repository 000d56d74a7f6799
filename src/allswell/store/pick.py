"""What a claim is to be picked from."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from allswell.domain.names import AgentId, RunId


class Pick(msgspec.Struct, frozen=True):
    """What `Transaction.pick` is asked for."""

    lanes: tuple[int, ...]
    count: int
    agent: AgentId | None
    outside: tuple[RunId, ...] = ()


Guess = Callable[[], Pick | None]
"""Which pick will most likely be asked for; only a store that gains by it asks."""


def unknown() -> None:
    """No guess."""
    return
