"""The hang matrix: what hangs, when it is noticed, and when its slot is free again; ours beside `asyncio.timeout`.

    python bench/hang.py

Each case takes the only slot of a pool, may take 1 s (with a grace of 1 s), and hangs. Two figures: seconds from the
limit until somebody is told, and until the next in line has the slot. A case is watched for 8 s; "-" is "not by then".
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import logging
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

import allswell
from allswell.domain.deadline import Limits
from allswell.runtime.calling import run_in_thread
from allswell.runtime.limits import use_limits
from allswell.runtime.threads import Threads
from allswell.runtime.watchdog import BlockedLoop, LoopWatchdog
from allswell.timing.scope import abandoned

LIMIT = 1.0
WATCHED = 8.0
Noticed = Callable[[], None]


# --- what hangs -------------------------------------------------------------------------------------------------------


async def await_for_ever() -> None:
    """Wait for what never comes."""
    await asyncio.Event().wait()


async def swallow_cancels() -> None:
    """Catch every cancel and go on, until this matrix is over."""
    until = time.monotonic() + WATCHED + 2
    while time.monotonic() < until:
        with contextlib.suppress(asyncio.CancelledError):
            await asyncio.sleep(until - time.monotonic())


async def block_the_loop() -> None:
    """A sync call in async code."""
    time.sleep(3)  # noqa: ASYNC251 - this is what it is about


def block_a_thread() -> None:
    """A sync call that does not come back."""
    threading.Event().wait(WATCHED + 2)


@contextlib.asynccontextmanager
async def dripping_server() -> AsyncIterator[str]:
    """A server that sends a byte now and then, for ever."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(ConnectionError):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
            while True:
                writer.write(b"x")
                await writer.drain()
                await asyncio.sleep(0.2)

    server = await asyncio.start_server(drip, "127.0.0.1", 0)
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    server.close()


# --- how it is bounded ------------------------------------------------------------------------------------------------


class Ours:
    """A tool with a limit, and the watchdog on."""

    name = "allswell"

    def __init__(self) -> None:
        self._threads = Threads(1)

    async def bound(self, function: Callable[[], object], noticed: Noticed) -> None:
        """Run it for as long as it may."""

        def blocked(_: BlockedLoop) -> None:
            noticed()

        async with LoopWatchdog(LIMIT * 1_000, on_blocked=blocked):
            scope = allswell.tool("case", timeout=LIMIT * 1_000)
            try:
                if asyncio.iscoroutinefunction(function):
                    await allswell.run(scope, function)
                else:
                    await run_in_thread(scope, function, threads=self._threads)
            except allswell.ScopeTimeout:
                noticed()

    async def thread(self) -> None:
        """Come back when the thread has worked for somebody else."""
        await run_in_thread(allswell.tool("next"), lambda: None, threads=self._threads)


class Plain:
    """What the standard library has."""

    name = "asyncio.timeout"

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(1)

    async def bound(self, function: Callable[[], object], noticed: Noticed) -> None:
        """Run it for as long as it may."""
        try:
            async with asyncio.timeout(LIMIT):
                if asyncio.iscoroutinefunction(function):
                    await function()
                else:
                    await asyncio.get_running_loop().run_in_executor(self._threads, function)
        except TimeoutError:
            noticed()

    async def thread(self) -> None:
        """Come back when the thread has worked for somebody else."""
        await asyncio.get_running_loop().run_in_executor(self._threads, lambda: None)


async def measure(by: Ours | Plain, function: Callable[[], object]) -> tuple[float | None, float | None]:
    """Seconds from the limit until it was noticed, and until the slot was free."""
    pool = asyncio.Semaphore(1)
    told: list[float] = []
    began = time.monotonic()

    async def holder() -> None:
        async with pool:
            await by.bound(function, lambda: told.append(time.monotonic() - began - LIMIT))

    async def following() -> float:
        async with pool:
            if not asyncio.iscoroutinefunction(function):
                await by.thread()
            return time.monotonic() - began - LIMIT

    first = asyncio.create_task(holder())
    await asyncio.sleep(0)
    second = asyncio.create_task(following())
    await asyncio.wait([second], timeout=WATCHED)
    free = second.result() if second.done() else None
    for task in (first, second):
        task.cancel()
    await asyncio.gather(first, second, return_exceptions=True)
    noticed = [moment for moment in told if moment < WATCHED - LIMIT]
    return (max(noticed[0], 0.0) if noticed else None), free


async def matrix() -> dict[str, dict[str, tuple[float | None, float | None]]]:
    """Every case with everything that bounds it."""
    found: dict[str, dict[str, tuple[float | None, float | None]]] = {}
    async with dripping_server() as url:

        async def drip() -> None:
            async with httpx.AsyncClient(timeout=LIMIT) as client:
                await client.get(url)

        cases: dict[str, Callable[[], object]] = {
            "await for ever": await_for_ever,
            "swallowed cancel": swallow_cancels,
            "blocked loop": block_the_loop,
            "blocked thread": block_a_thread,
            "dripping server": drip,
        }
        for name, function in cases.items():
            found[name] = {}
            for by in (Ours(), Plain()):
                figures = found[name][by.name] = await measure(by, function)
                noticed, free = ("-" if figure is None else f"{figure:.2f}" for figure in figures)
                print(f"  {name:<20} {by.name:<18} {noticed:>10} {free:>10}", flush=True)
    return found


def main() -> None:
    """Measure, print, and keep the figures as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, help="write the figures here")
    chosen = options.parse_args()
    logging.disable(logging.WARNING)
    use_limits(Limits(grace=1_000))
    print(f"Python {sys.version.split()[0]}; seconds after the limit of {LIMIT:g} s")
    print(f"  {'what hangs':<20} {'bounded by':<18} {'noticed':>10} {'slot free':>10}")
    loop = asyncio.new_event_loop()
    found = loop.run_until_complete(matrix())
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(found, indent=2) + "\n")
    loop.run_until_complete(until_the_deaf_have_ended())
    loop.close()


async def until_the_deaf_have_ended() -> None:
    """They do so by themselves; a loop that is closed before would complain."""
    while abandoned():  # noqa: ASYNC110 - nobody is told when they do
        await asyncio.sleep(0.1)
    await asyncio.sleep(3)


if __name__ == "__main__":
    main()
