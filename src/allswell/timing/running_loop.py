"""The event loop that this code runs in, if there is one."""

from __future__ import annotations

import asyncio


def running_loop() -> asyncio.AbstractEventLoop | None:
    """The running event loop; None in a thread that has none."""
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None
