"""Answers of single commands that are about no noun of their own: a line of a supervisor, a version, a drill."""

from __future__ import annotations

from time import time_ns
from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.timing.moment import Moment, moment
from allswell.views.fields import as_shape

if TYPE_CHECKING:
    from allswell.testing.sim import SimReport


class SaidShape(Struct, frozen=True):
    """One line of a supervisor's."""

    said_at: Moment
    said: str

    @classmethod
    def now(cls, line: str) -> SaidShape:
        """A line that is said at this moment."""
        return cls(moment(time_ns() // 1_000_000), line)


# Which version of Allswell answers.


class VersionShape(Struct, frozen=True):
    """Which version this is."""

    version: str


# The script with which a shell completes command lines.


class CompletionShape(Struct, frozen=True):
    """The script with which a shell completes, and the files that were written with it."""

    shell: str
    script: str
    written: tuple[str, ...]


# What `trust` has changed, or listed.


class TrustedShape(Struct, frozen=True):
    """Files with settings and folders of stores: those that are now trusted, are trusted no longer, or were listed."""

    paths: list[str]


# What `init` has written, or would.


class InitShape(Struct, frozen=True):
    """The first settings of a project."""

    path: str
    agents: list[str]
    content: str
    dry_run: bool
    gitignore: str | None
    """Where the line for the folder of ours was put; null where none was needed, or none could be."""


class PluginShape(Struct, frozen=True):
    """The plugin for a coding agent's program: what was written, or removed."""

    client: str
    path: str
    files: dict[str, str]
    """By their path in that folder; empty where it is removed."""
    removed: bool
    dry_run: bool
    changed: bool
    """Whether it was there, where it is removed; always true where it is written."""


# What a drill came to: bad days in simulated time, and whether every promise held.


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
    def of(cls, report: SimReport) -> DrillShape:
        """What was simulated."""
        broken = [BrokenShape(one.promise, round(one.at * 1000), one.seen) for one in report.broken]
        return as_shape(report, cls, broken=broken)
