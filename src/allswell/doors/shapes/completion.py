"""The script with which a shell completes command lines."""

from __future__ import annotations

from msgspec import Struct


class CompletionShape(Struct, frozen=True):
    """The script with which a shell completes, and the files that were written with it."""

    shell: str
    script: str
    written: tuple[str, ...]
