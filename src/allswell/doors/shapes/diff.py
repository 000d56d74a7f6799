"""What an attempt has changed."""

from __future__ import annotations

from msgspec import Struct

from allswell.doors.shapes.receipt import ChangeShape


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
