"""The webhook sink: every event it hears of is posted to one URL, signed, as Standard Webhooks has it.

The body is `{"type", "timestamp", "data"}`, `data` being the event as `allswell events --json` prints it. The headers
are `webhook-id`, the same for every try (a receiver that has seen it answers well and does nothing),
`webhook-timestamp` and `webhook-signature`. With several secrets there is a signature by each, so that a secret can be
replaced while both sides still know the old one.

Any 2xx is the end of it. What the receiver can never take (400, 410, 413, 414, 415, 422) is given up; whatever else
goes wrong is tried again.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import ssl
import string
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal
from urllib.parse import SplitResult, urlsplit

import msgspec

from allswell.domain.ids import Millis
from allswell.domain.mesh.routing import LEAVE, LEAVE_URL, why_not, wrong_with_url
from allswell.domain.notify.delivery import Delivery, DeliveryFailure, DeliveryRetries
from allswell.domain.notify.spec import TABLE, WebhookSecrets, secrets_for
from allswell.domain.rules.event import Entry, Event
from allswell.domain.service.classify import asked_wait
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.submit import WEBHOOKS
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.interfaces.notifications.sink import NotDelivered, SinkMessage, variable
from allswell.store.views import Views
from allswell.timing.nursery import Nursery
from allswell.views.delivery import EventShape
from allswell.views.fields import moment

# Posting over HTTP to an address that was checked.
#
# The usual clients look a host up by themselves, after any check that we could make. Here the host is looked up, every
# address it has is checked (domain/mesh/routing.py), and one of those is connected to; TLS still asks for the host's
# own name. Redirects are not followed: they would lead to an address that nobody has set up.

_HEAD_MOST = 65_536
_BODY_MOST = 65_536
"""What is read of an answer."""
_WITHOUT_BODY = (204, 205, 304)
_SAID = 200
"""Characters of an answer that are told."""


class Posted(msgspec.Struct, frozen=True):
    """An answer."""

    status: int
    headers: Mapping[str, str]
    """Under lower-case names."""
    body: bytes
    """Its beginning."""
    lacks: str = ""
    """Why the body is not all of the answer: it was cut off, or is too long; empty where it is."""


def checked_url(url: str, *, private: bool, where: str, leave: str = LEAVE_URL) -> SplitResult:
    """A URL that can be posted to, as far as that can be told without looking anything up; else `Refused`."""
    wrong = wrong_with_url(url, private=private, leave=leave)
    if wrong is not None:
        raise Refused("bad_webhook_url", f"{where}: {wrong}", where=where)
    return urlsplit(url)


async def post(url: SplitResult, body: bytes, headers: Mapping[str, str], *, private: bool) -> Posted:
    """Post once, and return the answer whatever its status; `NotDelivered` if there is none."""
    host = url.hostname or ""
    secure = url.scheme == "https"
    port = url.port or (443 if secure else 80)
    reader, writer = await _connect(host, port, secure=secure, private=private)
    try:
        writer.write(_request(url, host, body, headers))
        await writer.drain()
        return await _answer(reader)
    except (OSError, ssl.SSLError, EOFError, ValueError, asyncio.LimitOverrunError) as error:
        raise NotDelivered(DeliveryFailure(f"the connection to {host} broke off: {_said(error)}")) from None
    finally:
        writer.transport.abort()


def failure_of(answer: Posted, now: int, never: Collection[int]) -> DeliveryFailure:
    """What went wrong, of an answer that is no 2xx; those of `never` are final. `now` is the wall clock."""
    said = answer.body[:_SAID].decode("utf-8", "replace").strip()
    shown = "".join(char if char.isprintable() else " " for char in said)
    if 300 <= answer.status < 400:
        shown = "redirects are not followed; set the URL that it leads to"
    reason = f"answered {answer.status}" + (f": {shown}" if shown else "")
    return DeliveryFailure(reason, final=answer.status in never, retry_after=asked_wait(answer.headers, now))


async def _connect(
    host: str, port: int, *, secure: bool, private: bool
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    addresses = await _checked_addresses(host, port, private=private)
    last: Exception | None = None
    for address in addresses:
        try:
            return await asyncio.open_connection(
                address,
                port,
                ssl=_tls() if secure else None,
                server_hostname=host if secure else None,
                limit=_HEAD_MOST,
            )
        except (OSError, ssl.SSLError) as error:
            last = error
    raise NotDelivered(DeliveryFailure(f"{host} cannot be reached: {_said(last)}"))


@functools.cache
def _tls() -> ssl.SSLContext:
    """Made once: reading all certificates of a system takes tens of milliseconds, in which nothing else would move."""
    return ssl.create_default_context()


async def reachable(url: SplitResult, *, private: bool) -> list[str]:
    """The addresses of a URL's host; `NotDelivered` if there are none, or one of them may not be reached."""
    return await _checked_addresses(url.hostname or "", url.port or 443, private=private)


