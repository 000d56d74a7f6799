"""The protocol's first example, from the asking to the late answer, as Notion and the mesh's channel are told of it."""

import asyncio
from collections.abc import Callable

import pytest

from allswell import make_watch
from allswell.domain.mesh.request import Escalation, MeshFigures
from allswell.domain.notify.delivery import DeliveryFilter
from allswell.domain.notify.spec import SinkSpec
from allswell.engine.timings import Timings
from allswell.interfaces.notifications import notion as notion_sink
from allswell.interfaces.notifications.follower import make_sink, run_sinks
from allswell.interfaces.notifications.notion import TYPES
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.store.postgres import PostgresStore
from tests.support.fakes import AlertReceiver, NotionServer


async def until(holds: Callable[[], bool]) -> None:
    """Wait until something is so."""
    while not holds():
        await asyncio.sleep(0.01)


@pytest.mark.row("M2", "M3", "M4", "M5", "M6")
@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_a_request_is_sent_expires_blocks_is_told_and_is_resolved(
    kind: str, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.setattr(notion_sink, "_APART", 0.005)
    store: Store = MemoryStore(strict=False)
    if kind == "postgres":
        store = PostgresStore(request.getfixturevalue("pg_url"))

    async def main(notion: NotionServer, channel: AlertReceiver) -> None:
        specs = [
            SinkSpec(
                name="log",
                kind="notion",
                token_env="TOKEN",
                url=notion.url,
                database=notion.add_database(dict(TYPES)),
                begins="start",
            ),
            SinkSpec(
                name="channel",
                kind="alerts",
                hears=("mesh",),
                routes={"info": (channel.route("all"),), "critical": (channel.route("critical"),)},
                humans=("@ann",),
                begins="start",
            ),
        ]
        figures = MeshFigures(escalation=Escalation(after=50, remind=None))
        async with make_watch(store, pace=Timings(follow_poll=0.02), mesh=figures) as watch:
            sinks = [make_sink(spec, {"TOKEN": notion.token}) for spec in specs]
            telling = asyncio.ensure_future(run_sinks(watch, sinks))
            await watch.submit("Deploy webhook monitoring", priority=1, critical=True)
            await watch.submit("doc task")
            lease = await watch.claim(agent="Sandman")
            assert lease is not None
            ended = await lease.request("Oracle", "handoff", "server access", timeout="60ms", retries=1)
            assert (ended.blocked, ended.fallback) == (True, "next_task")
            assert ended.next.name == "doc task"
            await until(lambda: notion.column("Review") == [True])
            assert notion.column("Status") == ["Blocked"]
            await watch.respond(ended.request_id, "here you are", agent="Oracle")
            await until(lambda: notion.column("Status") == ["Resolved"] and "Unblocked" in str(channel.taken))
            while await watch.outbox.view_deliveries(DeliveryFilter()):
                await asyncio.sleep(0.01)
            telling.cancel()
            await asyncio.gather(telling, return_exceptions=True)
        assert notion.column("Allswell Id") == [ended.request_id]

    with NotionServer(rate=500) as notion, AlertReceiver() as channel:
        asyncio.run(asyncio.wait_for(main(notion, channel), 60))
        taken = [(path, line) for path, alert in channel.taken for line in alert.message.strip().splitlines()]
    assert notion.column("Event") == ["Response from Oracle: server access"]
    assert notion.column("Source Agent") == ["Sandman"]
    assert notion.column("Status") == ["Resolved"]
    assert notion.column("Blocked Task") == ["Deploy webhook monitoring"]
    assert notion.column("Timeout (min)") == [0.001]
    assert notion.column("Retry Count") == [1]
    assert notion.column("Resolution")[0].startswith("answered by Oracle after ")
    assert notion.column("Resolution")[0].endswith("; Deploy webhook monitoring is queued again")
    assert notion.column("Review") == [True], "people take that tick away, nobody else"
    said = [line for path, line in taken if path == "/all"]
    assert said[0] == "🎯 Claiming: Deploy webhook monitoring"
    assert said[1].startswith("🙋 Can any agent help? Oracle has not answered server access")
    assert sorted(said[2:4]) == sorted(
        [
            "⏱️ Timeout: No response from Oracle on server access. Logging block, moving to doc task.",
            "🎯 Claiming: doc task",
        ]
    )
    assert said[4:] == ["✅ Unblocked: Oracle answered server access. Re-queuing Deploy webhook monitoring."]
    (alarm,) = [line for path, line in taken if path == "/critical"]
    assert alarm.startswith("🚨 @ann Blocked for ")
    assert "Deploy webhook monitoring waits for Oracle on server access, asked by Sandman. Critical" in alarm
