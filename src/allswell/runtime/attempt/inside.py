"""Whether this process runs inside an attempt at a task of a store, and what it may not do there then.

Only humans decide: an agent that answers its own question, or calls off another's task, has taken a human's place. And
a lease that has a supervisor is spoken for through its socket, by its own processes. Both are told by ancestry, not by
variables, which anybody can unset; and only for the store that the attempt is of: elsewhere, an agent is anybody.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from allswell.errors import Refused
from allswell.runtime.attempt.flight import Flight, under_way
from allswell.runtime.receipts import Home
from allswell.runtime.warden.ancestry import is_inside


def attempt_around(home: Home, store: str) -> Flight | None:
    """The attempt that this process is of, if it is one of this store (its URL without a password)."""
    return next((flight for flight in _flights(home, store) if _is_ours(flight)), None)


def refuse_inside(home: Home, store: str, verb: str) -> None:
    """Refuse what only a human may do, if this process runs inside an attempt of this store."""
    flight = attempt_around(home, store)
    if flight is not None:
        text = (
            f"`{verb}` is for humans, and this runs inside attempt {flight.attempt} at {flight.name!r} ({flight.agent})"
        )
        raise Refused("not_human", f"{text}; `allswell ask` puts a question to one", where=verb)


def refuse_other(home: Home, store: str, task: str, token: int) -> None:
    """Refuse to speak for a lease that has a supervisor, if this process runs inside another attempt of this store."""
    held = [flight for flight in _flights(home, store) if (flight.task, flight.token) == (task, token)]
    if held and not any(map(_is_ours, held)) and attempt_around(home, store) is not None:
        text = (
            f"attempt {held[0].attempt} at {held[0].name!r} is {held[0].agent}'s: only its own processes speak for it"
        )
        raise Refused("not_yours", text, where="task")


def _flights(home: Home, store: str) -> Iterator[Flight]:
    for _, flight in under_way(Path(home.attempts)):
        if flight.store in ("", store):
            yield flight


def _is_ours(flight: Flight) -> bool:
    return flight.record is not None and is_inside(flight.record)
