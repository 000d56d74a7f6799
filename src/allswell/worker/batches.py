"""Messages that are sent together, with one more that is sent when the last of them has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from psycopg import Connection
from psycopg.types.json import Jsonb

from allswell.domain.layers import whole
from allswell.domain.message import BATCH
from allswell.worker.queue import statement


def end_of_batch(connection: Connection[Any], headers: Mapping[str, Any]) -> None:
    """A message has ended for good, in this transaction; if it was the last of its batch, send what follows."""
    batch = headers.get(BATCH)
    if not whole(batch):
        return
    for queue, message in connection.execute(statement("end_of_batch"), (batch,)).fetchall():
        connection.execute(statement("send"), (queue, Jsonb(message), None, 0))
        connection.execute(statement("forget_batch"), (batch,))
