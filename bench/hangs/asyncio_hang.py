"""What the standard library has: `asyncio.timeout`, one slot, and a pool of one thread for sync code."""

import asyncio
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import stage

SETTING = "asyncio.timeout(1)"


async def main(case: str) -> None:
    """One slot."""
    slot, threads = asyncio.Semaphore(1), ThreadPoolExecutor(1)
    loop = asyncio.get_running_loop()

    async def first() -> None:
        async with slot:
            try:
                async with asyncio.timeout(stage.LIMIT):
                    if stage.is_sync(case):
                        await loop.run_in_executor(threads, stage.hanging_sync, case)
                    else:
                        await stage.hanging(case)
            except TimeoutError:
                stage.note("noticed")

    async def second() -> None:
        async with slot:
            await loop.run_in_executor(threads, stage.following)

    await asyncio.gather(first(), second())


stage.ready()
threading.Thread(target=lambda: asyncio.run(main(sys.argv[2])), daemon=True).start()
stage.tell(SETTING)
