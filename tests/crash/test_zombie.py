"""A holder that was stopped past its lease and goes on: refused on every write, on both stores."""

import asyncio
import os
import signal

import pytest

import allswell
from tests.crash.conftest import Start

VERBS = ["checkin", "renew", "fail", "release", "ask", "complete"]


@pytest.mark.realtime
@pytest.mark.row("O10")
def test_a_stopped_holder_changes_nothing(url: str, start: Start) -> None:
    """Promise 2: its word is refused while another holds the task, and what it brought is kept."""

    async def scene() -> None:
        async with allswell.open(url) as watch:
            task = await watch.submit("fragile")
            process = start("zombie", url, "sleeper")
            assert process.stdout is not None
            assert process.stdin is not None
            loop = asyncio.get_running_loop()
            while True:
                line = await loop.run_in_executor(None, process.stdout.readline)
                if line.startswith("holding"):
                    break
                assert line == "open\n"
            os.kill(process.pid, signal.SIGSTOP)
            lease = await watch.claim(agent="heir", wait="30s")
            assert lease is not None
            assert (lease.task, lease.token) == (task, 2)
            assert lease.handover is not None
            assert lease.handover.reason == "lease_lapsed"
            os.kill(process.pid, signal.SIGCONT)
            said, _ = await loop.run_in_executor(None, process.communicate, "\n")
            assert said.split() == [word for verb in VERBS for word in ("refused", verb)]
            await lease.complete("the heir's")
            assert await watch.result(task) == "the heir's"
            first, second = await watch.attempts(task)
            assert (first.outcome, second.outcome) == ("lease_lapsed", "done")
            assert first.late is not None

    asyncio.run(scene())
