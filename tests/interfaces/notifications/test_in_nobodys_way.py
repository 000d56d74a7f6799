"""A sink that hangs does not slow the drain of tasks: measured beside a healthy one, turn by turn."""

import asyncio
import base64
import statistics
import time
from pathlib import Path

import pytest

from allswell import make_watch
from allswell.domain.notify.spec import SinkSpec
from allswell.interfaces.notifications.follower import Follower
from allswell.interfaces.notifications.webhook import WebhookSink
from allswell.store.sqlite import SqliteStore
from allswell.timing.clock import SystemClock
from tests.support.fakes import Hang, WebhookReceiver

TASKS, ROUNDS = 100, 5
SECRET = base64.b64encode(b"h" * 32).decode()


@pytest.mark.row("M4")
@pytest.mark.realtime
@pytest.mark.alone
def test_a_hanging_sink_does_not_slow_the_drain(tmp_path: Path) -> None:
    with WebhookReceiver() as healthy, WebhookReceiver() as hanging:
        hanging.always(Hang())
        times: dict[WebhookReceiver, list[float]] = {healthy: [], hanging: []}
        for turn in range(ROUNDS):
            for number, receiver in enumerate((healthy, hanging) if turn % 2 else (hanging, healthy)):
                drained = drain(tmp_path / f"{turn}.{number}.db", receiver)
                times[receiver].append(asyncio.run(drained))
        assert statistics.median(times[hanging]) <= statistics.median(times[healthy]) * 1.15
        assert len(healthy.taken) > 0


async def drain(path: Path, receiver: WebhookReceiver) -> float:
    """Seconds for a worker to do all tasks, with a sink that is told of each."""
    spec = SinkSpec(
        name="hook",
        hears=("task_completed",),
        begins="start",
        url=receiver.url,
        secret_env=("SECRET",),
        allow_private=True,
    )
    sink = WebhookSink(spec, {"SECRET": SECRET}, SystemClock().wall)
    async with make_watch(SqliteStore(path)) as watch:
        await watch.submit_many([{"name": f"{number}"} for number in range(TASKS)])
        running = asyncio.ensure_future(Follower(watch, sink, "one").run())
        await asyncio.sleep(0)
        began = time.perf_counter()
        while lease := await watch.claim(agent="ann"):
            await lease.complete()
        took = time.perf_counter() - began
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
    return took
