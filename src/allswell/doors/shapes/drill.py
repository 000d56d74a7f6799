"""What a drill came to: bad days in simulated time, and whether every promise held."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

if TYPE_CHECKING:
    from allswell.testing.sim import Report


class BrokenShape(Struct, frozen=True):
    """A promise that did not hold, so long after the beginning, and what was seen."""

    promise: str
    after_ms: int
    seen: str


class DrillShape(Struct, frozen=True):
    """The scorecard; `digest` is the same for the same history."""

    seed: int
    hours: float
    well: bool
    broken: list[BrokenShape]
    met: dict[str, int]
    faults: dict[str, int]
    submitted: int
    finished: int
    lost: int
    duplicated: int
    stale_refused: int
    commits: int
    detected_p50_ms: int
    detected_max_ms: int
    digest: str

    @classmethod
    def of(cls, report: Report) -> DrillShape:
        """What was simulated."""
        return cls(
            seed=report.seed,
            hours=report.hours,
            well=report.well,
            broken=[BrokenShape(one.promise, round(one.at * 1000), one.seen) for one in report.broken],
            met=report.met,
            faults=report.faults,
            submitted=report.submitted,
            finished=report.finished,
            lost=report.lost,
            duplicated=report.duplicated,
            stale_refused=report.stale_refused,
            commits=report.commits,
            detected_p50_ms=report.detected_p50_ms,
            detected_max_ms=report.detected_max_ms,
            digest=report.digest,
        )
