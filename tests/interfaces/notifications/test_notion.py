"""The communication log in Notion: one page for each request, whatever becomes of the answers."""

import asyncio
import time
from collections.abc import Iterator, Sequence

import msgspec
import pytest

from allswell.domain.ids import AgentId, Millis, TaskId
from allswell.domain.mesh.comms import Comm, RequestText, comm_for
from allswell.domain.notify.delivery import Delivery, DeliveryRetries
from allswell.domain.notify.spec import SinkSpec
from allswell.domain.rules.event import Event
from allswell.errors import Refused
from allswell.interfaces.notifications.follower import make_sink
from allswell.interfaces.notifications.notion import TYPES, NotionSink, cut_utf16, page_of, schema, wrong_with_schema
from allswell.interfaces.notifications.sink import NotDelivered
from tests.support.fakes import Lose, NotionServer, Slow, Status

AT = Millis(1_700_000_000_000)
ORACLE = RequestText("server access", "Oracle", 300_000, "Deploy webhook monitoring")


@pytest.fixture
def notion() -> Iterator[NotionServer]:
    with NotionServer(rate=50) as server:
        yield server


def sink_for(notion: NotionServer, *, timeout: int = 5_000, database: str | None = None) -> NotionSink:
    spec = SinkSpec(
        name="log",
        kind="notion",
        token_env="TOKEN",
        url=notion.url,
        database=database or notion.add_database(dict(TYPES)),
        timeout=timeout,
    )
    sink = make_sink(spec, {"TOKEN": notion.token})
    assert isinstance(sink, NotionSink)
    return sink


def event(named: str, **data: object) -> Event:
    return Event(named, TaskId("t_asker"), agent=AgentId("Sandman"), data={"request": "t_r1", **data})


def comm(named: str, **data: object) -> Comm:
    found = comm_for(event(named, **data), AT, ORACLE)
    assert found is not None
    return found


SENT = comm("request_sent", kind="delegation", to="Oracle", timeout_ms=300_000)
LATE = comm("request_closed", outcome="failed", reason="delegation_timeout")
DONE = comm("request_closed", outcome="done", reason="")


def deliveries(*comms: Comm) -> list[Delivery]:
    return [
        Delivery("log", f"msg_{number}", "", (1, number, 0), AT, msgspec.json.encode(one).decode())
        for number, one in enumerate(comms)
    ]


def send(sink: NotionSink, waiting: Sequence[Delivery]) -> list[str]:
    """Send each until it is taken; the reasons why it was not."""

    async def main() -> list[str]:
        reasons = []
        for one in waiting:
            while True:
                try:
                    await sink.send([one])
                    break
                except NotDelivered as error:
                    reasons.append(error.failure.reason)
                    assert len(reasons) < 20
        await sink.close()
        return reasons

    return asyncio.run(main())


@pytest.mark.row("M3")
def test_the_nine_fields_of_the_protocol() -> None:
    assert (SENT.event, SENT.source, SENT.target, SENT.status, SENT.timeout_min, SENT.retries) == (
        *("Request to Oracle: server access", "Sandman", "Oracle", "Sent"),
        *(None, 0),
    )
    assert (LATE.event, LATE.status, LATE.timeout_min, LATE.blocked_task) == (
        *("Timeout waiting for Oracle", "Timeout", 5.0),
        "Deploy webhook monitoring",
    )
    assert (DONE.event, DONE.status, DONE.resolution) == ("Response from Oracle: server access", "Received", "answered")
    gone = comm("request_closed", outcome="cancelled", reason="its task was cancelled")
    assert (gone.status, gone.resolution) == ("Resolved", "cancelled: its task was cancelled")
    assert comm_for(Event("task_claimed"), AT, ORACLE) is None


@pytest.mark.row("M4")
def test_a_request_has_one_page_from_sent_to_its_end(notion: NotionServer) -> None:
    sink = sink_for(notion)
    assert send(sink, deliveries(SENT, LATE)) == []
    assert notion.column("Event") == ["Timeout waiting for Oracle"]
    assert notion.column("Status") == ["Timeout"]
    assert notion.column("Timeout (min)") == [5]
    assert notion.column("Timestamp") == ["2023-11-14T22:13:20.000Z"]
    assert notion.column("Allswell Id") == ["t_r1"]
    assert notion.column("Review") == [False]


@pytest.mark.row("M4")
def test_a_lost_answer_makes_no_second_page(notion: NotionServer) -> None:
    """The data source is found, the page looked for and made, and each answer is lost once."""
    for lost in range(1, 6):
        sink = sink_for(notion)
        notion.pages.clear()
        acts = [Slow(0)] * (lost - 1) + [Lose()]
        notion.script(*acts)
        reasons = send(sink, deliveries(SENT, DONE))
        assert len(reasons) == (1 if lost <= 4 else 0), lost
        assert notion.column("Status") == ["Received"]
        notion.recover()


