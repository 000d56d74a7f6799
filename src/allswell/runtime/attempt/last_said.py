"""The last lines that an attempt printed, for whoever tells how it ended."""

from __future__ import annotations

from pathlib import Path

from allswell.domain.evidence import last_words
from allswell.domain.receipt import Receipt

_TAIL = 4_096


def last_said(receipt: Receipt, most: int) -> list[str]:
    """The last lines on the stream on which errors are told, if there are any there; else on standard output."""
    for stream in (receipt.stderr, receipt.stdout):
        lines = [] if stream is None else _end_of(Path(stream.path))
        if lines:
            return lines[-most:]
    return []


def _end_of(path: Path) -> list[str]:
    try:
        with path.open("rb") as file:
            file.seek(max(file.seek(0, 2) - _TAIL, 0))
            return last_words(file.read()).splitlines()
    except OSError:
        return []
