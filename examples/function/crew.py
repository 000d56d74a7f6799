"""Two agents: what a function gets is its task and a way to speak; what it returns is the task's result."""

import asyncio
from pathlib import Path

from allswell import SyncWork, Work


async def read(work: Work) -> dict[str, int]:
    """Read a file, checking in on the way."""
    text = await asyncio.to_thread(Path(work.folder, work.payload).read_text)
    await work.checkin("read it", progress=0.5)
    return {"characters": len(text)}


def count(work: SyncWork) -> dict[str, int]:
    """Count words, in a process that can be ended."""
    text = Path(work.folder, work.payload).read_text()
    work.checkin("read it", progress=0.5)
    return {"words": len(text.split())}
