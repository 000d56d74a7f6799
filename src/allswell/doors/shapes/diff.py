"""What an attempt has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from allswell.doors.shapes.receipt import ChangeShape

if TYPE_CHECKING:
    from allswell.runtime.attempt.changes import Changes


class DiffShape(Struct, frozen=True):
    """What an attempt has changed, from its beginning (or HEAD, where `gap` says what was not noted) to `until`."""

    task_id: str
    attempt: int
    since: str
    until: str
    gap: str | None
    changed: list[ChangeShape]
    unshown: list[str]
    diff: str

    @classmethod
    def of(cls, task: str, found: Changes) -> DiffShape:
        """What was found to have changed."""
        shown = found.difference
        return cls(
            task_id=task,
            attempt=found.attempt,
            since="HEAD" if found.gap else "its beginning",
            until=found.until,
            gap=found.gap or None,
            changed=[ChangeShape.of(one) for one in shown.changed],
            unshown=list(shown.unshown),
            diff=shown.text.decode("utf-8", "backslashreplace"),
        )
