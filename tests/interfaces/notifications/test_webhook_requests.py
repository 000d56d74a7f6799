"""Requests to an address, over real sockets: a 2xx is the answer, and what is exhausted blocks (M1, M9)."""

import asyncio
import base64
import contextlib
import sys
from collections.abc import Coroutine, Mapping, Sequence
from typing import Any, TypeVar

import pytest

import allswell.interfaces.notifications.posting  # noqa: F401 - before a limit of 300 ms runs
from allswell import Lease, Watch
from allswell.app import make_watch
from allswell.domain.mesh.request import MeshFigures
from allswell.domain.task.submit import WEBHOOKS
from allswell.errors import Refused
from allswell.interfaces.notifications.webhook import HttpPoster, deliver_requests
from allswell.store.memory import MemoryStore
from allswell.store.port import Store
from allswell.store.postgres import PostgresStore
from allswell.timing.clock import SystemClock
from tests.support.fakes import Hang, Lose, Status, WebhookReceiver, Well
from tests.support.fakes.server import Act

T = TypeVar("T")
ENOUGH = "3s"
"""A limit that a busy machine keeps as well: within it a request is claimed, posted and answered."""
OLD, NEW = ("whsec_" + base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))
SECRETS = {"*": ("HOOK_SECRET",)}
ENVIRON = {"HOOK_SECRET": OLD, "HOOK_SECRET_NEW": NEW, "BAD": "hunter2"}


async def beside(
    watch: Watch,
    work: Coroutine[Any, Any, T],
    *,
    private: bool = True,
    secrets: Mapping[str, Sequence[str]] = SECRETS,
) -> T:
    """Do something while requests are delivered."""
    posting = HttpPoster(SystemClock().wall, secrets, ENVIRON, private=private)
    delivering = asyncio.ensure_future(deliver_requests(watch, posting))
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


@pytest.mark.realtime
@pytest.mark.row("M1", "M9")
@pytest.mark.parametrize("kind", ["memory", "postgres"])
def test_the_protocol_s_second_example_the_second_retry_succeeds(kind: str, request: pytest.FixtureRequest) -> None:
    """[webhook to Oracle fails] [retry 1 — fails] [retry 2 — succeeds] ✅ Delivered on retry 2."""
    store: Store = MemoryStore(strict=False)
    if kind == "postgres":
        store = PostgresStore(request.getfixturevalue("pg_url"))
    with WebhookReceiver(OLD) as oracle:
        oracle.script(Status(500), Status(503), Well())

        async def main() -> None:
            async with make_watch(store) as watch:
                lease = await asking(watch)
                asked = lease.request(f"{oracle.url}/hook", "webhook", "deploy it", payload={"n": 1}, timeout=ENOUGH)
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


def test_a_task_that_is_no_request_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """An earlier version took one for the role of webhooks from everybody; it ended the delivery of all others."""

    async def main() -> None:
        async with make_watch(MemoryStore(strict=False)) as watch:
            monkeypatch.setattr("allswell.domain.task.submit.WEBHOOKS", "")
            odd = await watch.submit("odd", role=WEBHOOKS)
            monkeypatch.undo()

            async def ended() -> str:
                async for entry in watch.events(follow=True):
                    if entry.event.task == odd and entry.event.kind in ("task_failed", "question_asked"):
                        return entry.event.kind
                return ""

            assert await beside(watch, ended()) == "question_asked"

    asyncio.run(main())


BAD_RECEIVERS: Sequence[tuple[Act, str]] = [
    (Hang(), "it did not answer in time"),
    (Lose(), "the connection to 127.0.0.1 broke off"),
    (Status(500), "answered 500"),
    (Status(200, {"content-length": "1000"}, b'{"half": '), "answered 200, and its body was cut off"),
    (Status(200, {"transfer-encoding": "chunked"}, b"5\r\nhello\r\n"), "answered 200, and its body was cut off"),
    (Status(200, {}, b"x" * 70_000), "answered 200, and its body has more than 65,536 bytes"),
]


