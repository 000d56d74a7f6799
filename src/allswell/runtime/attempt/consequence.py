"""What an outcome usually means for its task, said to the store under the attempt's lease.

An attempt does not do this itself: flows and supervisors may mean something else. What the agent has said itself
stands, and a lease that is over is left as it is.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import assert_never

from msgspec import UNSET

from allswell.domain.receipt import End
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.verification import AfterCheck
from allswell.engine.handle import Lease
from allswell.errors import LeaseLost, Refused
from allswell.runtime.attempt.order import Outcome

_MESSAGE = 2_000
TRIED_AGAIN = (End.FAILED, End.SIGNALLED, End.LOST, End.ORPHANED, End.IDLE, End.COSTLY)
"""Ends after which a task may be tried again by itself."""
_LIMIT_NEAR = 1_000
"""Milliseconds by which the store's clock may be behind ours when a limit is reached."""


async def report(lease: Lease, outcome: Outcome) -> AfterCheck | None:
    """Complete, fail, give back or count, as the end was; and let the journal know of the receipt.

    What followed from the verification of its work is the answer, where there was one.
    """
    followed: AfterCheck | None = None
    if outcome.said is None and not lease.over:
        with suppress(LeaseLost):  # the store was quicker: it has judged the attempt already
            if lease.lost is None and outcome.over_cost and outcome.end in TRIED_AGAIN:
                await lease.end_costly()
            elif lease.lost is None:
                followed = await _say(lease, outcome)
            elif outcome.by_itself:
                await offer(lease, {"exit_code": outcome.exit_code} if outcome.exit_code == 0 else None, outcome)
    if outcome.receipt is not None:
        with suppress(LeaseLost, Refused):
            await lease.keep(outcome.receipt.id, outcome.end.value, str(outcome.receipt_path or ""))
    return followed


async def finish(lease: Lease, outcome: Outcome, result: object) -> AfterCheck | None:
    """The attempt says that it is done; where that had to be verified, with the verdict, and what followed from it."""
    check = outcome.verification
    if check is None:
        await lease.complete(result)
        return None
    return await lease.verified(
        passed=check.passed,
        why=check.why,
        said=check.output,
        elapsed=check.elapsed_ms,
        result=UNSET if outcome.brought else result,
    )


async def offer(lease: Lease, result: object, outcome: Outcome) -> None:
    """What an attempt brought whose lease is lost: the store refuses it (`LeaseLost`), and keeps it (O10)."""
    if outcome.failure is None and result is not None:
        await lease.complete(result)
    else:
        await lease.fail(outcome.failure or Failure(ErrorClass.TRANSIENT, outcome.reason[:_MESSAGE]))


async def _give_back(lease: Lease, outcome: Outcome) -> None:
    """Back to the pool; or, where it was ended for a request that nobody answers, the task waits for that."""
    if lease.blocked_on is not None and outcome.end is End.RELEASED:
        await lease.wait_for(lease.blocked_on, claims=False)
    else:
        await lease.release(outcome.reason[:_MESSAGE])


async def _say(lease: Lease, outcome: Outcome) -> AfterCheck | None:
    match outcome.end:
        case End.DONE | End.UNVERIFIED:
            return await finish(lease, outcome, {"exit_code": outcome.exit_code})
        case End.FAILED | End.SIGNALLED | End.LOST | End.ORPHANED:
            await lease.fail(outcome.failure or Failure(ErrorClass.TRANSIENT, outcome.reason[:_MESSAGE]))
        case End.NOT_STARTED:
            await lease.fail(Failure(ErrorClass.VALIDATION, outcome.reason[:_MESSAGE]))
        case End.TIMEOUT:
            # The limit is the store's own to declare (O4). Where an attempt had a nearer one of its own, it failed.
            if lease.until_limit > _LIMIT_NEAR:
                await lease.fail(Failure(ErrorClass.TRANSIENT, outcome.reason[:_MESSAGE]))
            else:
                await asyncio.sleep(lease.until_limit / 1_000)
        case End.IDLE:
            receipt = outcome.receipt
            await lease.end_idle(None if receipt is None else receipt.limit_ms, outcome.last_words)
        case End.STALLED:
            try:
                await lease.recover()
            except Refused:  # the store does not hold it for stalled: it has spoken since
                await lease.release(outcome.reason[:_MESSAGE])
        case End.INTERRUPTED | End.RELEASED | End.ASKED | End.COSTLY:
            await _give_back(lease, outcome)
        case End.LEASE_LOST | End.CANCELLED:
            pass
        case _:
            assert_never(outcome.end)
    return None
