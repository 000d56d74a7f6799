"""What was dismissed."""

from __future__ import annotations

from msgspec import Struct


class DismissedShape(Struct, frozen=True):
    """A question or a task that somebody has seen; a question stays open."""

    task_id: str | None
    question_id: str | None
    dismissed_by: str
