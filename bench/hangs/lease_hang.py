"""Allswell, across processes: a task with a limit, held by a process that hangs; another one waits for work."""

import asyncio
import subprocess
import sys

import stage

import allswell

SETTING = "submit(timeout=1s)"
url, case = sys.argv[1:3]


def hold_sync() -> None:
    """Claim the task, and hang with it."""
    with allswell.open(url) as watch:
        stage.note("holder is ready")
        assert watch.claim(agent="A", wait="30s") is not None
        stage.hanging_sync(case)


async def hold() -> None:
    """The same on an event loop."""
    async with allswell.open(url) as watch:
        stage.note("holder is ready")
        assert await watch.claim(agent="A", wait="30s") is not None
        await stage.hanging(case)


async def move_on() -> None:
    """Wait for the task to come back; any process on the store sees to its limits."""
    async with allswell.open(url) as watch:
        await asyncio.to_thread(stage.awaited, "holder is ready")
        await asyncio.to_thread(stage.ready)
        await watch.submit("case", timeout=int(stage.LIMIT * 1_000))
        await asyncio.to_thread(stage.awaited, "began")

        async def notice() -> None:
            async for entry in watch.events(follow=True):
                if entry.event.kind == "agent_timeout":
                    stage.note("noticed")
                    return

        seeing = asyncio.create_task(notice())
        if await watch.claim(agent="B", wait=round((stage.LIMIT + stage.WATCHED) * 1_000)) is not None:
            stage.following()
        await asyncio.wait([seeing], timeout=1)
    await asyncio.to_thread(stage.tell, SETTING)


if len(sys.argv) > 3:
    hold_sync() if stage.is_sync(case) else asyncio.run(hold())
else:
    subprocess.Popen([sys.executable, __file__, url, case, "hold"], stdout=subprocess.DEVNULL)
    asyncio.run(move_on())
