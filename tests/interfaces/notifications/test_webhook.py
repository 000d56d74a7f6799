"""Webhooks out, over real sockets: signed, to the address that was checked, and told apart by id."""

import asyncio
import base64
import gzip
import random
import ssl
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from allswell.app import make_watch
from allswell.domain.ids import Millis, TaskId
from allswell.domain.notify.delivery import Delivery, DeliveryFilter
from allswell.domain.notify.spec import SinkSpec
from allswell.domain.rules.event import KINDS, Entry, Event, Position
from allswell.errors import Refused
from allswell.interfaces.notifications import posting
from allswell.interfaces.notifications.follower import Follower
from allswell.interfaces.notifications.sink import NotDelivered
from allswell.interfaces.notifications.webhook import WebhookSink, signer
from allswell.store.memory import MemoryStore
from allswell.timing.clock import SystemClock
from tests.support.fakes import Hang, Lose, Status, WebhookReceiver, Well

OLD, NEW = ("whsec_" + base64.b64encode(bytes([number] * 32)).decode() for number in (1, 2))
wall = SystemClock().wall
ENTRY = Entry(Position(1, 2), Millis(1_700_000_000_123), Event("task_failed", TaskId("t_1"), data={"reason": "“ö”"}))


@pytest.fixture
def receiver() -> Iterator[WebhookReceiver]:
    with WebhookReceiver(OLD) as receiver:
        yield receiver


def sink_for(url: str, *secrets: str, private: bool = True, body_most: int = 10_000, limit: float = 5) -> WebhookSink:
    environ = {f"SECRET_{number}": secret for number, secret in enumerate(secrets or (OLD,))}
    spec = SinkSpec(
        name="web",
        hears=tuple(kind for kind in KINDS if kind != "task_ready"),
        begins="start",
        timeout=int(limit * 1_000),
        apart=50,
        url=url,
        secret_env=tuple(environ),
        allow_private=private,
        max_body=body_most,
    )
    return WebhookSink(spec, environ, wall)


def send(sink: WebhookSink, id_: str = "msg_1", body: str | None = None) -> None:
    async def main() -> None:
        (message,) = await sink.messages(ENTRY, MemoryStore())
        await sink.send([Delivery("web", id_, "", (1, 2, 0), Millis(0), body or message.body)])

    asyncio.run(main())


@pytest.mark.row("M9")
def test_an_event_is_posted_signed_with_its_id(receiver: WebhookReceiver) -> None:
    send(sink_for(f"{receiver.url}/hooks?x=1"))
    send(sink_for(f"{receiver.url}/hooks?x=1"))
    (asked, _) = receiver.requests
    assert (asked.method, asked.path, asked.query) == ("POST", "/hooks", "x=1")
    assert receiver.taken == {
        "msg_1": {
            "type": "task_failed",
            "timestamp": "2023-11-14T22:13:20.123Z",
            "data": {
                "position": [1, 2],
                "occurred_at": "2023-11-14T22:13:20.123Z",
                "kind": "task_failed",
                "task_id": "t_1",
                "run_id": None,
                "agent_id": None,
                "token": None,
                "data": {"reason": "“ö”"},
            },
        }
    }
    assert receiver.repeated == ["msg_1"]


@pytest.mark.row("M9")
def test_a_secret_is_replaced_while_both_sides_know_the_old_one(receiver: WebhookReceiver) -> None:
    send(sink_for(receiver.url, NEW, OLD), "msg_1")
    receiver.secret = NEW
    send(sink_for(receiver.url, NEW, OLD), "msg_2")
    with pytest.raises(NotDelivered, match="answered 401: the signature is wrong"):
        send(sink_for(receiver.url, OLD), "msg_3")
    assert list(receiver.taken) == ["msg_1", "msg_2"]


@pytest.mark.parametrize("status", [400, 410, 413, 422])
def test_what_can_never_be_taken_is_given_up(receiver: WebhookReceiver, status: int) -> None:
    receiver.script(Status(status, body=b"no\x00 thanks"))
    with pytest.raises(NotDelivered, match=f"answered {status}: no  thanks") as caught:
        send(sink_for(receiver.url))
    assert caught.value.failure.final


