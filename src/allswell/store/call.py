"""Wake-up calls between processes on one store: what is told, and what that promises (nothing but speed).

A call says "it is worth looking now". It carries no facts: who hears one looks at the store, and finds there whatever
is true. So a call may be lost, come twice, late, out of order, or about something that somebody else has handled
meanwhile, and no work is ever lost with it: everybody who waits also looks again by itself (`engine/pace.py`). That
polling is the truth; calls only make it quick.

What follows from that for a store (`Calls`, a part of its port):

-   Telling is off the write path. A call is sent after the commit it is about, by a thread of its own or, after a quiet
    while, right behind the commit (docs/adr/0028). On PostgreSQL a transaction that notifies takes a lock of the whole
    cluster while it commits; a deciding one never does.
-   Telling never waits and never fails. Calls that pile up are merged into one; a receiver that is slow, gone or full
    is skipped.
-   Nobody is told of what it did itself.
-   A hearer that may have missed something (it has just begun to hear, or was cut off) is called once, with
    `LOOK_AGAIN`.
-   A store that has no way to reach other processes does nothing at all.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

import msgspec


class Call(msgspec.Struct, frozen=True, array_like=True):
    """What others may want to look at now."""

    ready: bool = False
    """A task can be claimed that could not before."""
    journal: bool = False
    """The journal has grown."""
    spreads: bool = False
    """A consequence waits for a sweeper."""
    due: int | None = None
    """A timer was set for this moment, earlier perhaps than a sweeper knows of."""

    def __bool__(self) -> bool:
        return self != NOTHING

    @property
    def urgent(self) -> bool:
        """Whether somebody's work waits for it; those who only read along can be told a little later."""
        return self.ready or self.spreads or self.due is not None

    def merged(self, other: Call) -> Call:
        """Both in one."""
        if self is NOTHING or other is NOTHING:  # nearly always
            return other if self is NOTHING else self
        moments = [due for due in (self.due, other.due) if due is not None]
        return Call(
            self.ready or other.ready,
            self.journal or other.journal,
            self.spreads or other.spreads,
            min(moments, default=None),
        )


NOTHING = Call()
LOOK_AGAIN = Call(ready=True, journal=True, spreads=True)
"""Something may have been missed."""

Hearer = Callable[[Call], None]


class Calls(Protocol):
    """The part of a store by which processes wake each other."""

    def announce(self, call: Call) -> None:
        """Tell other processes that it is worth looking; never waits or fails, and may be lost."""
        ...

    def hear(self, hearer: Hearer) -> None:
        """Call `hearer` in the running loop with what other processes tell, until the store is closed."""
        ...


class Telling(Protocol):
    """The part of a unit of work by which others are told of it."""

    call: Call
    """What other processes are told when this is committed: as by `Calls.announce`, only sooner."""


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Call).decode


def encode(call: Call) -> bytes:
    """A call as it travels; far below the 8,000 bytes of a PostgreSQL notification."""
    return _encode(call)


def decode(data: bytes) -> Call:
    """A call as it arrived; what cannot be read, from a newer version or a stranger, is a reason to look too."""
    try:
        return _decode(data)
    except msgspec.DecodeError:
        return LOOK_AGAIN
