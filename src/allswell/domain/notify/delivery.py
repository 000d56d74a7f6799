"""A delivery: one message of a sink on its way to somebody outside, and what follows when it does not arrive.

A sink follows the journal. What it hears of becomes deliveries, which are kept in the store until they are made, so a
process that dies loses none. The rules:

-   **In order per target.** Of one target's deliveries only the first is under way; the others wait behind it. Targets
    do not wait for each other.
-   **Quick retries, then slow ones.** A delivery that fails is tried again `retries` times, `apart` from each other.
    After that its target is taken to be down: the pause doubles each time, up to `slowest`, and goes on for as long as
    the target is patient. A target that says when to come again (Retry-After) is believed, if it asks for longer.
-   **Given up** is what was refused for good (trying again could not help), and what has failed for `give_up`. It is
    kept and listed, holds up nobody, and a human tries it again or drops it.
-   **At least once.** A delivery that was made, and whose process died before it could say so, is made again, under
    the same id: that is what the target tells a repetition by.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from allswell.domain.ids import Millis

LONGEST_REASON = 300


class Delivery(msgspec.Struct, frozen=True, gc=False):
    """One message for one target, kept until it is made or dropped."""

    sink: str
    id: str
    """The same for every try; unique among all stores that a target may hear from."""
    target: str
    """What it waits in line for, within its sink."""
    place: tuple[int, int, int]
    """Its place in the line: that of its event in the journal, and a number among those of one event."""
    at: Millis
    """When its event happened."""
    body: str
    """What the sink made of the event, as JSON."""
    tries: int = 0
    """How often it has failed."""
    next_at: Millis = Millis(0)
    """Not to be tried before."""
    failing_since: Millis | None = None
    given_up: bool = False
    reason: str = ""
    """Why the last try failed."""


class DeliveryFilter(msgspec.Struct, frozen=True):
    """Which deliveries to list."""

    sink: str | None = None
    target: str | None = None
    given_up: bool | None = None
    limit: int = 1_000


class DeliveryRetries(msgspec.Struct, frozen=True):
    """How often, and for how long, a sink tries."""

    retries: int = 3
    apart: int = 30_000
    slowest: int = 900_000
    give_up: int = 86_400_000


class DeliveryFailure(msgspec.Struct, frozen=True):
    """How a try went wrong."""

    reason: str
    final: bool = False
    """The target will never take it."""
    retry_after: int | None = None
    """How long it asked to be left alone, in milliseconds."""


def follower_name(sink: str) -> str:
    """The name under which a sink follows the journal: of its cursor, and of the words that are kept about it."""
    return f"sink.{sink}"


def memory_key(follower: str) -> str:
    """The key under which a follower keeps a text of its own, written together with its cursor."""
    return f"{follower}.memory"


def sink_of(follower: str) -> str | None:
    """The sink that follows under a name; None where that is not a sink's. The names of sinks have no dots."""
    kind, dot, rest = follower.partition(".")
    return rest.partition(".")[0] if kind == "sink" and dot else None


def delivery_id(sink: str, at: Millis, place: tuple[int, int, int]) -> str:
    """The id of what a sink says about an event; the moment tells the journals of two stores apart."""
    xid, number, part = place
    return f"msg_{sink}_{at:x}_{xid:x}_{number:x}" + (f"_{part:x}" if part else "")


def failed(delivery: Delivery, failure: DeliveryFailure, patience: DeliveryRetries, now: Millis) -> Delivery:
    """The delivery after a try that went wrong: with its next one, or given up."""
    since = now if delivery.failing_since is None else delivery.failing_since
    tries = delivery.tries + 1
    pause = max(_pause(tries, patience), failure.retry_after or 0)
    given_up = failure.final or now + pause - since > patience.give_up
    return replace(
        delivery,
        tries=tries,
        next_at=Millis(now if given_up else now + pause),
        failing_since=since,
        given_up=given_up,
        reason=failure.reason[:LONGEST_REASON],
    )


def _pause(tries: int, patience: DeliveryRetries) -> int:
    """How long to wait after so many failures."""
    if tries <= patience.retries:
        return patience.apart
    doubled = patience.apart << min(tries - patience.retries, 40)
    return max(patience.apart, min(doubled, patience.slowest))


def put_off(delivery: Delivery, until: Millis) -> Delivery:
    """The delivery, to be tried later because its target is paused until then; that counts as no failure."""
    return replace(delivery, next_at=until)


def is_down(delivery: Delivery, patience: DeliveryRetries) -> bool:
    """Whether this failure was the one after which its target is taken to be down: told once."""
    return not delivery.given_up and delivery.tries == patience.retries + 1


def again(delivery: Delivery) -> Delivery:
    """The delivery as a human wants it tried again: at once, and as patiently as a new one."""
    return replace(delivery, tries=0, next_at=Millis(0), failing_since=None, given_up=False)


def due(line: Sequence[Delivery], now: Millis, most: int) -> Sequence[Delivery]:
    """What may go to one target now, at most so many together: nothing, as long as the first of the line has to wait.

    What has failed goes alone: if one message is what the target cannot take, it must not take others along.
    """
    if not line or line[0].next_at > now:
        return ()
    if line[0].tries:
        return line[:1]
    fresh = 1
    while fresh < min(most, len(line)) and not line[fresh].tries and line[fresh].next_at <= now:
        fresh += 1
    return line[:fresh]


def made_words(tries: int) -> str:
    """What is said of a delivery that was made after so many failures."""
    return f"✅ Delivered on retry {tries}" if tries else "✅ Delivered"


# A duty: what one process at a time does for all on one store, such as following the journal for a sink.
#
# The process that does it keeps a claim in the store, under a key, and renews it. One that was not renewed for three
# times its pace is free, and so is that of a process known to be dead: a duty soon goes on when its process has died.
# The claim is written by compare-and-set, so of two processes that take a duty at once, one gets it. A process that
# slept past the end of its claim may still act once before it notices; so whatever a duty does must bear being done
# twice.

PACE = 5_000
"""Milliseconds between two words."""
_LOST = 3


class LeaderMark(msgspec.Struct, frozen=True):
    """Who does it, and when that was last said."""

    marker: str
    """Of the process; no two have the same."""
    said_at: Millis
    pace: int = PACE
    let_go: bool = False


def is_free(duty: LeaderMark | None, now: Millis, *, dead: bool = False) -> bool:
    """Whether anybody may take it; `dead` is what the caller knows of the process that has it.

    What was said far ahead of now was said by a clock that was set back.
    """
    return duty is None or dead or duty.let_go or abs(now - duty.said_at) >= duty.pace * _LOST


def is_ours(duty: LeaderMark | None, marker: str) -> bool:
    """Whether a process has it."""
    return duty is not None and duty.marker == marker and not duty.let_go
