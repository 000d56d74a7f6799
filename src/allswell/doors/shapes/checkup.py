"""What a check-up of the watch found, as `doctor` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from allswell.doors.shapes.fields import outside

if TYPE_CHECKING:
    from allswell.engine.checkup import Finding


class FindingShape(Struct, frozen=True):
    """What one check of the watch found; `next` is what to type, `data` has the exact figures behind the words."""

    check: str
    verdict: Literal["ok", "warn", "bad"]
    says: str
    next: str | None
    data: dict[str, Any]

    @classmethod
    def of(cls, found: Finding) -> FindingShape:
        """One finding."""
        return cls(found.check, found.verdict, found.says, found.next, outside(found.data))


class CheckupShape(Struct, frozen=True):
    """What all checks found, and what the command ends with."""

    exit: int
    findings: list[FindingShape]
