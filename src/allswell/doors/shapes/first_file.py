"""What `init` has written, or would."""

from __future__ import annotations

from msgspec import Struct


class InitShape(Struct, frozen=True):
    """The first settings of a project."""

    path: str
    agents: list[str]
    content: str
    dry_run: bool
    gitignore: str | None
    """Where the line for the folder of ours was put; null where none was needed, or none could be."""