async def _checked_addresses(host: str, port: int, *, private: bool) -> list[str]:
    addresses = await _addresses(host, port)
    for address in addresses:
        reason = why_not(address, private=private)
        if reason is not None:
            raise NotDelivered(DeliveryFailure(f"{host} leads to {address}, which {reason}"))
    return addresses


async def _addresses(host: str, port: int) -> list[str]:
    import socket

    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise NotDelivered(DeliveryFailure(f"{host} is not known: {_said(error)}")) from None
    return list(dict.fromkeys(str(address[0]) for *_, address in found))


def _request(url: SplitResult, host: str, body: bytes, headers: Mapping[str, str]) -> bytes:
    name = f"[{host}]" if ":" in host else host
    path = (url.path or "/") + (f"?{url.query}" if url.query else "")
    lines = [
        f"POST {path} HTTP/1.1",
        f"host: {name}" + (f":{url.port}" if url.port else ""),
        *(f"{key}: {value}" for key, value in headers.items()),
        f"content-length: {len(body)}",
        "connection: close",
    ]
    return "\r\n".join(lines).encode("ascii", "backslashreplace") + b"\r\n\r\n" + body


async def _answer(reader: asyncio.StreamReader) -> Posted:
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        version, code, *_ = [*head[0].split(" ", 2), ""]
        if not version.startswith("HTTP/1.") or not code.isdigit():
            raise ValueError("the answer is not HTTP")
        if not code.startswith("1"):
            break
    pairs = (line.partition(":") for line in head[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    if int(code) in _WITHOUT_BODY:
        return Posted(int(code), headers, b"")
    try:
        body = await _body(reader, headers)
    except (OSError, EOFError, ValueError, asyncio.LimitOverrunError):
        return Posted(int(code), headers, b"", "was cut off")  # for many callers the status alone will do
    lacks = f"has more than {_BODY_MOST:,} bytes" if len(body) > _BODY_MOST else ""
    return Posted(int(code), headers, body[:_BODY_MOST], lacks)


async def _body(reader: asyncio.StreamReader, headers: Mapping[str, str]) -> bytes:
    """All of it; or, where it is longer than is read of an answer, at least one byte more than that."""
    enough = _BODY_MOST + 1
    if headers.get("transfer-encoding", "").lower() == "chunked":
        whole = b""
        while len(whole) < enough and (size := _chunk_size(await reader.readline())):
            whole += (await reader.readexactly(min(size, enough) + 2))[:-2] if size <= enough else bytes(enough)
        return whole
    if (length := headers.get("content-length", "")).isdigit():
        return await reader.readexactly(min(int(length[:15]), enough))
    whole = b""
    while len(whole) < enough and (part := await reader.read(enough - len(whole))):
        whole += part
    return whole


def _chunk_size(line: bytes) -> int:
    digits = line.split(b";")[0].strip().decode("ascii", "replace")
    if not digits or set(digits) - set(string.hexdigits):
        raise ValueError("a chunk has no length")
    return int(digits, 16)


def _said(error: Exception | None) -> str:
    return str(getattr(error, "strerror", None) or error or type(error).__name__)


# Signing what is posted, as Standard Webhooks has it: the id, the moment and the body, with each secret.
#
# With several secrets there is a signature by each, so that a secret can be replaced while both sides still know the
# old one.

_SHORTEST, _LONGEST = 24, 64
"""Bytes of a secret, as Standard Webhooks wants them."""

Signer = Callable[[str, datetime, str], str]


def signer(secret: str, *, where: str) -> Signer:
    """What signs with a secret; `Refused`, without showing it, if it is none."""
    try:
        from standardwebhooks import Webhook
    except ImportError as error:
        raise Refused(
            "no_driver",
            "webhooks need the extra `sinks`: install Allswell with it, as in `uv tool install '.[sinks]'`",
            where=where,
        ) from error
    try:
        key = base64.b64decode(secret.removeprefix("whsec_").strip() + "==", validate=False)
    except (binascii.Error, ValueError):
        key = b""
    if not _SHORTEST <= len(key) <= _LONGEST:
        text = (
            f"{where}: a webhook's secret is whsec_ and then {_SHORTEST} to {_LONGEST} bytes in base64; "
            "`openssl rand -base64 32` makes one"
        )
        raise Refused("bad_secret", text, where=where)
    return Webhook(key).sign


def signed_headers(id_: str, body: str, signers: Sequence[Signer], wall: int) -> dict[str, str]:
    """The headers of a message; `wall` is the moment, in milliseconds."""
    at = wall // 1_000
    when = datetime.fromtimestamp(at, tz=UTC)
    return {
        "content-type": "application/json",
        "user-agent": "allswell",
        "webhook-id": id_,
        "webhook-timestamp": str(at),
        **({"webhook-signature": " ".join(sign(id_, when, body) for sign in signers)} if signers else {}),
    }


NEVER = frozenset((400, 410, 413, 414, 415, 422))
_encode = msgspec.json.encode


class WebhookBody(msgspec.Struct, frozen=True):
    """What is posted."""

    type: str
    timestamp: str
    data: EventShape


class WebhookSink:
    """Posts to one URL."""

    together = 1
    targets: Sequence[str] = ("",)
    memory = ""

    def __init__(  # noqa: PLR0913 - each has a name
        self,
        name: str,
        url: str,
        secrets: Sequence[str],
        hears: Callable[[str], bool],
        *,
        begins: Literal["now", "start"] = "now",
        patience: DeliveryRetries | None = None,
        limit: float = 30.0,
        private: bool = False,
        body_most: int = 262_144,
        wall: Callable[[], int],
    ) -> None:
        self.name = name
        self.begins = begins
        self.limit = limit
        self.patience = patience or DeliveryRetries()
        self._url = checked_url(url, private=private, where=f"sinks.{name}.url")
        self._signers = [signer(secret, where=f"sinks.{name}.secret_env") for secret in secrets]
        self._hears = hears
        self._private = private
        self._body_most = body_most
        self._wall = wall

    async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
        """An event as it is posted."""
        del views
        if not self._hears(entry.event.kind):
            return ()
        body = WebhookBody(entry.event.kind, moment(entry.at), EventShape.of(entry))
        return [SinkMessage(_encode(body).decode())]

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Post one delivery."""
        (delivery,) = batch
        body = delivery.body.encode()
        if len(body) > self._body_most:
            text = f"the message has {len(body):,} bytes, more than max_body ({self._body_most:,})"
            raise NotDelivered(DeliveryFailure(text, final=True))
        headers = signed_headers(delivery.id, delivery.body, self._signers, self._wall())
        answer = await post(self._url, body, headers, private=self._private)
        if not 200 <= answer.status < 300:
            raise NotDelivered(failure_of(answer, self._wall(), NEVER))

    def free_at(self, target: str, now: int) -> int:
        """It may be told something at any time."""
        del target
        return now

    def made(self, batch: Sequence[Delivery]) -> Sequence[Event]:
        """Nothing is told of what went well."""
        del batch
        return ()

    async def check(self) -> str:
        """Whether the host is known, and may be reached."""
        try:
            addresses = await reachable(self._url, private=self._private)
        except NotDelivered as error:
            where = f"sinks.{self.name}.url"
            raise Refused("unreachable", f"{where} cannot be reached: {error.failure.reason}", where=where) from None
        return f"{self._url.hostname} is at {', '.join(addresses)}; what is sent has {len(self._signers)} signature(s)"

    async def close(self) -> None:
        """Nothing stays open between two messages."""


# Delivering requests to an address: a 2xx is the answer, its body the result (M1, M9).
#
# Such a request lies in the pool under a role of its own. Whoever does this takes it, posts it, and completes it with
# the
# answer, or lets it fail: then it is taken up again when it is delivered again, 30 seconds apart by default, and not
# before its receiver wants it (Retry-After). What is refused for good (`NEVER`) has failed. It is posted once for each
# delivery, under the same `webhook-id` each time, so a receiver that has seen it answers well and does nothing. It is
# signed with the secrets of its host, and the address is checked when it is connected to, as with a webhook sink; a
# request blocks its task, a sink blocks nobody.

AGENT = "allswell.webhooks"
_WAIT = 5_000
_LEASE = 30_000
_AT_ONCE = 256
"""So many are posted at once: receivers that hang keep nobody else waiting."""
_AGAIN = 0.5
"""Seconds after which a store that was away is asked again."""
REFUSED_FOR_GOOD = frozenset((400, 401, 403, 404, 405, 410, 413, 414, 415, 422))
"""Statuses after which nothing is posted again: what was asked, or where, is wrong, and the asker has to know it."""


class RequestBody(msgspec.Struct, frozen=True):
    """What is posted."""

    type: str
    request_id: str
    sender: str
    summary: str
    payload: msgspec.Raw


class Posting(msgspec.Struct, frozen=True):
    """How requests are posted."""

    wall: Callable[[], int]
    secrets: WebhookSecrets
    """By host, the variables that hold what signs them."""
    environ: Mapping[str, str]
    private: bool = False

    def url_of(self, to: str) -> SplitResult:
        """Where to post it; `Refused` if nothing may be posted there."""
        return checked_url(to, private=self.private, where="to", leave=LEAVE)

    def headers(self, to: str, id_: str, body: str) -> dict[str, str]:
        """The headers, with a signature by each secret of the host; `Refused` without showing one."""
        names = secrets_for(to, self.secrets)
        signers = [signer(variable(name, self.environ, TABLE), where=f"{TABLE} ({name})") for name in names]
        return signed_headers(id_, body, signers, self.wall())


async def deliver_requests(watch: Watch, posting: Posting) -> None:
    """Post requests to addresses until cancelled; any number of processes may do it at once."""
    places = asyncio.Semaphore(_AT_ONCE)
    async with Nursery() as nursery:
        while True:
            await places.acquire()
            try:
                lease = await watch.claim(agent=AGENT, roles=[WEBHOOKS], wait=_WAIT, lease=_LEASE)
            except Unavailable:
                await asyncio.sleep(_AGAIN)
                lease = None
            if lease is None:
                places.release()
                continue
            nursery.start(_deliver(lease, places, posting), name=f"request {lease.task}")


async def _deliver(lease: Lease, places: asyncio.Semaphore, posting: Posting) -> None:
    try:
        with contextlib.suppress(AllswellError):  # the store is away, or somebody else has answered: it comes again
            await _post(lease, posting)
    finally:
        places.release()


async def _post(lease: Lease, posting: Posting) -> None:
    task = lease.granted.task
    asked, stand, origin = task.spec.request, task.record.request, task.spec.origin
    if asked is None or stand is None or origin is None:
        await lease.fail(Failure(ErrorClass.PERMANENT, "it is not a request to an address, and only those are posted"))
        return
    told = RequestBody("request", task.id, origin.agent, task.name, msgspec.Raw(lease.granted.payload.encode()))
    body = msgspec.json.encode(told)
    left = max(stand.due - lease.granted.told_at, 1) if stand.waiting else asked.timeout
    try:
        url = posting.url_of(asked.to)
        headers = posting.headers(asked.to, task.id, body.decode())
        async with asyncio.timeout(left / 1_000):
            answer = await post(url, body, headers, private=posting.private)
    except Refused as error:
        await lease.fail(Failure(ErrorClass.VALIDATION, error.message))
    except NotDelivered as error:
        await lease.fail(Failure(ErrorClass.NETWORK, error.failure.reason))
    except TimeoutError:
        await lease.fail(Failure(ErrorClass.NETWORK, "it did not answer in time"))
    else:
        failure = _failure(answer, posting.wall())
        if failure is not None:
            await lease.fail(failure)
            return
        await lease.complete(_read(answer.body))


def _failure(answer: Posted, now: int) -> Failure | None:
    """What is wrong with an answer; None where it can be the result."""
    if 200 <= answer.status < 300:
        if not answer.lacks:
            return None
        return Failure(ErrorClass.NETWORK, f"answered {answer.status}, and its body {answer.lacks}")
    refused = failure_of(answer, now, REFUSED_FOR_GOOD)
    error = ErrorClass.PERMANENT if refused.final else ErrorClass.SERVER
    return Failure(error, refused.reason, None if refused.retry_after is None else Millis(refused.retry_after))


def _read(body: bytes) -> object:
    """The answer: JSON as it is, anything else as text."""
    try:
        return msgspec.json.decode(body) if body.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace").replace("\0", "")
