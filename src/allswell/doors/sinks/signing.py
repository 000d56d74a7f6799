"""Signing what is posted, as Standard Webhooks has it: the id, the moment and the body, with each secret.

With several secrets there is a signature by each, so that a secret can be replaced while both sides still know the old
one.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from allswell.errors import Refused

_SHORTEST, _LONGEST = 24, 64
"""Bytes of a secret, as Standard Webhooks wants them."""

Signer = Callable[[str, datetime, str], str]


def signer(secret: str, *, where: str) -> Signer:
    """What signs with a secret; `Refused`, without showing it, if it is none."""
    try:
        from standardwebhooks import Webhook
    except ImportError as error:
        raise Refused("no_driver", "webhooks need a library: pip install 'allswell[sinks]'", where=where) from error
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
