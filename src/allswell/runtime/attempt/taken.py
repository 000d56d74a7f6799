"""What the store says about an attempt that it has ended itself, whoever noticed it first.

A sweeper may end a lease before the attempt's own clock does, in this process or another; a supervisor that was frozen
finds all its leases gone. The receipt then says what the store says, not only that the lease is lost.
"""

from __future__ import annotations

import asyncio
import contextlib

from msgspec.structs import replace

from allswell.domain.receipt import End, taken_away
from allswell.engine.handle import Lease
from allswell.errors import AllswellError, LeaseLost
from allswell.runtime.attempt.keeping import Ended
from allswell.runtime.warden import Ending, Result

_PATIENCE = 1.0
"""Seconds for the store to answer: meanwhile the agent goes on."""


async def as_the_store_has_it(lease: Lease, ended: Ended) -> Ended:
    """The end of an attempt whose lease may be gone: by itself or not, it is told as the store has it."""
    by_itself = ended.result is not None
    if by_itself:
        await _ask_if_in_doubt(lease)
    if lease.over or (lease.lost is None and ended.end is not End.LEASE_LOST):
        return ended
    told = await ended_by(lease)
    if told is None:
        return ended
    end, reason = told
    if by_itself:
        ends = ended.end if ended.end is not End.DONE else end
        return replace(ended, end=ends, reason=f"{ended.reason}, but too late: {reason}")
    return replace(ended, end=end, reason=reason, limit=lease.limit if end is End.TIMEOUT else ended.limit)


def overtaken(ended: Ended, result: Result) -> Ended:
    """An end that was decided, with how the tree then ended: it may have been quicker than we were."""
    reason = ended.reason
    if result.ending is Ending.EXITED:
        reason = f"exit code {result.exit_code}, but too late: {reason}"
    return replace(ended, result=result, reason=reason)


async def ended_by(lease: Lease) -> tuple[End, str] | None:
    """How and why the store has ended a lease; None if it has not, or does not answer. Then the lease is lost."""
    with contextlib.suppress(AllswellError, TimeoutError):
        async with asyncio.timeout(_PATIENCE):
            past = await lease.past()
        if past is not None:
            end, reason = taken_away(past.outcome, past.detail, lease.limit)
            if lease.lost is None:
                lease.lost = LeaseLost(lease.task, lease.token, reason)
            return end, reason
    return None


async def _ask_if_in_doubt(lease: Lease) -> None:
    """Renew a lease that may have lapsed while nobody could: a loss then stands in it."""
    if lease.remaining == 0 and lease.lost is None and not lease.over:
        with contextlib.suppress(AllswellError, TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await lease.renew()
