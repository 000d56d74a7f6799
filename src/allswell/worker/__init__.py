"""Message handlers on PostgreSQL and PGMQ: a worker that stays responsive whatever a handler or the database does.

from allswell.worker import Worker
"""

from __future__ import annotations

from allswell.domain.worker.message import Message

try:
    import psycopg_pool  # noqa: F401 - asked for once, here, so that what is missing is said plainly
except ImportError as error:
    raise ImportError(
        "the worker needs the extra `worker`: in Allswell's clone, type `uv tool install '.[worker]'`"
    ) from error

from allswell.worker.errors import BusinessFailure, HandlerFailure, OutOfTime, Permanent, Transient
from allswell.worker.handlers import Handlers
from allswell.worker.queue import send, send_async, send_batch, send_batch_async
from allswell.worker.setup import setup
from allswell.worker.worker import Worker

__all__ = [
    "BusinessFailure",
    "HandlerFailure",
    "Handlers",
    "Message",
    "OutOfTime",
    "Permanent",
    "Transient",
    "Worker",
    "send",
    "send_async",
    "send_batch",
    "send_batch_async",
    "setup",
]
