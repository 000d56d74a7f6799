"""What a check-up of the watch found, as `doctor` tells it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct

from allswell.doors.shapes.fields import outside

if TYPE_CHECKING:
    from allswell.engine.checkup import Checkup, Finding


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

    @classmethod
    def of(cls, checkup: Checkup) -> CheckupShape:
        """All of it; the code is the worst of it: 0 fine, 3 a human must act, 1 broken, 75 not to be reached."""
        verdicts = {finding.verdict for finding in checkup.findings}
        worst = 1 if "bad" in verdicts else 3 if "warn" in verdicts else 0
        return cls(worst if checkup.reachable else 75, [FindingShape.of(one) for one in checkup.findings])
