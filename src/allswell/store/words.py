"""What the watch keeps about itself, beside all work: words under keys, seen by every process on one store.

Few and small: how far the clocks are apart, which supervisor has which name. They can be listed by the views.
"""

from __future__ import annotations

from typing import Protocol


class Words(Protocol):
    """The part of a store that keeps words about the watch itself."""

    async def recall(self, key: str) -> str | None:
        """What is kept under a key."""
        ...

    async def remember(self, key: str, value: str) -> None:
        """Keep something under a key, whatever was there."""
        ...

    async def swap(self, key: str, before: str | None, after: str) -> bool:
        """Keep something in the place of what was kept there; False if that is not there any more."""
        ...
