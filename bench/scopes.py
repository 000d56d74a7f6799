"""What scopes cost, beside `asyncio.timeout` and anyio in the same run, and how late they are under load.

    python bench/scopes.py                 the usual figures
    python bench/scopes.py --json FILE     and keep them

1. A bare scope, entered and left, alone and inside another: ratios are medians of interleaved rounds.
2. 100,000 tasks in three nested scopes each: seconds to set up, and memory.
3. 10,000 live deadlines on one loop while durable SQLite commits go on: how late they are, and whether any is early.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import allswell
from allswell.app import make_watch, store_for
from allswell.timing.scopes import within

ROUNDS = 9
TIMES = 20_000


async def _bare(times: int) -> None:
    for _ in range(times):
        async with within(120_000):
            pass


async def _asyncio(times: int) -> None:
    for _ in range(times):
        async with asyncio.timeout(120):  # noqa: ASYNC100 - what it costs alone
            pass


async def _anyio(times: int) -> None:
    import anyio

    for _ in range(times):
        with anyio.fail_after(120):  # noqa: ASYNC100
            pass


async def _nested(times: int) -> None:
    async with within(1_800_000):
        await _bare(times)


async def _nested_asyncio(times: int) -> None:
    async with asyncio.timeout(1_800):
        await _asyncio(times)


async def microseconds(work: Callable[[int], Awaitable[None]]) -> float:
    """Microseconds for one; of CPU, so that a busy machine changes little."""
    began = time.process_time()
    await work(TIMES)
    return (time.process_time() - began) / TIMES * 1e6


async def cost() -> dict[str, float]:
    """A scope beside its peers, in turns."""
    peers = {
        "a bare scope": _bare,
        "asyncio.timeout": _asyncio,
        "anyio.fail_after": _anyio,
        "a scope in a scope": _nested,
        "asyncio.timeout in one": _nested_asyncio,
    }
    took: dict[str, list[float]] = {name: [] for name in peers}
    for _ in range(ROUNDS):
        for name, work in peers.items():
            took[name].append(await microseconds(work))
    figures = {f"{name}, µs": round(statistics.median(times), 2) for name, times in took.items()}

    def ratio(one: str, other: str) -> float:
        return round(statistics.median(a / b for a, b in zip(took[one], took[other], strict=True)), 2)

    return figures | {
        "a bare scope, times asyncio.timeout": ratio("a bare scope", "asyncio.timeout"),
        "a bare scope, times anyio.fail_after": ratio("a bare scope", "anyio.fail_after"),
        "a scope in a scope, times asyncio.timeout in one": ratio("a scope in a scope", "asyncio.timeout in one"),
    }


MANY = """
import asyncio, json, re, sys, time
from pathlib import Path
import allswell
from allswell.domain.scopes import ScopeLimits
from allswell.runtime.deadlines import use_limits

async def main(count):
    use_limits(ScopeLimits())
    gate = asyncio.Event()
    entered = 0

    async def work():
        nonlocal entered
        async with allswell.flow("f"), allswell.step("s"), allswell.llm_call("c"):
            entered += 1
            await gate.wait()

    began, worked = time.perf_counter(), time.process_time()
    tasks = [asyncio.create_task(work()) for _ in range(count)]
    while entered < count:
        await asyncio.sleep(0)
    took, worked = time.perf_counter() - began, time.process_time() - worked
    # Not ru_maxrss: a child inherits its parent's.
    peak = int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
    gate.set()
    await asyncio.gather(*tasks)
    print(json.dumps([took, worked, peak / 1024]))

asyncio.run(main(int(sys.argv[1])))
"""


def many(count: int) -> dict[str, float]:
    """So many tasks in three nested scopes each, in a process of their own."""
    said = subprocess.run([sys.executable, "-c", MANY, str(count)], check=True, capture_output=True, text=True)
    took, worked, peak = json.loads(said.stdout)
    return {
        f"{count:,} tasks in three scopes each: seconds to set up": round(took, 2),
        f"{count:,} tasks in three scopes each: seconds of CPU for it": round(worked, 2),
        f"{count:,} tasks in three scopes each: MB at the peak": round(peak),
    }


async def lateness(folder: Path, count: int, over: float) -> dict[str, float]:
    """How late so many deadlines are that expire within some seconds, with durable commits going on."""
    late: list[float] = []
    timers: list[float] = []
    commits = 0
    over_now = False

    async def wait(ms: float) -> None:
        scope = within(ms)
        try:
            async with scope:
                await asyncio.Event().wait()
        except allswell.ScopeTimeout:
            late.append(time.monotonic() - scope.deadline)

    async def commit(watch: allswell.Watch) -> None:
        nonlocal commits
        while not over_now:
            await watch.submit("x")
            lease = await watch.claim(agent="bench")
            if lease is not None:
                await lease.complete()
            commits += 3

    loop = asyncio.get_running_loop()

    def timer(due: float) -> None:
        timers.append(time.monotonic() - due)

    async with make_watch(store_for(f"sqlite:///{folder / 'late.db'}")) as watch:
        writers = [asyncio.create_task(commit(watch)) for _ in range(4)]
        chance = random.Random(1)
        waiting = [asyncio.create_task(wait(1_000 + chance.random() * over * 1_000)) for _ in range(count)]
        for _ in range(count // 10):
            due = loop.time() + 1 + chance.random() * over
            loop.call_at(due, timer, due)
        await asyncio.gather(*waiting)
        over_now = True
        await asyncio.gather(*writers)
    late.sort()
    timers.sort()
    return {
        f"{count:,} deadlines with commits going on: p50 lateness, ms": round(late[len(late) // 2] * 1e3, 2),
        f"{count:,} deadlines with commits going on: p99 lateness, ms": round(late[int(len(late) * 0.99)] * 1e3, 2),
        "bare timers of the loop beside them: p99 lateness, ms": round(timers[int(len(timers) * 0.99)] * 1e3, 2),
        f"{count:,} deadlines with commits going on: early ones": sum(one < 0 for one in late),
        f"{count:,} deadlines with commits going on: durable commands meanwhile": commits,
    }


async def main() -> None:
    """Measure, print, and keep the figures as JSON."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--json", type=Path, help="write the figures here")
    chosen = options.parse_args()
    figures: dict[str, float] = {}

    def show(found: dict[str, float]) -> None:
        figures.update(found)
        for what, value in found.items():
            print(f"  {what:<75} {value:>10,}", flush=True)

    print(f"Python {sys.version.split()[0]}, {ROUNDS} interleaved rounds of {TIMES:,}")
    show(await cost())
    show(many(100_000))
    with tempfile.TemporaryDirectory(prefix="allswell-bench-") as folder:
        show(await lateness(Path(folder), 10_000, 10.0))
    print(f"  {'this process, MB at its peak':<75} {resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024:>10,}")
    if chosen.json:
        chosen.json.parent.mkdir(parents=True, exist_ok=True)
        chosen.json.write_text(json.dumps(figures, indent=2, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    asyncio.run(main())
