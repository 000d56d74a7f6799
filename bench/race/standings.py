"""What was found of each entry, as a table, as JSON, and as the ratios that we hold ourselves to."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import msgspec

from race.entries import POSTGRES, SQLITE, Entry


class Standing(msgspec.Struct):
    """The figures of one entry; what was not measured is empty."""

    entry: Entry
    tasks: int = 0
    enqueue: list[float] = []
    drain: list[float] = []
    pickup: list[list[float]] = []
    """In ms, round by round."""
    beat_us: float | None = None
    beat_wal: float | None = None
    growth: dict[int, float] = {}
    broken: str = ""

    @property
    def title(self) -> str:
        """Its name and where it lives."""
        return f"{self.entry.name}, {self.entry.on}"

    @property
    def p50(self) -> float:
        """The median pick-up in ms, of all rounds together."""
        return statistics.median(took for found in self.pickup for took in found)

    @property
    def p99(self) -> float:
        """The pick-up in ms that one of a hundred exceeds: the median of the rounds, or one bad moment were all."""
        return statistics.median(sorted(found)[min(len(found) - 1, int(len(found) * 0.99))] for found in self.pickup)

    @property
    def slowing(self) -> float | None:
        """How many times longer draining takes beside the most finished tasks than beside none."""
        if len(self.growth) < 2:
            return None
        return self.growth[max(self.growth)] / self.growth[min(self.growth)]

    def as_row(self) -> dict[str, object]:
        """Everything about it, for JSON."""
        return {
            "name": self.entry.name,
            "on": self.entry.on,
            "settings": self.entry.said,
            "lacks": self.entry.lacks,
            "tasks_per_round": self.tasks,
            "enqueue_per_s": [round(value) for value in self.enqueue],
            "drain_per_s": [round(value) for value in self.drain],
            "pickup_ms": {"p50": round(self.p50, 2), "p99": round(self.p99, 2), "samples": sum(map(len, self.pickup))}
            if self.pickup
            else None,
            "heartbeat": {"us": round(self.beat_us or 0, 1), "wal_bytes": round(self.beat_wal or 0, 1)}
            if self.beat_us is not None
            else None,
            "drain_1000_s_beside_finished": {str(step): round(took, 4) for step, took in self.growth.items()},
            "broken": self.broken,
        }


def table(standings: list[Standing]) -> str:
    """The table for the terminal."""
    heads = ("", "on", "enqueue/s", "drain/s", "pick-up p50/p99 ms", "heartbeat", "slowing", "settings")
    rows = [heads]
    for one in standings:
        beat = "" if one.beat_us is None else f"{one.beat_us:.0f} µs {one.beat_wal:.0f} B"
        rows.append(
            (
                one.entry.name,
                one.entry.on,
                f"{statistics.median(one.enqueue):,.0f}" if one.enqueue else "",
                f"{statistics.median(one.drain):,.0f}" if one.drain else "",
                f"{one.p50:.1f} / {one.p99:.1f}" if one.pickup else "",
                beat,
                "" if one.slowing is None else f"{one.slowing:.2f}x",
                one.entry.said,
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(heads))]
    text = [
        "  "
        + "  ".join(
            cell.rjust(width) if 2 <= column <= 6 else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in rows
    ]
    lacks = dict.fromkeys((one.entry.name.split()[0], one.entry.lacks) for one in standings if not one.entry.ours)
    text += ["", "  What each does not guarantee:"]
    text += [f"  {name}: {what}" for name, what in lacks]
    return "\n".join(text)


def ratios(standings: list[Standing]) -> dict[str, float]:
    """Ours over the fastest peer's on the same store, round by round, the median."""
    found: dict[str, float] = {}
    for on in (POSTGRES, SQLITE):
        here = [one for one in standings if one.entry.on == on and one.drain and not one.broken]
        for what in ("drain", "enqueue"):
            for alone in (True, False) if on == POSTGRES else (False,):
                runners = [one for one in here if one.entry.processes == 1 or not alone]
                ours = _fastest((one for one in runners if one.entry.ours), what)
                theirs = _fastest((one for one in runners if not one.entry.ours), what)
                if ours is None or theirs is None:
                    continue
                pairs = zip(getattr(ours, what), getattr(theirs, what), strict=False)
                kind = ", one process each" if alone else ""
                title = f"{what}, {on}{kind}: {ours.entry.name} / {theirs.entry.name}"
                found[title] = round(statistics.median(mine / other for mine, other in pairs), 2)
        found |= _pickups([one for one in standings if one.entry.on == on and one.pickup and not one.broken])
    for one in standings:
        if one.entry.ours and one.slowing is not None:
            found[f"drain, {one.title}: beside {max(one.growth):,} finished / beside none, time"] = round(
                one.slowing, 2
            )
    return found


def _pickups(here: list[Standing]) -> dict[str, float]:
    """Our wait over the shortest of the peers'."""
    ours, theirs = [[one for one in here if one.entry.ours is mine] for mine in (True, False)]
    if not ours or not theirs:
        return {}
    found = {}
    for what in ("p50", "p99"):
        best, peer = (min(some, key=lambda one: float(getattr(one, what))) for some in (ours, theirs))
        title = f"pick-up {what}, {best.entry.on}: {best.entry.name} / {peer.entry.name}, time"
        found[title] = round(getattr(best, what) / getattr(peer, what), 2)
    return found


def _fastest(standings: Iterable[Standing], what: str) -> Standing | None:
    return max(standings, key=lambda one: statistics.median(getattr(one, what)), default=None)
