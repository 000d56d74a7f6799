"""Requests between agents through the store, against plain tasks: asking and answering, per second.

    python bench/mesh.py [COUNT]

A plain task is submitted, claimed and completed; a request is sent by a holder and answered by its target. Fifty
callers do either at once, on SQLite, in turns; the medians are compared. Requests shall have at least half the rate.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
import time

import allswell

CALLERS = 50
ROUNDS = 5
FLOOR = 0.5


async def plain(watch: allswell.Watch, count: int) -> float:
    """Tasks per second."""

    async def one(number: int) -> None:
        for turn in range(count // CALLERS):
            await watch.submit(f"plain {number} {turn}", role=f"plain {number}")
            lease = await watch.claim(agent=f"p{number}", roles=[f"plain {number}"])
            assert lease is not None
            await lease.complete()

    began = time.perf_counter()
    await asyncio.gather(*map(one, range(CALLERS)))
    return count / (time.perf_counter() - began)


async def requests(watch: allswell.Watch, count: int) -> float:
    """Requests per second; what each asker holds is claimed before, and completed afterwards."""
    leases = []
    for number in range(CALLERS):
        await watch.submit(f"asks {number}", role="asks")
        lease = await watch.claim(agent=f"asker{number}", roles=["asks"])
        assert lease is not None
        leases.append(lease)

    async def one(number: int, lease: allswell.Lease) -> None:
        for _ in range(count // CALLERS):
            request = await lease.send_request(f"target{number}", "handoff", "help")
            await watch.respond(request, 1, agent=f"target{number}")

    for number in range(CALLERS):
        await watch.inbox(f"target{number}")
    began = time.perf_counter()
    await asyncio.gather(*(one(number, lease) for number, lease in enumerate(leases)))
    rate = count / (time.perf_counter() - began)
    for lease in leases:
        await lease.complete()
    return rate


async def compare(count: int) -> tuple[float, float]:
    """The medians of interleaved runs: plain tasks, and requests."""
    tasks, asked = [], []
    with tempfile.TemporaryDirectory() as folder:
        async with allswell.open(f"sqlite:///{folder}/bench.db") as watch:
            for _ in range(ROUNDS):
                tasks.append(await plain(watch, count))
                asked.append(await requests(watch, count))
    return statistics.median(tasks), statistics.median(asked)


def main() -> int:
    """Say how they compare; 1 where requests are too slow."""
    count = int(sys.argv[1]) if len(sys.argv) > 1 else 2_000
    tasks, asked = asyncio.run(compare(count))
    print(f"plain tasks {tasks:,.0f}/s, requests {asked:,.0f}/s: {asked / tasks:.2f} (at least {FLOOR})")
    return 0 if asked / tasks >= FLOOR else 1


if __name__ == "__main__":
    sys.exit(main())
