"""Delivering requests to an address: a 2xx is the answer, its body the result (M1, M9).

Such a request lies in the pool under a role of its own. Whoever does this takes it, posts it, and completes it with the
answer, or lets it fail: then it is taken up again when it is delivered again, 30 seconds apart by default. It is posted
under the same `webhook-id` each time, so a receiver that has seen it answers well and does nothing. It is signed with
the secrets of its host, and the address is checked when it is connected to, as with a webhook sink; a request blocks
its task, a sink blocks nobody.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from urllib.parse import SplitResult

import msgspec

from allswell.domain.address import LEAVE, WEBHOOKS
from allswell.domain.delivery import made_words
from allswell.domain.event import Event
from allswell.domain.retry import ErrorClass, Failure
from allswell.domain.webhook_secret import TABLE, WebhookSecrets, secrets_for
from allswell.doors.sinks.posting import checked_url, post
from allswell.doors.sinks.signing import signed_headers, signer
from allswell.doors.sinks.sink import NotDelivered
from allswell.doors.sinks.variables import variable
from allswell.engine.handle import Lease
from allswell.engine.watch import Watch
from allswell.errors import AllswellError, Refused, Unavailable
from allswell.timing.nursery import Nursery

AGENT = "allswell.webhooks"
_WAIT = 5_000
_LEASE = 30_000
_AT_ONCE = 16
_AGAIN = 0.5
"""Seconds after which a store that was away is asked again."""
_SHOWN = 200


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
            nursery.start(_deliver(watch, lease, places, posting), name=f"request {lease.task}")


async def _deliver(watch: Watch, lease: Lease, places: asyncio.Semaphore, posting: Posting) -> None:
    try:
        with contextlib.suppress(AllswellError):  # the store is away, or somebody else has answered: it comes again
            await _post(watch, lease, posting)
    finally:
        places.release()


async def _post(watch: Watch, lease: Lease, posting: Posting) -> None:
    task = lease.granted.task
    asked, stand, origin = task.spec.request, task.record.request, task.spec.origin
    assert asked is not None and stand is not None and origin is not None  # noqa: S101, PT018 - it is a request
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
        if not 200 <= answer.status < 300:
            said = answer.body[:_SHOWN].decode("utf-8", "replace").strip()
            await lease.fail(Failure(ErrorClass.SERVER, f"answered {answer.status}: {said}".removesuffix(": ")))
            return
        if stand.attempt > 1:
            made = {"sink": asked.to, "delivery": task.id, "tries": stand.attempt - 1}
            made["says"] = made_words(stand.attempt - 1)
            await watch.notice(Event("delivery_made", origin.task, None, origin.agent, origin.token, made))
        await lease.complete(_read(answer.body))


def _read(body: bytes) -> object:
    """The answer: JSON as it is, anything else as text."""
    try:
        return msgspec.json.decode(body) if body.strip() else None
    except (msgspec.DecodeError, UnicodeDecodeError):
        return body.decode("utf-8", "replace").replace("\0", "")
