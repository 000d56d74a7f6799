"""Allswell, in one process: a tool with a limit, one slot, and the watchdog of the loop on."""

import asyncio
import logging
import sys
import threading

import stage

import allswell
from allswell.domain.scopes import ScopeLimits
from allswell.runtime.calls import Threads, run_in_thread
from allswell.runtime.deadlines import use_limits
from allswell.runtime.host import BlockedLoop, LoopWatchdog

SETTING = "tool(timeout=1s), scope_grace=1s, LoopWatchdog(1s)"


def blocked(_: BlockedLoop) -> None:
    """The loop does not turn."""
    stage.note("noticed")


async def main(case: str) -> None:
    """One slot: of the pool of threads for sync code, and for all of it together."""
    slot, threads = asyncio.Semaphore(1), Threads(1)

    async def first() -> None:
        async with slot:
            scope = allswell.tool("case", timeout=stage.LIMIT * 1_000)
            try:
                if stage.is_sync(case):
                    await run_in_thread(scope, lambda: stage.hanging_sync(case), threads=threads)
                else:
                    await allswell.run(scope, stage.hanging, case)
            except allswell.ScopeTimeout:
                stage.note("noticed")

    async def second() -> None:
        async with slot:
            await run_in_thread(allswell.tool("next"), stage.following, threads=threads)

    async with LoopWatchdog(stage.LIMIT * 1_000, on_blocked=blocked):
        await asyncio.gather(first(), second())


logging.disable(logging.WARNING)
use_limits(ScopeLimits(grace=int(stage.GRACE * 1_000)))
stage.ready()
threading.Thread(target=lambda: asyncio.run(main(sys.argv[2])), daemon=True).start()
stage.tell(SETTING)
