"""How a deadline is written down to travel: for a child process as an instant, over a network as what is left.

On one machine a child reads the same monotonic clock, so that an instant loses nothing on the way. It means nothing
after a reboot or on another machine; the boot id in front tells. Between machines no clock is shared: what travels is
the number of milliseconds left, and the time on the wire is on the receiver's account. Rounded down: the other side
never believes that it has more time than there is.
"""

from __future__ import annotations

import re
from math import floor
from typing import NewType

from allswell.domain.duration import LONGEST
from allswell.errors import Refused

VARIABLE = "ALLSWELL_DEADLINE"
HEADER = "Allswell-Remaining-Ms"

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


def write_remaining(ms: float) -> str:
    """What is left, as a header carries it: whole milliseconds, never more than there are."""
    return str(max(floor(min(ms, LONGEST)), 0))


def read_remaining(text: str) -> int:
    """Milliseconds from a header: ASCII digits and nothing else, at most 366 days, or `Refused`."""
    if _REMAINING.fullmatch(text) is None or int(text) > LONGEST:
        said = f"{HEADER} must be whole milliseconds, at most {LONGEST}, not {text[:80]!r}"
        raise Refused("bad_remaining", said, where=HEADER)
    return int(text)
