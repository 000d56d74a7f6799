"""The mesh's channel on an AgentChat server: the protocol's sentences, each said once."""

import asyncio
from pathlib import Path

import pytest

from allswell import make_watch
from allswell.domain.build.announcements import MESSAGE_BYTES
from allswell.domain.notify.alert import Alert
from allswell.domain.notify.delivery import DeliveryFilter
from allswell.domain.notify.spec import SinkSpec
from allswell.engine.timings import Timings
from allswell.errors import Refused
from allswell.interfaces.notifications.alerts import ChatSink, line_of
from allswell.interfaces.notifications.follower import Follower, make_sink
from allswell.store.memory import MemoryStore
from allswell.testing.chat import ChatServer


@pytest.mark.row("M2")
def test_a_claim_and_a_timeout_are_said_in_the_channel(tmp_path: Path) -> None:
    async def main(server: ChatServer) -> None:
        key = str(tmp_path / "key.pem")
        spec = SinkSpec(name="mesh", kind="chat", url=server.url, channel="#mesh", key=key, begins="start")
        async with make_watch(MemoryStore(strict=False), pace=Timings(follow_poll=0.02)) as watch:
            await watch.submit("Deploy webhook monitoring")
            lease = await watch.claim(agent="Sandman")
            assert lease is not None
            await lease.delegate("Oracle", "server access", timeout="1ms")
            while not [entry async for entry in watch.events() if entry.event.kind == "request_closed"]:
                await asyncio.sleep(0.02)
            sink = make_sink(spec)
            running = asyncio.ensure_future(Follower(watch, sink, "one").run())
            while len(server.said) < 1 or await watch.outbox.view_deliveries(DeliveryFilter()):
                await asyncio.sleep(0.02)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    with ChatServer() as server:
        asyncio.run(asyncio.wait_for(main(server), 60))
        lines = [line for said in server.said for line in said.content.split("\n")]
        assert {said.to for said in server.said} == {"#mesh"}
    assert lines == [
        "🎯 Claiming: Deploy webhook monitoring",
        "⏱️ Timeout: No response from Oracle on server access. Logging block, moving on.",
    ]


def test_a_server_that_is_away_is_left_within_the_limit_and_no_connection_stays() -> None:
    async def main() -> None:
        sink = make_sink(SinkSpec(name="mesh", kind="chat", url="ws://127.0.0.1:9", channel="#mesh"))
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await sink.send([])
        assert [task for task in asyncio.all_tasks() if task.get_name().startswith("chat ")] == []
        assert await sink.check() == "#mesh at ws://127.0.0.1:9, as a stranger"

    asyncio.run(main())


def test_a_place_that_cannot_be_is_refused_at_once() -> None:
    with pytest.raises(Refused):
        ChatSink(SinkSpec(name="mesh", kind="chat", url="https://x", channel="#mesh"))


def test_whatever_is_said_is_one_line_that_a_chat_takes() -> None:
    assert line_of(Alert("info", "x", "", "a\nb")) == "a b"
    assert line_of(Alert("info", "x", "A question", "Which?\n\nallswell questions")) == (
        "A question: Which? allswell questions"
    )
    assert len(line_of(Alert("info", "x", "", "ö" * 9_000)).encode()) <= MESSAGE_BYTES
