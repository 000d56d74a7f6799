"""How an agent stands with those who ask it: degraded by requests that it let expire, healthy as they age out (M7).

More than three expiries within a sliding day are too many. One under a timeout that was shorter than its kind has does
not count: nobody makes an agent degraded by asking it impatiently. That it has unblocked somebody by a late answer
speaks for it (M8), and decides where nothing else does.

This is decided together with the event that reports it, and kept in a row of its own for each agent that there is
anything to say of. The row is small and has an end: only the newest count, and none is older than a day.

**Routing.** A request to a role lies where everybody who has it can take it. Of those who can, the degraded may not,
as long as one is not: they are barred from it. Where all are degraded, they may all the same, but for those that have
let more expire, or unblocked fewer, than the best of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

import msgspec

from allswell.domain.checkin import Agent
from allswell.domain.names import AgentId, Millis

DAY = 86_400_000
TOO_MANY = 3
"""An agent is degraded by more expiries than this within a day."""
KEPT = 8
_PREFIX = "@"
Holder = TypeVar("Holder", bound=str)


class Expiry(msgspec.Struct, frozen=True, gc=False):
    """A delivery that an agent did not answer in time."""

    at: Millis
    request: str
    kind: str
    timeout: int
    """How long was waited, in milliseconds."""


class Standing(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """What the last day says of an agent: the newest of it."""

    expired: tuple[Expiry, ...] = ()
    unblocked: tuple[Millis, ...] = ()
    """When late answers of its let a blocked task go on."""


NEUTRAL = Standing()
_decode = msgspec.json.Decoder(Standing).decode


def standing_row(agent: str) -> AgentId:
    """The id of the row in which an agent's standing is kept; no holder has such a name."""
    return AgentId(f"{_PREFIX}{agent}")


def standing_of(row: Agent | None) -> Standing:
    """What a row says; nothing, if there is none."""
    return NEUTRAL if row is None or not row.standing else _decode(row.standing)


def row_of(agent: str, standing: Standing) -> Agent:
    """The row that says so."""
    return Agent(standing_row(agent), 0, Millis(0), standing=msgspec.json.encode(standing).decode())


def standings(rows: Collection[Agent]) -> dict[str, Standing]:
    """Of all rows, those that are about this, by the names of their agents."""
    return {str(row.id)[len(_PREFIX) :]: standing_of(row) for row in rows if row.standing}


def counts(timeout: int, default: int) -> bool:
    """Whether an expiry says anything about the one who was asked."""
    return timeout >= default


def after_expiry(standing: Standing, expiry: Expiry) -> Standing:
    """After a delivery has expired that counts."""
    recent = [one for one in standing.expired if _is_recent(one.at, expiry.at)]
    return Standing((*recent, expiry)[-KEPT:], _recent(standing.unblocked, expiry.at))


def after_unblocking(standing: Standing, now: Millis) -> Standing:
    """After a late answer has let a blocked task go on."""
    expired = tuple(one for one in standing.expired if _is_recent(one.at, now))
    return Standing(expired, (*_recent(standing.unblocked, now), now)[-KEPT:])


def held_against(standing: Standing, now: Millis) -> tuple[Expiry, ...]:
    """The expiries that count now, the oldest first."""
    return tuple(one for one in standing.expired if _is_recent(one.at, now))


def is_degraded(standing: Standing, now: Millis) -> bool:
    """Whether an agent has let too many requests expire."""
    return len(held_against(standing, now)) > TOO_MANY


def degraded(rows: Collection[Agent], now: Millis) -> dict[str, tuple[Expiry, ...]]:
    """The agents that are, with what has made them so."""
    known = standings(rows)
    return {name: held_against(standing, now) for name, standing in known.items() if is_degraded(standing, now)}


def healthy_at(standing: Standing, now: Millis) -> Millis | None:
    """When a degraded agent is healthy again, if nothing more expires; None if it is."""
    against = held_against(standing, now)
    return Millis(against[-TOO_MANY - 1].at + DAY) if len(against) > TOO_MANY else None


def score(standing: Standing, now: Millis) -> int:
    """What decides between two who are equally healthy: whom they have unblocked, less what they have let expire."""
    return len(_recent(standing.unblocked, now)) - len(held_against(standing, now))


def passed_over(can_serve: Mapping[Holder, Standing], now: Millis) -> tuple[Holder, ...]:
    """Of those who can serve a request, those that are not to: never all of them."""
    degraded = [agent for agent, standing in can_serve.items() if is_degraded(standing, now)]
    if len(degraded) < len(can_serve):
        return tuple(degraded)
    best = max((score(standing, now) for standing in can_serve.values()), default=0)
    return tuple(agent for agent, standing in can_serve.items() if score(standing, now) < best)


def moved_back(standing: str, wall: int) -> str:
    """A standing after the clock was set back: nothing of it is yet to come."""
    if not standing:
        return standing
    found = _decode(standing)
    expired = tuple(msgspec.structs.replace(one, at=Millis(min(one.at, wall))) for one in found.expired)
    unblocked = tuple(Millis(min(at, wall)) for at in found.unblocked)
    return msgspec.json.encode(Standing(expired, unblocked)).decode()


def _is_recent(at: Millis, now: Millis) -> bool:
    return at > now - DAY


def _recent(moments: Sequence[Millis], now: Millis) -> tuple[Millis, ...]:
    return tuple(at for at in moments if _is_recent(at, now))
