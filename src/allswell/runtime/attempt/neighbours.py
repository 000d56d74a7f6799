"""Who else works in the folder of an attempt: what changes there is no proof of progress then (`domain.evidence`).

Those of this process are known by name, with the moment at which each came and went, so that one who came and went
between two looks is not missed. Those of other processes on the same store are found by their notes in flight. What an
attempt itself has put under watch (an agent that types `allswell run -- make`) is its own work, not a neighbour's.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass
from pathlib import Path

from allswell.domain.evidence import in_one_folder
from allswell.runtime.attempt.flight import Flight, under_way
from allswell.runtime.boot import boot_id
from allswell.runtime.warden.apart.tree import state_of
from allswell.runtime.warden.record import pid_namespace

_STARTED_AT = 19
"""Where the moment at which a process started stands in what the kernel tells of it."""


@dataclass(frozen=True)
class WorkPlace:
    """Where one attempt works, and where it is noted."""

    note: str
    """The name of its note in flight."""
    folder: str
    notes: Path
    """The folder of all the notes of its store."""


class Neighbours:
    """The attempts of one process, and how to find those of others."""

    def __init__(self) -> None:
        self._here: dict[str, WorkPlace] = {}
        self._gone: list[tuple[float, WorkPlace]] = []

    def come(self, place: WorkPlace) -> None:
        """An attempt begins."""
        self._here[place.note] = place

    def leave(self, place: WorkPlace, now: float, forget: float) -> None:
        """An attempt has ended; who left before `forget` was seen by everybody."""
        self._here.pop(place.note, None)
        self._gone = [one for one in self._gone if one[0] >= forget]
        self._gone.append((now, place))

    def of(self, place: WorkPlace, since: float) -> str | None:
        """One of this process who works in the same folder now, or has since then."""
        others = [*self._here.values(), *(gone for at, gone in self._gone if at >= since)]
        return next(
            (one.note for one in others if one.note != place.note and in_one_folder(one.folder, place.folder)), None
        )

    def elsewhere(self, notes: Path) -> dict[str, Flight]:
        """Attempts of other processes that are under way; it reads files."""
        return {name: flight for name, flight in under_way(notes, but=self._here) if _lives(flight)}


def beside(place: WorkPlace, others: Mapping[str, Flight], tree: Container[int]) -> str | None:
    """One of other processes who works in the same folder, and is not of this attempt's own tree."""
    for name, flight in others.items():
        reaper = 0 if flight.record is None else flight.record.reaper
        if name != place.note and reaper not in tree and in_one_folder(flight.cwd, place.folder):
            return name
    return None


def _lives(flight: Flight) -> bool:
    record = flight.record
    if record is None or record.boot_id != boot_id():
        return False
    if record.pid_namespace != pid_namespace():
        return True  # in a container: its numbers say nothing here, and the note is taken away when it ends
    state = state_of(record.reaper)
    return state is not None and int(state[_STARTED_AT]) == record.reaper_start