def test_notion_is_asked_no_more_than_three_times_a_second() -> None:
    with NotionServer() as notion:
        began = time.monotonic()
        reasons = send(sink_for(notion), deliveries(*[SENT, DONE] * 4))
        assert time.monotonic() - began >= 2.5
        assert reasons == []
        assert notion.refused == 0


LIMITED = Status(429, {"retry-after": "7"}, b'{"object":"error","status":429,"code":"rate_limited"}')
OVERLOADED = Status(529, {}, b"<html>overloaded</html>")  # by something before Notion, which knows no JSON


@pytest.mark.parametrize("answer, wait", [(LIMITED, 7_000), (OVERLOADED, None)])
def test_a_limit_says_when_to_come_again_and_is_never_the_end(
    notion: NotionServer, answer: Status, wait: int | None
) -> None:
    notion.script(answer)
    sink = sink_for(notion)

    async def main() -> None:
        with pytest.raises(NotDelivered, match=f"Notion answered {answer.status}") as caught:
            await sink.send(deliveries(SENT))
        assert caught.value.failure.retry_after == wait
        assert not caught.value.failure.final
        await sink.close()

    asyncio.run(main())


def test_texts_are_cut_to_what_notion_takes(notion: NotionServer) -> None:
    long = Comm("t_r1", "🎯" * 1_500, "a" * 3_000, "b", "Sent", AT)
    assert send(sink_for(notion), deliveries(long)) == []
    assert len(notion.column("Source Agent")[0]) == 2_000
    assert notion.column("Event")[0].endswith("🎯…")
    assert cut_utf16("short", 2_000) == "short"


def test_a_page_that_somebody_removed_is_made_again(notion: NotionServer) -> None:
    sink = sink_for(notion)
    asyncio.run(sink.send(deliveries(SENT)))
    notion.pages.clear()
    reasons = send(sink_for(notion, database=list(notion.databases)[-1]), deliveries(DONE))
    assert reasons == []
    assert notion.column("Status") == ["Received"]


def test_a_page_that_somebody_threw_away_is_made_again(notion: NotionServer) -> None:
    """Notion refuses to write to it, and a query does not find it: it must not be tried for ever."""
    sink = sink_for(notion)

    async def main() -> None:
        await sink.send(deliveries(SENT))
        notion.throw_away()
        with pytest.raises(NotDelivered, match="is archived"):
            await sink.send(deliveries(DONE))
        await sink.send(deliveries(DONE))
        await sink.close()

    asyncio.run(main())
    assert notion.column("Status") == ["Received"]


@pytest.mark.row("M4", "M5")
def test_a_later_message_leaves_what_it_says_nothing_about(notion: NotionServer) -> None:
    assert send(sink_for(notion), deliveries(SENT, LATE, DONE)) == []
    assert notion.column("Status") == ["Received"]
    assert notion.column("Timeout (min)") == [5]
    assert notion.column("Blocked Task") == ["Deploy webhook monitoring"]
    assert notion.column("Resolution") == ["answered"]


@pytest.mark.parametrize("body", [b"<html>", b"[]", b'{"data_sources": []}', b"{}"])
def test_an_answer_that_is_none_of_notions_is_told_and_no_bug(notion: NotionServer, body: bytes) -> None:
    notion.always(Status(200, body=body))
    sink = sink_for(notion)

    async def main() -> None:
        with pytest.raises(Refused, match=r"sinks\.log\.database: Notion's answer"):
            await sink.check()
        with pytest.raises(NotDelivered, match="Notion's answer"):
            await sink.send(deliveries(SENT))
        await sink.close()

    asyncio.run(main())


@pytest.mark.parametrize("token", ["ntn_hunter2\nntn_old", "ntn_hünter2", "ntn hunter2"])
def test_a_token_that_is_none_is_refused_without_being_shown(token: str) -> None:
    spec = SinkSpec(name="log", kind="notion", token_env="TOKEN", database="0" * 32)
    with pytest.raises(Refused, match="what TOKEN holds is not a token") as caught:
        make_sink(spec, {"TOKEN": token})
    assert "nter2" not in caught.value.message


def test_what_does_not_fit_is_named() -> None:
    there = {name: {"type": type_} for name, type_ in TYPES.items()}
    assert wrong_with_schema(there) == []
    assert set(schema()) == set(TYPES) == {*page_of(SENT, "now")}
    assert wrong_with_schema({**there, "Status": {"type": "status"}}) == [
        "'Status' is of type status, and should be select"
    ]
    del there["Resolution"]
    assert wrong_with_schema(there) == ["there is no property 'Resolution' (rich_text)"]


def test_the_library_does_not_retry_by_itself(notion: NotionServer) -> None:
    notion.always(Status(500, body=b"{}"))
    sink = sink_for(notion)

    async def main() -> None:
        with pytest.raises(NotDelivered):
            await sink.send(deliveries(SENT))
        await sink.close()

    asyncio.run(main())
    assert len(notion.requests) == 1
    assert sink.patience == DeliveryRetries()
