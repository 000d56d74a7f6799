"""The messages of a queue that did not go through, one by one: those that no open question is about."""

from __future__ import annotations

from typing import Any

import msgspec
from psycopg import Connection

from allswell.worker.queue import Queue

MOST = 50
"""Of each queue; how many there are in all is counted apart."""


class TroubledMessage(msgspec.Struct, frozen=True):
    """One of them."""

    id: int
    state: str
    """`answered` (a worker has yet to carry it out), `retrying` or `failed`."""
    code: str
    reason: str
    retries: int
    noted_at: int
    next_at: int | None
    """When it is tried again."""
    choice: str
    """What a human has decided about it."""
    answered_by: str


def troubled_in(connection: Connection[Any], queue: str) -> list[TroubledMessage]:
    """Those of a queue that are neither settled nor before a human, what was answered first."""
    return [TroubledMessage(*row) for row in Queue(queue).troubled(connection, MOST)]
