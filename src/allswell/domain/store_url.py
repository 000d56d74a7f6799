"""The URL of a store, as it may be shown: without its password, however oddly it is written.

What cannot be read as a URL may hold a password all the same (a bare `@`, `host=… password=…`, one slash too few),
and it is just then that it is shown, in an error. So nothing is parsed here: whatever stands where a password could
stand is hidden, and rather too much than too little.
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:/{1,3}")
_COLON = re.compile(r":|%3a", re.IGNORECASE)
_NAMED = re.compile(
    r"(?P<key>(?:^|(?<=[?&;\s/]))[\w%.\-]+)(?P<is>\s*=\s*)(?P<value>.*?)(?=[&;][\w%.\-]+=|\s+[\w%.\-]+\s*=|$)",
    re.DOTALL,
)
_SECRET = ("pass", "pwd", "secret", "token", "key")
_FILES = ("sqlite:///", "memory:")


def hide(url: str) -> str:
    """A URL, or what was meant to be one, without its password."""
    if url.startswith(_FILES):
        return url
    found = _SCHEME.match(url)
    scheme = found[0] if found else ""
    return scheme + _NAMED.sub(_without_secret, _without_password(url.removeprefix(scheme)))


def scheme_of(url: str) -> str:
    """What stands before the first colon, in lower case."""
    scheme, colon, _ = url.partition(":")
    return scheme.lower() if colon else ""


def _without_password(rest: str) -> str:
    """`user:password@host`: all between the first colon and the last @."""
    login, at, host = rest.rpartition("@")
    colon = _COLON.search(login)
    return rest if not at or colon is None else f"{login[: colon.start()]}:***@{host}"


def _without_secret(found: re.Match[str]) -> str:
    """`?password=…`, or `password = …` among words."""
    key = unquote(found["key"]).lower()
    return f"{found['key']}{found['is']}***" if any(word in key for word in _SECRET) else found[0]