@pytest.mark.realtime
@pytest.mark.row("M1", "M9")
def test_a_receiver_that_fails_is_posted_to_once_for_each_delivery() -> None:
    """Three retries are four posts; what is not all of an answer is a failure, and no silent null."""
    with contextlib.ExitStack() as stack:
        receivers = [stack.enter_context(WebhookReceiver(OLD)) for _ in BAD_RECEIVERS]

        async def ask(watch: Watch, receiver: WebhookReceiver, act: Act, detail: str) -> None:
            receiver.always(act)
            lease = await asking(watch)
            ended = await lease.request(receiver.url, "webhook", "deploy it", timeout="300ms", retries=3)
            assert (ended.blocked, ended.state) == (True, "blocked")
            await asyncio.sleep(0.3)  # another one would be posted with the block
            attempts = await watch.attempts(ended.request_id)
            assert {attempt.detail[: len(detail)] for attempt in attempts} == {detail}
            # By the store's clock, for a post reaches the receiver of a busy machine as late as it likes.
            request = await watch.task(ended.request_id)
            assert request is not None
            waited = sorted(attempt.granted_at - request.task.created_at for attempt in attempts)
            assert all(waited[number] >= 300 * number for number in range(4)), (act, waited)

        async def ask_all(watch: Watch) -> None:
            acts = zip(receivers, BAD_RECEIVERS, strict=True)
            await asyncio.gather(*(ask(watch, receiver, *bad) for receiver, bad in acts))

        async def main() -> None:
            async with make_watch(MemoryStore(strict=False)) as watch:
                await beside(watch, ask_all(watch))
                assert not [entry async for entry in watch.events() if entry.event.kind == "delivery_made"]

        asyncio.run(main())
        for receiver, bad in zip(receivers, BAD_RECEIVERS, strict=True):
            assert len(receiver.requests) == 4, bad


@pytest.mark.row("M9")
@pytest.mark.parametrize("status", [400, 401, 404, 410])
def test_what_a_receiver_refuses_for_good_is_not_posted_again(status: int) -> None:
    with WebhookReceiver(OLD) as oracle:
        oracle.always(Status(status, {}, b"no"))

        async def main() -> None:
            async with make_watch(MemoryStore(strict=False)) as watch:
                lease = await asking(watch)
                ended = await beside(watch, lease.request(oracle.url, "webhook", "deploy it"))
                assert (ended.state, ended.blocked) == ("failed", False)
                assert ended.reason == f"answered {status}: no; it is not posted again"
                await lease.complete()

        asyncio.run(main())
        assert len(oracle.requests) == 1


@pytest.mark.row("M9")
def test_without_the_extra_a_request_goes_back_to_the_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    """A process that cannot post leaves the next delivery to one that can, and says why."""
    monkeypatch.delitem(sys.modules, "allswell.interfaces.notifications.posting")
    monkeypatch.setitem(sys.modules, "httpcore", None)

    async def main() -> None:
        async with make_watch(MemoryStore(strict=False)) as watch:
            sent = await (await asking(watch)).send_request("https://hooks.example/x", "webhook", "deploy it")
            with pytest.raises(Refused, match=r"webhooks need the extra `sinks`"):
                await deliver_requests(watch, HttpPoster(SystemClock().wall, {}, {}))
            row = await watch.task(sent)
            assert row is not None
            stand = row.task.record.request
            assert stand is not None
            assert (row.lease, stand.waiting, row.task.record.failures) == (None, True, {})
            assert stand.attempt < stand.last, "another process can still post it"
            assert "`sinks`" in row.task.record.handover.message

    asyncio.run(main())


