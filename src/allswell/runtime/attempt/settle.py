"""Settling what a dead supervisor left: the tree is gone or ended, its work kept, and a receipt says so.

Reapers end their trees when the supervisor dies, within the grace; whoever comes sooner than that helps
(`end_left_over` ends only what is certainly of the tree). A note is believed as far as the store agrees (`belief`).
Then the snapshot is taken and the receipt written, as the dead one would have. What follows for the task is the
caller's to say: its lease may still live, or be somebody else's; `give_back` says what is usually meant.

Whoever settles may be killed too. So the note stays, locked, until the caller has said what follows and clears it; who
comes next finds it and does the same again, with the receipt that is there already.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path

import msgspec

from allswell.domain.receipt import End, Receipt, receipt_id
from allswell.domain.snapshot import Limits
from allswell.engine.watch import Watch
from allswell.errors import LeaseLost, Refused
from allswell.runtime.attempt.belief import disagreement, known_of
from allswell.runtime.attempt.desk import remove
from allswell.runtime.attempt.flight import Flight, FlightFile, unwatched
from allswell.runtime.attempt.keeping import Ended, Keeping
from allswell.runtime.receipts import Home
from allswell.runtime.warden import end_left_over
from allswell.timing.clock import Clock, SystemClock

_LONGEST_GRACE = 60_000
"""Milliseconds that a note can have us wait."""


class Settled(msgspec.Struct, frozen=True):
    """An attempt that a dead supervisor left, settled."""

    flight: Flight
    receipt: Receipt
    path: Path | None
    note: FlightFile
    doubts: tuple[str, ...] = ()
    """Processes that may be of its tree and were left alone."""

    def clear(self) -> None:
        """What follows has been said: nobody has to settle this again."""
        self.note.remove()


Left = list[tuple[FlightFile, Flight]]
"""Notes whose supervisors are gone, locked by us, and what they say."""


async def settle_left(
    watch: Watch, home: Home, tell: Callable[[str], None], *, places: Iterable[str] = ()
) -> list[Settled]:
    """Settle what dead supervisors left in a home, as far as the store agrees with it; `tell` hears of the rest.

    `places` are folders in which the caller's agents work. The caller says what follows for each, then clears it.
    """
    believed: Left = []
    for note, flight in await asyncio.to_thread(left_behind, home):
        doubt = disagreement(note.path.name, flight, await known_of(watch.views, flight.task), home, places)
        if doubt is None:
            believed.append((note, flight))
        else:
            tell(f"nothing was done about {note.path}: it {doubt}; remove it if it is nobody's")
            note.close()
    return await asyncio.to_thread(settle, home, left=believed)


def left_behind(home: Home) -> Left:
    """Every note in a home whose supervisor is gone; those that cannot be read are taken away."""
    found: Left = []
    for note in unwatched(home.attempts):
        flight = note.read()
        if flight is None:
            note.remove()
        else:
            found.append((note, flight))
    return found


def settle(home: Home, clock: Clock | None = None, *, left: Left | None = None) -> list[Settled]:
    """Settle these attempts, by default all whose supervisor is gone, without asking whether their notes are true.

    It blocks, for the grace of each and a snapshot. The caller says what follows for each, then clears it.
    """
    clock = clock or SystemClock()
    settled = []
    for note, flight in left_behind(home) if left is None else left:
        if flight.socket is not None:
            remove(Path(flight.socket))
        settled.append(_found(note, flight, home) or _settle(note, flight, home, clock))
    return settled


def _found(note: FlightFile, flight: Flight, home: Home) -> Settled | None:
    """What somebody who was killed before he could clear it has settled already, all of it."""
    kept = home.receipts.find(receipt_id(flight.task, flight.attempt))
    if kept is None or kept.receipt.token != flight.token or kept.receipt.partial:
        return None
    return Settled(flight, kept.receipt, kept.path, note)


def _settle(note: FlightFile, flight: Flight, home: Home, clock: Clock) -> Settled:
    doubts: tuple[str, ...] = ()
    survivors: tuple[int, ...] = ()
    keeping = Keeping(flight, home, Limits(timeout=10_000, git_timeout=10_000), clock)
    if flight.record is not None:
        about = (f"ALLSWELL_TASK={flight.task}", f"ALLSWELL_TOKEN={flight.token}")
        left = end_left_over(flight.record, grace_ms=min(flight.grace, _LONGEST_GRACE), also=about)
        doubts, survivors = left.doubts, left.processes
        keeping.keep_work("its supervisor died")
        keeping.note_end()
    for number, doubt in enumerate(doubts):
        keeping.warn(f"doubt {number}", doubt)
    began = "while it ran" if flight.record is not None else "before it had started"
    ended = Ended(End.ORPHANED, f"its supervisor died {began}", elapsed=max(clock.wall() - flight.began_at, 0))
    receipt = keeping.write(ended, partial=bool(survivors or doubts))
    return Settled(flight, receipt, keeping.path, note, doubts)


async def give_back(watch: Watch, left: Settled) -> bool:
    """Give back what a dead supervisor held, and let the journal know of the receipt.

    Whether there was an attempt at all: who was killed before it had the lease has left a note and nothing else.
    """
    flight, receipt = left.flight, left.receipt
    held = watch.held(flight.task, flight.token, flight.agent)
    try:
        await held.release(receipt.reason)
    except LeaseLost:
        if all(past.token != flight.token for past in await watch.attempts(flight.task)):
            return False
    except Refused:
        return False  # the task itself was never there
    with suppress(LeaseLost, Refused):
        await held.keep(receipt.id, receipt.status.value, str(left.path or ""))
    return True