@pytest.mark.parametrize("status", [302, 307, 401, 403, 404, 408, 429, 500, 503])
def test_whatever_else_goes_wrong_is_tried_again(receiver: WebhookReceiver, status: int) -> None:
    receiver.script(Status(status, {"retry-after": "7", "location": "http://169.254.169.254/"}))
    with pytest.raises(NotDelivered, match=f"answered {status}") as caught:
        send(sink_for(receiver.url))
    assert not caught.value.failure.final
    assert caught.value.failure.retry_after == 7_000
    assert len(receiver.requests) == 1, "no redirect is followed"


def test_a_lost_answer_is_no_answer(receiver: WebhookReceiver) -> None:
    receiver.script(Lose())
    with pytest.raises(NotDelivered, match="broke off"):
        send(sink_for(receiver.url))
    send(sink_for(receiver.url))
    assert list(receiver.taken) == receiver.repeated == ["msg_1"]


@pytest.mark.parametrize("body", [b"-1\r\n", b"0x10\r\n", b"\r\n", b"ffffffffff\r\n"])
def test_a_status_is_enough_where_the_body_makes_no_sense(receiver: WebhookReceiver, body: bytes) -> None:
    receiver.script(Status(200, {"transfer-encoding": "chunked"}, body))
    send(sink_for(receiver.url))


def test_certificates_are_read_once() -> None:
    """Reading them takes tens of milliseconds, during which the process that watches a fleet would do nothing else."""
    assert posting._tls() is posting._tls()
    assert posting._tls().check_hostname


def test_a_body_that_is_too_big_is_not_sent(receiver: WebhookReceiver) -> None:
    with pytest.raises(NotDelivered, match="more than max_body") as caught:
        send(sink_for(receiver.url, body_most=100), body="x" * 101)
    assert caught.value.failure.final
    assert receiver.requests == []


@pytest.mark.row("M9")
def test_where_a_name_leads_is_checked_when_connecting(
    receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name is public when it is set up; the address that it has at the moment is what counts."""
    leads_to = ["93.184.216.34", "127.0.0.1"]

    async def lookup(self: object, host: str, port: int, **_: object) -> list[object]:
        assert host == "hooks.example"
        return [(2, 1, 6, "", (address, port)) for address in leads_to]

    monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", lookup)
    url = f"https://hooks.example:{receiver.port}/"
    with pytest.raises(NotDelivered, match=r"hooks\.example leads to 127\.0\.0\.1, which is not on the public"):
        send(sink_for(url, private=False))
    leads_to[:] = ["169.254.169.254"]
    with pytest.raises(NotDelivered, match="leads to 169"):
        send(sink_for(url, private=True))
    assert receiver.requests == []
    leads_to[:] = ["127.0.0.1"]
    send(sink_for(url.replace("https", "http"), private=True))
    assert receiver.requests[0].headers["host"] == f"hooks.example:{receiver.port}"


def certificate(folder: Path, name: str) -> ssl.SSLContext:
    """A server's own certificate for a name; what trusts it lies in `folder`."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    began, names = datetime(2020, 1, 1, tzinfo=UTC), x509.SubjectAlternativeName([x509.DNSName(name)])
    made = x509.CertificateBuilder(subject, subject, key.public_key(), 1, began, datetime(2100, 1, 1, tzinfo=UTC))
    made = made.add_extension(names, critical=False)
    plain = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(*plain))
    (folder / "own.pem").write_bytes(made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "own.pem", folder / "key.pem")
    return context


