"""How a deadline is written down to travel: for a child process as an instant, over a network as what is left.

On one machine a child reads the same monotonic clock, so that an instant loses nothing on the way. It means nothing
after a reboot or on another machine; the boot id in front tells. Between machines no clock is shared: what travels is
the number of milliseconds left, and the time on the wire is on the receiver's account. Rounded down: the other side
never believes that it has more time than there is.

Over HTTP it is a header; over MCP, whatever lies below it, an entry of the request's `_meta`. The key has a prefix, as
that protocol wants it from everybody but itself, and so meets no key of the protocol's own.
"""

from __future__ import annotations

import re
from math import floor
from typing import NewType

from allswell.domain.duration import LONGEST
from allswell.errors import Refused

VARIABLE = "ALLSWELL_DEADLINE"
HEADER = "Allswell-Remaining-Ms"
META = "allswell/remaining-ms"

BootId = NewType("BootId", str)
_INSTANT = re.compile(r"([0-9A-Za-z-]{1,64}):([0-9]{1,20})", re.ASCII)
_REMAINING = re.compile(r"[0-9]{1,11}", re.ASCII)


def write_instant(boot: BootId, monotonic_ns: int) -> str:
    """The deadline as the environment carries it."""
    return f"{boot}:{monotonic_ns}"


def read_instant(text: str, boot: BootId) -> int:
    """The deadline in nanoseconds of this machine's monotonic clock, or `Refused`."""
    found = _INSTANT.fullmatch(text)
    if found is None:
        said = f"{VARIABLE} must be <boot id>:<nanoseconds>, not {text[:80]!r}; unset it, or let Allswell set it"
        raise Refused("bad_deadline", said, where=VARIABLE)
    if found[1] != boot:
        said = f"{VARIABLE} was written on another machine or before a reboot: its clock is not ours; unset it"
        raise Refused("foreign_deadline", said, where=VARIABLE)
    return int(found[2])


def write_remaining(ms: float) -> int:
    """What is left, as a request carries it: whole milliseconds, never more than there are."""
    return max(floor(min(ms, LONGEST)), 0)


def read_remaining(given: object, where: str) -> int:
    """Milliseconds from a request: a whole number, as text of ASCII digits or as JSON has it, or `Refused`."""
    ms = int(given) if isinstance(given, str) and _REMAINING.fullmatch(given) else given
    if isinstance(ms, bool) or not isinstance(ms, int) or not 0 <= ms <= LONGEST:
        said = f"{where} must be whole milliseconds, at most {LONGEST}, not {str(given)[:80]!r}"
        raise Refused("bad_remaining", said, where=where)
    return ms
