"""A figure that somebody wrote down, or that nobody did: its name, its value and its place."""

from __future__ import annotations

import msgspec


class Place(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where something is written: a file with line and column, a variable of the environment, or a flag."""

    source: str
    line: int | None = None
    column: int | None = None

    def __str__(self) -> str:
        return ":".join(str(part) for part in (self.source, self.line, self.column) if part is not None)


class Figure(msgspec.Struct, frozen=True, omit_defaults=True):
    """One number of a description; lengths of time are milliseconds."""

    name: str
    """Its path, as its file has it: `timeouts.step`, `steps.build.timeout_override`."""
    value: int | float
    place: Place | None = None
    """None: nobody wrote it; it is a default."""

    @property
    def length(self) -> int:
        """The value of a figure that is a length of time or a count."""
        return int(self.value)

    @property
    def written(self) -> bool:
        """Whether somebody chose this figure."""
        return self.place is not None
