"""What was called off."""

from __future__ import annotations

from msgspec import Struct


class CancelledShape(Struct, frozen=True):
    """A task was called off, or a run with all its tasks."""

    task_id: str | None
    run_id: str | None
    cancelled: bool