@pytest.mark.row("M9")
@pytest.mark.parametrize("name", ["hooks.example", "other.example"])
def test_tls_asks_for_the_hosts_own_name_whatever_address_it_has(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served = certificate(tmp_path, name)
    trusting = ssl.create_default_context(cafile=tmp_path / "own.pem")
    monkeypatch.setattr(posting, "_tls", lambda: trusting)

    async def lookup(self: object, host: str, port: int, **_: object) -> list[object]:
        return [(2, 1, 6, "", ("127.0.0.1", port))]

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok")
        await writer.drain()
        writer.close()

    async def main() -> posting.HttpResponse:
        server = await asyncio.start_server(answer, "127.0.0.1", 0, ssl=served)
        url = urlsplit(f"https://hooks.example:{server.sockets[0].getsockname()[1]}/")
        monkeypatch.setattr(asyncio.base_events.BaseEventLoop, "getaddrinfo", lookup)
        async with server:
            return await posting.post(url, b"{}", {}, private=True)

    if name == "hooks.example":
        assert asyncio.run(main()).body == b"ok"
    else:
        with pytest.raises(NotDelivered, match=r"hooks\.example cannot be reached: .*(certificate|Hostname)"):
            asyncio.run(main())


def test_no_proxy_of_the_environment_is_told(receiver: WebhookReceiver, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("http_proxy", "https_proxy", "all_proxy", "HTTPS_PROXY"):
        monkeypatch.setenv(variable, "http://127.0.0.1:9")
    send(sink_for(receiver.url))
    assert list(receiver.taken) == ["msg_1"]


def test_a_head_without_an_end_is_not_read_for_ever(receiver: WebhookReceiver) -> None:
    receiver.script(Status(200, {f"x-{number}": "y" * 60_000 for number in range(4)}))
    with pytest.raises(NotDelivered, match="broke off"):
        send(sink_for(receiver.url))


def test_a_compressed_answer_is_not_unpacked(receiver: WebhookReceiver) -> None:
    receiver.script(Status(400, {"content-encoding": "gzip"}, gzip.compress(b"x" * 10_000_000)[:100]))
    with pytest.raises(NotDelivered, match="answered 400"):
        send(sink_for(receiver.url))


@pytest.mark.parametrize(
    "url, says",
    [
        ("http://169.254.169.254/latest/meta-data", "link-local or metadata"),
        ("https://127.0.0.1/", "not on the public internet"),
        ("https://[::1]/", "not on the public internet"),
        ("http://hooks.example/", "without TLS"),
        ("https://me:hunter2@hooks.example/", "ends up in logs"),
        ("ftp://hooks.example/", "write https://host/path"),
        ("hooks.example", "write https://host/path"),
        ("https://", "write https://host/path"),
        ("https://hooks.example/a b", "write https://host/path"),
        ("https://hooks.example:99999/", "this is not a URL"),
        ("https://[::1", "this is not a URL"),
        ("https://hooks.example/café", "write other letters as a URL has them"),
        ("https://168.63.129.16/", "link-local or metadata"),
    ],
)
def test_a_url_that_cannot_be_right_is_refused_at_once(url: str, says: str) -> None:
    with pytest.raises(Refused, match=says) as caught:
        sink_for(url, private=url.startswith("http://169"))
    assert caught.value.where == "sinks.web.url"
    assert "hunter2" not in caught.value.message


@pytest.mark.parametrize("secret", ["", "whsec_", "hunter2", "whsec_" + "A" * 200])
def test_a_secret_that_is_none_is_refused_without_being_shown(secret: str) -> None:
    with pytest.raises(
        Refused, match="openssl rand -base64 32" if secret else "the variable SECRET_0 is not set"
    ) as caught:
        sink_for("https://hooks.example/", secret)
    assert "hunter2" not in caught.value.message
    with pytest.raises(Refused, match="openssl rand -base64 32") as caught:
        signer(secret, where="hooks.x")
    assert "hunter2" not in caught.value.message


def test_through_the_follower_whatever_the_receiver_does_each_event_is_acted_on_once_and_in_order() -> None:
    async def main(receiver: WebhookReceiver) -> None:
        store = MemoryStore(strict=False)
        async with make_watch(store, chance=random.Random(1)) as watch:
            running = asyncio.ensure_future(Follower(watch, sink_for(receiver.url, limit=0.3), "one").run())
            await watch.submit_many([{"name": f"{number}"} for number in range(20)])
            while len(receiver.taken) < 20 or await watch.outbox.view_deliveries(DeliveryFilter()):
                await asyncio.sleep(0.02)
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    with WebhookReceiver(OLD) as receiver:
        receiver.script(Status(503), Lose(), Hang(), Well(), Status(429, {"retry-after": "0"}), Lose())
        asyncio.run(asyncio.wait_for(main(receiver), 30))
        names = [taken["data"]["data"]["name"] for taken in receiver.taken.values()]
    assert names == [f"{number}" for number in range(20)]
    assert len(receiver.repeated) == 2
