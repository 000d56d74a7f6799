"""The webhook sink: every event it hears of is posted to one URL, signed, as Standard Webhooks has it.

The body is `{"type", "timestamp", "data"}`, `data` being the event as `allswell events --json` prints it. The headers
are `webhook-id`, the same for every try (a receiver that has seen it answers well and does nothing),
`webhook-timestamp` and `webhook-signature`. With several secrets there is a signature by each, so that a secret can be
replaced while both sides still know the old one.

Any 2xx is the end of it. What the receiver can never take (400, 410, 413, 414, 415, 422) is given up; whatever else
goes wrong is tried again. `posting.py` posts.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import sys
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING
from urllib.parse import SplitResult, urlsplit

import msgspec

from allswell.domain.ids import Millis
from allswell.domain.mesh.routing import LEAVE, LEAVE_URL, wrong_with_url
from allswell.domain.notify.delivery import Delivery, DeliveryFailure
from allswell.domain.notify.spec import EVERYTHING, TABLE, SinkSpec, WebhookSecrets, hearing, secrets_for
from allswell.domain.rules.event import Entry
from allswell.domain.service.retry import ErrorClass, Failure
from allswell.domain.task.submit import WEBHOOKS
from allswell.engine.lease import Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.interfaces.notifications.sink import NotDelivered, SinkDefaults, SinkMessage, variable
from allswell.store.views import Views
from allswell.timing.loops import Nursery
from allswell.timing.moment import Moment, moment, to_json
from allswell.views.delivery import EventShape

if TYPE_CHECKING:
    from allswell.interfaces.notifications.posting import HttpResponse


_POSTING = "allswell.interfaces.notifications.posting"


def checked_url(url: str, *, private: bool, where: str, leave: str = LEAVE_URL) -> SplitResult:
    """A URL that can be posted to, as far as that can be told without looking anything up; else `Refused`."""
    wrong = wrong_with_url(url, private=private, leave=leave)
    if wrong is not None:
        raise Refused("bad_webhook_url", f"{where}: {wrong}", where=where)
    return urlsplit(url)


def _needs_extra(where: str) -> Refused:
    return Refused(
        "no_driver",
        "webhooks need the extra `sinks`: install Allswell with it, as in `uv tool install '.[sinks]'`",
        where=where,
    )


def can_post() -> bool:
    """Whether the library that posts is here."""
    return find_spec("httpcore") is not None


async def _import_posting() -> None:
    """Import what posts, in a thread: it takes so long that whatever else is on the loop would be late."""
    if _POSTING not in sys.modules:
        try:
            await asyncio.to_thread(import_module, _POSTING)
        except ImportError as error:
            raise _needs_extra("sinks") from error


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
        raise _needs_extra(where) from error
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


class WebhookBody(msgspec.Struct, frozen=True):
    """What is posted."""

    type: str
    timestamp: Moment
    data: EventShape


class WebhookSink(SinkDefaults):
    """Posts to one URL."""

    def __init__(self, spec: SinkSpec, environ: Mapping[str, str], wall: Callable[[], int]) -> None:
        super().__init__(spec)
        where = f"sinks.{spec.name}"
        self._url = checked_url(spec.url, private=spec.allow_private, where=f"{where}.url")
        secrets = [variable(name, environ, f"{where}.secret_env") for name in spec.secret_env]
        self._signers = [signer(secret, where=f"{where}.secret_env") for secret in secrets]
        self._hears = hearing(spec, (EVERYTHING,))
        self._private = spec.allow_private
        self._body_most = spec.max_body
        self._wall = wall

    async def messages(self, entry: Entry, views: Views) -> Sequence[SinkMessage]:
        """An event as it is posted."""
        del views
        if entry.event.kind not in self._hears:
            return ()
        body = WebhookBody(entry.event.kind, moment(entry.at), EventShape.of(entry))
        return [SinkMessage(to_json(body).decode())]

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Post one delivery."""
        (delivery,) = batch
        body = delivery.body.encode()
        if len(body) > self._body_most:
            text = f"the message has {len(body):,} bytes, more than max_body ({self._body_most:,})"
            raise NotDelivered(DeliveryFailure(text, final=True))
        headers = signed_headers(delivery.id, delivery.body, self._signers, self._wall())
        await _import_posting()
        from allswell.interfaces.notifications.posting import failure_of, post

        answer = await post(self._url, body, headers, private=self._private)
        if not 200 <= answer.status < 300:
            raise NotDelivered(failure_of(answer, self._wall(), NEVER))

    async def check(self) -> str:
        """Whether the host is known, and may be reached."""
        from allswell.interfaces.notifications.posting import checked_addresses

        url = self._url
        try:
            addresses = await checked_addresses(url.hostname or "", url.port or 443, private=self._private)
        except NotDelivered as error:
            where = f"sinks.{self.name}.url"
            raise Refused("unreachable", f"{where} cannot be reached: {error.failure.reason}", where=where) from None
        return f"{url.hostname} is at {', '.join(addresses)}; what is sent has {len(self._signers)} signature(s)"


# Delivering requests to an address: a 2xx is the answer, its body the result (M1, M9).
#
# Such a request lies in the pool under a role of its own. Whoever does this takes it, posts it, and completes it with
# the answer, or lets it fail: then it is taken up again when it is delivered again, 30 seconds apart by default, and
# not before its receiver wants it (Retry-After). What is refused for good (`NEVER`) has failed. It is posted once for
# each delivery, under the same `webhook-id` each time, so a receiver that has seen it answers well and does nothing. It
# is signed with the secrets of its host, and the address is checked when it is connected to, as with a webhook sink; a
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


class HttpPoster(msgspec.Struct, frozen=True):
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


async def deliver_requests(watch: Watch, posting: HttpPoster) -> None:
    """Post requests to addresses until cancelled; any number of processes may do it at once."""
    await _import_posting()
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


async def _deliver(lease: Lease, places: asyncio.Semaphore, posting: HttpPoster) -> None:
    try:
        with contextlib.suppress(AllswellError):  # the store is away, or somebody else has answered: it comes again
            await _post(lease, posting)
    finally:
        places.release()


async def _post(lease: Lease, posting: HttpPoster) -> None:
    from allswell.interfaces.notifications.posting import post

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


def _failure(answer: HttpResponse, now: int) -> Failure | None:
    """What is wrong with an answer; None where it can be the result."""
    from allswell.interfaces.notifications.posting import failure_of

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
