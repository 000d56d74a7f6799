"""A claim that waits for its caller, and no longer.

A caller that hung up takes nothing. One that asks again under the same id, since it got no answer or gave the claim up,
ends the wait of the call before: whatever that was given in this very moment, the new call is answered with.
"""

from __future__ import annotations

import asyncio

from allswell.domain.command import Claim
from allswell.domain.names import NO_COMMAND
from allswell.doors.http.call import Call
from allswell.engine.backend import Claimed


async def claimed(call: Call, claim: Claim, wait: int) -> Claimed:
    """What is claimed within so many milliseconds."""
    waiting = call.house.waiting
    name = f"{call.key.name}/{claim.id}"
    earlier = waiting.get(name)
    if earlier is not None:
        earlier.cancel()
        await asyncio.wait([earlier])
    if not wait:
        return await _claim(call, claim, wait)  # nothing is waited for, so nobody need be asked whether it still is
    work = asyncio.ensure_future(_claim(call, claim, wait))
    if claim.id != NO_COMMAND:
        waiting[name] = work
    try:
        return await call.unless_gone(work)
    finally:
        if waiting.get(name) is work:
            del waiting[name]


async def _claim(call: Call, claim: Claim, wait: int) -> Claimed:
    return await call.backend.claim(claim, wait=call.patience(wait))
