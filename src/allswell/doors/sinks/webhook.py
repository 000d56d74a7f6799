"""The webhook sink: every event it hears of is posted to one URL, signed, as Standard Webhooks has it.

The body is `{"type", "timestamp", "data"}`, `data` being the event as `allswell events --json` prints it. The headers
are `webhook-id`, the same for every try (a receiver that has seen it answers well and does nothing),
`webhook-timestamp` and `webhook-signature`. With several secrets there is a signature by each, so that a secret can be
replaced while both sides still know the old one.

Any 2xx is the end of it. What the receiver can never take (400, 410, 413, 414, 415, 422) is given up; whatever else
goes wrong is tried again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import msgspec

from allswell.domain.delivery import Delivery, Failure, Patience
from allswell.domain.event import Event
from allswell.domain.journal import Entry
from allswell.domain.retry_after import asked_wait
from allswell.doors.shapes.event import EventShape
from allswell.doors.shapes.moment import moment
from allswell.doors.sinks.posting import Posted, checked_url, post, reachable
from allswell.doors.sinks.signing import signed_headers, signer
from allswell.doors.sinks.sink import Message, NotDelivered
from allswell.errors import Refused
from allswell.store.views import Views

NEVER = frozenset((400, 410, 413, 414, 415, 422))
_SHOWN = 200
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
        patience: Patience | None = None,
        limit: float = 30.0,
        private: bool = False,
        body_most: int = 262_144,
        wall: Callable[[], int],
    ) -> None:
        self.name = name
        self.begins = begins
        self.limit = limit
        self.patience = patience or Patience()
        self._url = checked_url(url, private=private, where=f"sinks.{name}.url")
        self._signers = [signer(secret, where=f"sinks.{name}.secret_env") for secret in secrets]
        self._hears = hears
        self._private = private
        self._body_most = body_most
        self._wall = wall

    async def messages(self, entry: Entry, views: Views) -> Sequence[Message]:
        """An event as it is posted."""
        del views
        if not self._hears(entry.event.kind):
            return ()
        body = WebhookBody(entry.event.kind, moment(entry.at), EventShape.of(entry))
        return [Message(_encode(body).decode())]

    async def send(self, batch: Sequence[Delivery]) -> None:
        """Post one delivery."""
        (delivery,) = batch
        body = delivery.body.encode()
        if len(body) > self._body_most:
            text = f"the message has {len(body):,} bytes, more than max_body ({self._body_most:,})"
            raise NotDelivered(Failure(text, final=True))
        headers = signed_headers(delivery.id, delivery.body, self._signers, self._wall())
        answer = await post(self._url, body, headers, private=self._private)
        if not 200 <= answer.status < 300:
            raise NotDelivered(self._failure(answer))

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
            raise Refused("unreachable", f"{where} cannot be told: {error.failure.reason}", where=where) from None
        return f"{self._url.hostname} is at {', '.join(addresses)}; what is sent has {len(self._signers)} signature(s)"

    async def close(self) -> None:
        """Nothing stays open between two messages."""

    def _failure(self, answer: Posted) -> Failure:
        said = answer.body[:_SHOWN].decode("utf-8", "replace").strip()
        shown = "".join(char if char.isprintable() else " " for char in said)
        if 300 <= answer.status < 400:
            shown = "redirects are not followed; set the URL that it leads to"
        reason = f"answered {answer.status}" + (f": {shown}" if shown else "")
        return Failure(reason, final=answer.status in NEVER, retry_after=asked_wait(answer.headers, self._wall()))
