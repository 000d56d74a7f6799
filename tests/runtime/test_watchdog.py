"""A loop that does not turn is noticed from outside, with the line at which it stands."""

from __future__ import annotations

import asyncio
import logging
import threading

import pytest

from allswell.errors import Refused
from allswell.runtime.host import BlockedLoop, LoopWatchdog


def test_a_blocked_loop_is_reported_once_with_its_stack() -> None:
    found: list[BlockedLoop] = []
    seen = threading.Event()

    def report(blocked: BlockedLoop) -> None:
        if "in block_the_loop" in blocked.stack:  # and not that a busy machine gave us no turn before
            found.append(blocked)
            seen.set()

    def block_the_loop() -> None:
        assert seen.wait(30)
        assert not threading.Event().wait(0.1)  # five times the limit: it is not said again

    async def main() -> None:
        async with LoopWatchdog(20, on_blocked=report):
            await asyncio.sleep(0)
            block_the_loop()

    asyncio.run(main())
    assert len(found) == 1
    assert found[0].seconds >= 0.02


def test_a_loop_that_turns_is_not_reported() -> None:
    found: list[BlockedLoop] = []

    async def main() -> None:
        async with LoopWatchdog("10s", on_blocked=found.append):
            for _ in range(100):
                await asyncio.sleep(0)

    asyncio.run(main())
    assert found == []


def test_the_report_is_a_warning_unless_told_otherwise(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with LoopWatchdog(10):
            while "has not turned" not in caplog.text:
                threading.Event().wait(0.05)  # blocks the loop
                await asyncio.sleep(0)

    with caplog.at_level(logging.WARNING):
        asyncio.run(main())


def test_what_cannot_be_is_refused() -> None:
    with pytest.raises(Refused, match="limit"):
        LoopWatchdog(0)

    async def main() -> None:
        dog = LoopWatchdog()
        async with dog:
            pass
        with pytest.raises(RuntimeError, match="make a new one"):
            await dog.__aenter__()

    asyncio.run(main())
