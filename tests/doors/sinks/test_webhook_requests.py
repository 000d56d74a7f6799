"""Requests to an address, over real sockets: a 2xx is the answer, and what is exhausted blocks (M1, M9)."""

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from allswell import Lease, Watch
from allswell.app import make_watch
from allswell.doors.sinks.webhook_requests import deliver_requests
from allswell.store.memory import MemoryStore
from allswell.testing.stand_in import Status, WebhookReceiver, Well
from allswell.timing.clock import SystemClock

T = TypeVar("T")


async def beside(watch: Watch, work: Coroutine[Any, Any, T], *, private: bool = True) -> T:
    """Do something while requests are delivered."""
    delivering = asyncio.ensure_future(deliver_requests(watch, private=private, wall=SystemClock().wall))
    try:
        return await work
    finally:
        delivering.cancel()
        await asyncio.gather(delivering, return_exceptions=True)


async def asking(watch: Watch) -> Lease:
    await watch.submit("deploy")
    lease = await watch.claim(agent="sandman")
    assert lease is not None
    return lease


@pytest.mark.row("M1", "M9")
def test_the_protocol_s_second_example_the_second_retry_succeeds() -> None:
    """[webhook to Oracle fails] [retry 1 — fails] [retry 2 — succeeds] ✅ Delivered on retry 2."""
    with WebhookReceiver() as oracle:
        oracle.script(Status(500), Status(503), Well())

        async def main() -> None:
            async with make_watch(MemoryStore(strict=False)) as watch:
                lease = await asking(watch)
                asked = lease.request(f"{oracle.url}/hook", "webhook", "deploy it", payload={"n": 1}, timeout="300ms")
                ended = await beside(watch, asked)
                assert (ended.state, ended.blocked) == ("done", False)
                kinds = [entry.event async for entry in watch.events()]
                says = [event.data["says"] for event in kinds if event.kind == "delivery_made"]
                assert says == ["✅ Delivered on retry 2"]
                assert [event.kind for event in kinds].count("request_expired") == 2

        asyncio.run(main())
        ids = {asked.headers["webhook-id"] for asked in oracle.requests}
        assert len(oracle.requests) == 3
        assert len(ids) == 1  # the same each time: a receiver acts once
        ((body,),) = [list(oracle.taken.values())]
        assert (body["summary"], body["payload"], body["sender"]) == ("deploy it", {"n": 1}, "sandman")


@pytest.mark.row("M9")
@pytest.mark.parametrize("private", [True, False])
def test_an_address_that_may_not_be_reached_blocks_like_any_other(private: bool) -> None:
    metadata = "http://169.254.169.254/latest" if private else "https://127.0.0.1:1/"

    async def main() -> None:
        async with make_watch(MemoryStore(strict=False)) as watch:
            lease = await asking(watch)
            asked = lease.request(metadata, "webhook", "deploy it", timeout="100ms", retries=0)
            ended = await beside(watch, asked, private=private)
            assert ended.blocked
            (attempt,) = await watch.attempts(ended.request_id)
            assert ("credentials" if private else "not on the public internet") in attempt.detail

    asyncio.run(main())
