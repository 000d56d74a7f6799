"""A process that works on a watch and says on standard output what was acknowledged to it.

Run by the crash tests as `python holder.py MODE URL NAME`; it is killed, stopped or read from there.
"""

import asyncio
import itertools
import sys

import allswell
from allswell.engine.lease import Lease


def say(*words: object) -> None:
    """One line per acknowledged fact; flushed, so that a kill loses nothing that was said."""
    print(*words, flush=True)  # noqa: T201 - this is how it reports


async def work(watch: allswell.Watch, name: str, numbers: "itertools.count[int]") -> None:
    """Submit, claim, check in and complete without end."""
    while True:
        number = next(numbers)
        say("submitted", await watch.submit(f"{name}-{number}", key=f"{name}-{number}", payload=number))
        lease = await watch.claim(agent=name, roles=[""], lease="1s")
        if lease is None:
            continue
        await lease.checkin(f"working on {lease.name}")
        try:
            await lease.complete({"token": lease.token})
        except allswell.LeaseLost:
            continue
        say("completed", lease.task, lease.token)


async def race(watch: allswell.Watch, name: str) -> None:
    """Eight workers at once, so that batches really form."""
    numbers = itertools.count()
    await asyncio.gather(*(work(watch, name, numbers) for _ in range(8)))


async def refused(lease: Lease) -> None:
    """Every word that a stopped holder still tries to say, and what it is told."""
    for verb, said in (
        ("checkin", lease.checkin("still here")),
        ("renew", lease.renew()),
        ("fail", lease.fail("too slow")),
        ("release", lease.release()),
        ("ask", lease.ask("am I late?")),
        ("complete", lease.complete("stale")),
    ):
        try:
            await said
        except allswell.LeaseLost:
            say("refused", verb)
        else:
            say("accepted", verb)


async def zombie(watch: allswell.Watch, name: str) -> None:
    """Hold a task; when told to go on, say everything a holder can say."""
    lease = await watch.claim(agent=name, lease="600ms", wait="10s")
    assert lease is not None
    say("holding", lease.task, lease.token)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.readline)
    await refused(lease)


async def main(mode: str, url: str, name: str) -> None:
    async with allswell.open(url) as watch:
        say("open")
        await {"race": race, "zombie": zombie}[mode](watch, name)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
