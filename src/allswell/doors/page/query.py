"""What stands behind the question mark of a screen's address: checked once, and refused with one sentence."""

from __future__ import annotations

from collections.abc import Collection
from urllib.parse import urlencode

from allswell.domain.names import can_name
from allswell.doors.http.call import Call
from allswell.errors import Refused

_DIGITS = 12
_TEXT_MOST = 200


def number_of(call: Call, name: str, most: int = 1_000_000) -> int:
    """A number, 0 if none is given."""
    given = call.query.get(name, "") or "0"
    if not given.isascii() or not given.isdigit() or len(given) > _DIGITS or int(given) > most:
        raise Refused("bad_query", f"`{name}` is a number from 0 to {most:,}", where=name)
    return int(given)


def text_of(call: Call, name: str) -> str:
    """A text that is looked for, empty if none is given."""
    given = call.query.get(name, "").strip()
    if len(given) > _TEXT_MOST or (given and not can_name(given)):
        raise Refused("bad_query", f"`{name}` has at most {_TEXT_MOST} characters that can be printed", where=name)
    return given


def choice_of(call: Call, name: str, among: Collection[str]) -> str:
    """One of several words, empty if none is given."""
    given = call.query.get(name, "")
    if given and given not in among:
        raise Refused("bad_query", f"`{name}` is one of: {', '.join(among)}", where=name)
    return given


def address(path: str, **query: str | int | None) -> str:
    """A path with what stands behind its question mark; what is empty is left out, and `from_` is called `from`."""
    asked = {name.rstrip("_"): value for name, value in query.items() if value not in (None, "", 0)}
    return f"{path}?{urlencode(asked)}" if asked else path
