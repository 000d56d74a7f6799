"""What a supervisor says while it watches, and what the program says of itself."""

from __future__ import annotations

from msgspec import Struct

from allswell.doors.shapes.moment import Moment


class SaidShape(Struct, frozen=True):
    """One line of a supervisor's."""

    said_at: Moment
    said: str


class VersionShape(Struct, frozen=True):
    """Which version this is."""

    version: str


class CompletionShape(Struct, frozen=True):
    """The script with which a shell completes, and the files that were written with it."""

    shell: str
    script: str
    written: tuple[str, ...]
