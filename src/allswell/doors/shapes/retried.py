"""What was handed over again."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct


class RenewalShape(Struct, frozen=True):
    """An ended task, which stays ended, and the new one that carries its history."""

    task_id: str
    new_task_id: str


class RetriedShape(Struct, frozen=True):
    """Ended tasks that were handed over again, the one that was named first."""

    retried: list[RenewalShape]

    @classmethod
    def of(cls, new: Mapping[str, str]) -> RetriedShape:
        """By the new ids of the old ones."""
        return cls([RenewalShape(old, made) for old, made in new.items()])
