"""Two processes on one store: no deadlock, no starvation, no lost wake-up."""

import asyncio
import os
import time
from collections import Counter
from subprocess import Popen

import pytest

import allswell
from tests.crash.conftest import Start

SECONDS = float(os.environ.get("ALLSWELL_MIXED_SECONDS", "4"))


@pytest.mark.realtime
@pytest.mark.timeout(90)
def test_mixed_work_of_two_processes(url: str, start: Start) -> None:
    """Both get on, nothing is completed twice, and this third process's claims are always served in time."""

    async def scene() -> None:
        async with allswell.open(url) as watch:
            processes = [start("race", url, name) for name in ("left", "right")]
            await asyncio.gather(*(asyncio.to_thread(_begun, process) for process in processes))
            loop = asyncio.get_running_loop()
            readers = [loop.run_in_executor(None, _count, process) for process in processes]
            until = time.monotonic() + SECONDS
            slowest = 0.0
            try:
                while time.monotonic() < until:
                    await watch.submit("mine", role="mine", priority=5)
                    begun = time.monotonic()
                    lease = await watch.claim(agent="third", roles=["mine"], wait="20s")
                    slowest = max(slowest, time.monotonic() - begun)
                    assert lease is not None
                    await lease.complete()
            finally:
                for process in processes:
                    process.kill()
            left, right = [await reader for reader in readers]
            assert min(left["completed"], right["completed"]) * 20 > max(left["completed"], right["completed"]) > 0
            assert slowest < 5
            completed = Counter(
                [entry.event.task async for entry in watch.events() if entry.event.kind == "task_completed"]
            )
            assert max(completed.values()) == 1
            assert await watch.unaccounted() == []

    asyncio.run(scene())


def _begun(process: "Popen[str]") -> None:
    """Wait until it has done something: how long a process takes to start is not what is asked here."""
    assert process.stdout is not None
    assert process.stdout.readline(), "it has ended"


def _count(process: "Popen[str]") -> Counter[str]:
    assert process.stdout is not None
    return Counter(line.split()[0] for line in process.stdout)


def test_a_waiting_claim_hears_of_work_from_another_process(url: str, start: Start) -> None:
    """A claim that waits is served when somebody else submits."""

    async def scene() -> None:
        async with allswell.open(url) as watch, allswell.open(url) as other:
            waiting = asyncio.create_task(watch.claim(agent="patient", wait="20s"))
            await other.submit("at last")
            lease = await waiting
            assert lease is not None
            assert lease.name == "at last"

    asyncio.run(scene())
