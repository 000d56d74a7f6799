"""A receiver of webhooks as a good one is: it checks the signature, and acts once on each id."""

from __future__ import annotations

import time
from typing import Any

import msgspec

from tests.support.fakes.server import Answered, Asked, StandIn


class WebhookReceiver(StandIn):
    """Takes what is signed with its secret; without a secret, whatever comes."""

    def __init__(self, secret: str | None = None) -> None:
        super().__init__()
        self.secret = secret
        self.taken: dict[str, dict[str, Any]] = {}
        """What it acted on, by id, in the order of arrival."""
        self.repeated: list[str] = []
        """Ids that came again: it answered well, and did nothing."""

    def wait_for_taken(self, count: int, seconds: float = 10.0) -> None:
        """Wait until it has acted on so many; `TimeoutError` if they do not come."""
        end = time.monotonic() + seconds
        while len(self.taken) < count:
            if time.monotonic() > end:
                raise TimeoutError(f"{len(self.taken)} were taken after {seconds} s, not {count}")
            time.sleep(0.01)

    def answer(self, asked: Asked) -> Answered:
        """Check the signature, and act once."""
        id_ = asked.headers.get("webhook-id", "")
        if asked.method != "POST" or not id_ or "webhook-timestamp" not in asked.headers:
            return Answered(400, b"this is no webhook")
        if self.secret is not None and not self._signed(asked):
            return Answered(401, b"the signature is wrong")
        if id_ in self.taken:
            self.repeated.append(id_)
        else:
            self.taken[id_] = msgspec.json.decode(asked.body, type=dict[str, Any])
        return Answered(204)

    def _signed(self, asked: Asked) -> bool:
        from standardwebhooks import Webhook, WebhookVerificationError

        try:
            Webhook(self.secret or "").verify(asked.body, dict(asked.headers))
        except WebhookVerificationError:
            return False
        return True