@pytest.mark.row("M9")
def test_a_receiver_that_asks_to_be_left_alone_is() -> None:
    with WebhookReceiver(OLD) as oracle:
        oracle.script(Status(429, {"retry-after-ms": "500"}), Well())

        async def main() -> None:
            async with make_watch(MemoryStore(strict=False)) as watch:
                lease = await asking(watch)
                asked = lease.request(oracle.url, "webhook", "deploy it", timeout="200ms", retries=20)
                assert (await beside(watch, asked)).state == "done"

        asyncio.run(main())
        first, second = [request.at for request in oracle.requests]
        assert second - first >= 0.5


@pytest.mark.realtime
@pytest.mark.row("M9")
def test_a_request_is_signed_with_each_secret_of_its_host() -> None:
    with WebhookReceiver(OLD) as oracle:
        host = oracle.url.removeprefix("http://")
        both = {host: ("HOOK_SECRET_NEW", "HOOK_SECRET"), "*": ("BAD",)}

        async def ask(secrets: Mapping[str, Sequence[str]]) -> str:
            async with make_watch(MemoryStore(strict=False)) as watch:
                lease = await asking(watch)
                asked = lease.request(oracle.url, "webhook", "deploy it", timeout=ENOUGH, retries=0)
                ended = await beside(watch, asked, secrets=secrets)
                attempts = await watch.attempts(ended.request_id)
                return ended.state if ended.state == "done" else attempts[0].detail

        assert asyncio.run(ask(both)) == "done"
        oracle.secret = NEW  # the receiver has changed: the old one can go
        assert asyncio.run(ask(both)) == "done"
        assert asyncio.run(ask(SECRETS)) == "answered 401: the signature is wrong; it is not posted again"
        sent = len(oracle.requests)
        assert "webhook_secrets (BAD): a webhook's secret is whsec_" in asyncio.run(ask({"*": ("BAD",)}))
        assert asyncio.run(ask({"*": ("GONE",)})) == "webhook_secrets: the variable GONE is not set, or empty"
        assert "has no secret" in asyncio.run(ask({"other.example": ("HOOK_SECRET",)}))
        assert len(oracle.requests) == sent, "what cannot be signed is not posted"


@pytest.mark.realtime
@pytest.mark.row("M9")
@pytest.mark.parametrize("private", [True, False])
def test_an_address_that_may_not_be_reached_blocks_like_any_other(
    private: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a name leads to is only known when it is looked up."""
    found = "169.254.169.254" if private else "127.0.0.1"

    async def main() -> None:
        async def resolve(*_: object, **__: object) -> list[Any]:
            return [(2, 1, 6, "", (found, 443))]

        monkeypatch.setattr(asyncio.get_running_loop(), "getaddrinfo", resolve)
        async with make_watch(MemoryStore(strict=False)) as watch:
            lease = await asking(watch)
            asked = lease.request("https://oracle.example/", "webhook", "deploy it", timeout=ENOUGH, retries=0)
            ended = await beside(watch, asked, private=private)
            assert ended.blocked
            (attempt,) = await watch.attempts(ended.request_id)
            assert ("credentials" if private else "not on the public internet") in attempt.detail

    asyncio.run(main())


@pytest.mark.row("M9")
@pytest.mark.parametrize(
    "to, says",
    [
        ("http://169.254.169.254/latest", "link-local or metadata"),
        ("https://[fd00:ec2::254]/", "link-local or metadata"),
        ("https://127.0.0.1/", 'webhook_hosts = "private" would allow it'),
        ("http://oracle.example/", 'without TLS.*or webhook_hosts = "private"'),
        ("https://oracle.example/", r"what is posted is signed, and oracle\.example has no secret"),
    ],
)
def test_an_address_that_cannot_be_meant_is_refused_at_once(to: str, says: str) -> None:
    async def main() -> None:
        figures = MeshFigures(private_webhooks=False, webhook_secrets={})
        async with make_watch(MemoryStore(), mesh=figures) as watch:
            lease = await asking(watch)
            with pytest.raises(Refused, match=says):
                await lease.request(to, "webhook", "deploy it")

    asyncio.run(main())
