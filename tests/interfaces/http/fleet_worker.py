"""Workers of a fleet over HTTP, some in one process, each with a key of its own; one in five words comes too late."""

import asyncio
import contextlib
import json
import random
import sys
from pathlib import Path

from allswell.engine.ids import Ids
from allswell.engine.timings import DEFAULT_PACE
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, LeaseLost
from allswell.remote.backend import RemoteBackend, RemoteServer
from allswell.remote.connection import ConnectionPool
from allswell.timing.clock import SystemClock

LEASE = 3_000


def watch_with(url: str, key: str) -> Watch:
    clock, chance = SystemClock(), random.Random()
    ids = Ids(clock.wall, chance.getrandbits)
    server = RemoteServer(ConnectionPool(url, key), DEFAULT_PACE)
    return Watch(RemoteBackend(server, ids, clock=clock, rng=chance.random, pace=DEFAULT_PACE), ids)


async def work(url: str, name: str, key: str) -> None:
    chance = random.Random(name)
    async with watch_with(url, key) as watch:
        while True:
            with contextlib.suppress(AllswellError):
                lease = await watch.claim(agent=name, roles=["build"], wait="5s", lease=LEASE)
                if lease is None:
                    continue
                zombie = watch.held(lease.task, lease.token, name)
                how = chance.random()
                if how < 0.1:
                    await lease.release("not now")
                else:
                    await lease.checkin("at it")
                    await lease.complete({"by": name})
                await late(zombie, how)


async def late(zombie: object, how: float) -> None:
    """Whoever comes too late is refused, whatever it says."""
    if how > 0.3:
        return
    for word in ("checkin", "complete", "release", "fail"):
        with contextlib.suppress(LeaseLost):
            said = getattr(zombie, word)
            await (said(RuntimeError("late")) if word == "fail" else said("late"))
            raise SystemExit(f"{word} was taken from somebody whose lease is over")


async def main(url: str, known: dict[str, str], names: list[str]) -> None:
    await asyncio.gather(*(work(url, name, known[name]) for name in names))


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(main(sys.argv[1], json.loads(Path(sys.argv[2]).read_text()), sys.argv[3:]))
