"""Whether a sink that hangs slows the drain of tasks, beside a healthy one.

    python bench/sinks.py [--tasks 1000] [--rounds 9] [webhook alerts notion]

Each round drains the same tasks twice, beside a healthy sink and beside one that never answers, in turns. Told are the
medians, and the hanging one's as a share of the healthy one's; 1.15 is what is allowed. Every completed task is told
to the sink (to Notion: every request, so that one has none to tell, and the drain is all there is).
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import statistics
import tempfile
import time
from pathlib import Path

from allswell import make_watch
from allswell.domain.notify.alert import TYPES
from allswell.domain.notify.spec import SinkSpec
from allswell.interfaces.notifications.follower import Follower, make_sink
from allswell.store.sqlite import SqliteStore
from tests.support.fakes import AlertReceiver, Hang, NotionServer, StandIn, WebhookReceiver

ALLOWED = 1.15
SECRET = base64.b64encode(b"h" * 32).decode()
KINDS = {"webhook": WebhookReceiver, "alerts": AlertReceiver, "notion": NotionServer}


def spec_for(server: StandIn) -> SinkSpec:
    """A sink that tells this server."""
    match server:
        case NotionServer():
            database = server.add_database(dict(TYPES))
            return SinkSpec(name="log", kind="notion", token_env="TOKEN", url=server.url, database=database)  # noqa: S106
        case AlertReceiver():
            routes = {"info": (server.route(),)}
            return SinkSpec(name="people", kind="alerts", hears=("task_completed",), routes=routes)
        case _:
            hears = ("task_completed",)
            return SinkSpec(
                name="hook", kind="webhook", hears=hears, url=server.url, secret_env=("SECRET",), allow_private=True
            )


async def drain(path: Path, server: StandIn, tasks: int) -> float:
    """Seconds for a worker to do all tasks, beside a sink that is told of each."""
    token = server.token if isinstance(server, NotionServer) else "x"
    sink = make_sink(spec_for(server), {"SECRET": SECRET, "TOKEN": token})
    async with make_watch(SqliteStore(path)) as watch:
        await watch.submit_many([{"name": f"{number}"} for number in range(tasks)])
        running = asyncio.ensure_future(Follower(watch, sink, "one").run())
        asker = await watch.claim(agent="asker")
        assert asker is not None
        for number in range(10):
            await asker.send_request("nobody", "status_check", f"{number}")
        await asyncio.sleep(0.2)
        began = time.perf_counter()
        while lease := await watch.claim(agent="ann"):
            await lease.complete()
        took = time.perf_counter() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await sink.close()
    return took


def compare(kind: str, tasks: int, rounds: int) -> float:
    """The hanging sink's median as a share of the healthy one's."""
    with KINDS[kind]() as healthy, KINDS[kind]() as hanging, tempfile.TemporaryDirectory() as folder:
        hanging.always(Hang())
        took: dict[StandIn, list[float]] = {healthy: [], hanging: []}
        for turn in range(rounds):
            for number, server in enumerate((healthy, hanging) if turn % 2 else (hanging, healthy)):
                took[server].append(asyncio.run(drain(Path(folder) / f"{turn}.{number}.db", server, tasks)))
        well, badly = statistics.median(took[healthy]), statistics.median(took[hanging])
        told = f"healthy {well * 1_000:8.1f} ms, hanging {badly * 1_000:8.1f} ms"
        print(f"{kind:8} {told}: {badly / well:.2f} (allowed: {ALLOWED})")
        return badly / well


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kinds", nargs="*", default=[*KINDS], metavar="KIND", help=", ".join(KINDS))
    parser.add_argument("--tasks", type=int, default=1_000)
    parser.add_argument("--rounds", type=int, default=9)
    given = parser.parse_args()
    if not KINDS.keys() >= {*given.kinds}:
        parser.error(f"the kinds are {', '.join(KINDS)}")
    for kind in given.kinds:
        compare(kind, given.tasks, given.rounds)


if __name__ == "__main__":
    main()
