"""One agent of the demo: a process of its own that claims tasks and does them well, badly, or not at all."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

import allswell

STEPS = 4
STEP_SECONDS = 0.25


async def do(lease: allswell.Lease) -> None:
    """Work on one task in small steps, as its payload and this agent's temper want it."""
    temper = lease.payload["temper"] if lease.attempt == 1 else "honest"
    for step in range(STEPS):
        await asyncio.sleep(STEP_SECONDS)
        await lease.checkin(f"step {step + 1} of {STEPS}", progress=(step + 1) / STEPS)
        if step == 1 and temper == "crashes":
            os.kill(os.getpid(), signal.SIGKILL)
        if step == 1 and temper == "hangs":
            os.kill(os.getpid(), signal.SIGSTOP)
            break  # woken much later, it believes it is still the holder
        if step == 1 and temper == "errs":
            await lease.fail(ConnectionError("the model's API reset the connection"))
            return
        if step == 1 and temper == "asks" and not lease.notes:
            await lease.ask("Two tables are called `users`. Which one shall I migrate?")
            return
        if step == 1 and temper == "dawdles":
            await asyncio.sleep(60)
    await lease.complete({"by": lease.agent, "attempt": lease.attempt})


async def main(url: str, name: str) -> None:
    """Claim and work until nothing comes any more."""
    async with allswell.open(url) as watch:
        while True:
            lease = await watch.claim(agent=name, wait="30s", lease="1s")
            if lease is None:
                return
            try:
                await do(lease)
            except allswell.LeaseLost:
                continue  # someone else has it now; what was brought too late is kept


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
