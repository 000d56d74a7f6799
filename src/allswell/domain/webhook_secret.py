"""Which secrets sign what is posted to an address: those of its host, or those of every host that has none of its own.

    [webhook_secrets]
    "oracle.example" = "ORACLE_SECRET"              # the name of a variable; the file never holds a secret
    "*" = ["HOOK_SECRET_NEW", "HOOK_SECRET"]        # signed with each, so that one can be replaced

Receivers that share a secret could write to each other in our name, so each host may have its own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from urllib.parse import urlsplit

from allswell.domain.sink_spec import no_variable
from allswell.errors import Refused

ANY = "*"
TABLE = "webhook_secrets"
_HOST = re.compile(r"(\*|[a-z0-9._-]+(:\d{1,5})?|\[[0-9a-f:.]+\](:\d{1,5})?)")

WebhookSecrets = Mapping[str, Sequence[str]]
"""Names of variables by host, the newest first."""


def wrong_with_secrets(host: str, names: Sequence[str]) -> str:
    """What is wrong with an entry; empty if nothing is."""
    if not _HOST.fullmatch(host):
        return f'{host!r} is no host; write such as "oracle.example", "oracle.example:8443", or "*" for all others'
    if not names:
        return "which variable holds the secret?"
    return next(filter(None, map(no_variable, names)), "")


def secrets_for(url: str, secrets: WebhookSecrets) -> Sequence[str]:
    """The variables that hold the secrets for this address; `Refused` where there are none, for all is signed."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = f"[{host}]" if ":" in host else host
    for name in (f"{host}:{parts.port}", host, ANY):
        if secrets.get(name):
            return secrets[name]
    text = f'what is posted is signed, and {host} has no secret: write "{host}" = "NAME" of a variable under [{TABLE}]'
    raise Refused("no_secret", text, where=TABLE)
