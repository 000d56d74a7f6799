"""A worker's figures: a message must not become visible to others while it is still being handled (W2, W3)."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from allswell.domain.arithmetic.figure import Figure
from allswell.domain.arithmetic.finding import Finding, Rule, Severity
from allswell.domain.arithmetic.sum import Sum, exact, one

STATEMENT_BEFORE_VISIBILITY = Rule(
    "statement_before_visibility", Severity.ERROR, "A statement is cut off before its message is given to another."
)
POOL_BEFORE_VISIBILITY = Rule(
    "pool_before_visibility", Severity.ERROR, "Waiting for a connection does not eat a message's time."
)


class WorkerLimits(msgspec.Struct, frozen=True):
    """How a worker handles a message."""

    visibility: Figure
    statement: Figure
    pool_wait: Figure
    connection_first: bool = True
    """Whether a connection is taken before the message is read, so that the wait for it costs the message nothing."""


def statement_before_visibility(worker: WorkerLimits) -> Iterator[Finding]:
    """0 < statement timeout < visibility timeout."""
    statement, visibility = worker.statement, worker.visibility
    if statement.value <= 0:
        yield STATEMENT_BEFORE_VISIBILITY.broken(
            f"{statement.name} of {statement.length} ms means no limit at all to PostgreSQL.",
            (statement,),
            fix=f"Give it more than 0 and less than {visibility.name} ({exact(visibility.length)}).",
        )
    elif statement.value >= visibility.value:
        yield STATEMENT_BEFORE_VISIBILITY.broken(
            f"{statement.name} ({statement.length} ms) must be less than {visibility.name} ({visibility.length} ms),"
            " or a message is handed to another worker while the first still writes.",
            (statement, visibility),
            sum=Sum((one(statement.length),), "≥", visibility.length),
            fix=f"Make {visibility.name} more than {exact(statement.length)}"
            + (f", or {statement.name} less than {exact(visibility.length)}." if visibility.length > 1 else "."),
        )


def pool_before_visibility(worker: WorkerLimits) -> Iterator[Finding]:
    """Pool wait + statement < visibility, where the message is read first; elsewhere it only ought to be.

    Who takes the connection first has waited before there is a message to lose. But a handler that takes a second one
    from the same pool waits with the message in hand, and nobody can see to it that none does.
    """
    pool, statement, visibility = worker.pool_wait, worker.statement, worker.visibility
    if pool.value + statement.value < visibility.value:
        return
    outlast = f"{pool.name} and {statement.name} together outlast {visibility.name}"
    longer = f"make {visibility.name} more than {exact(pool.length + statement.length)}"
    added = Sum((one(pool.length), one(statement.length)), "≥", visibility.length)
    if not worker.connection_first:
        yield POOL_BEFORE_VISIBILITY.broken(
            "A message that is read before a connection is there can be given to another worker before its statement"
            f" is cut off: {outlast}.",
            (pool, statement, visibility),
            sum=added,
            fix=f"Take the connection before the message is read, or {longer}.",
        )
    else:
        yield POOL_BEFORE_VISIBILITY.broken(
            "The worker has its connection before it reads a message; but the message of a handler that takes another"
            f" one can be given away before its statement is cut off: {outlast}.",
            (pool, statement, visibility),
            sum=added,
            fix=f"Let handlers use the connection that they are given, or {longer}.",
            severity=Severity.WARNING,
        )
