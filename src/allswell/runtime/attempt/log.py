"""What attempts have printed, found again: the files of each, and a reader that can follow one while it grows.

Each stream of an attempt has a file of its own, bounded by the order's cap: of more than that, the beginning and the
end are kept (`warden.apart.output`). It is kept for as long as the folder beside the store is, and where `allswell run`
has shown everything at a terminal, only if the attempt did not end well. A file may be planted, so it is opened as one
of ours (`own_files`), and no line is read that is longer than a line of a protocol can be.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

import msgspec

from allswell.domain.names import TaskId
from allswell.domain.protocol import LONGEST
from allswell.runtime.own_files import open_there, own_folder
from allswell.runtime.warden.apart.output import PIECE
from allswell.runtime.warden.command import DEFAULT_CAP

STREAMS = ("stdout", "stderr")
GROWING_MOST = DEFAULT_CAP - PIECE
"""Bytes up to which a file only grows; what stands behind them changes until the attempt has ended."""


class LogPlace(msgspec.Struct, frozen=True):
    """Where files of attempts lie, and what their names begin with."""

    folder: Path
    stem: str
    """Up to the attempt's number: `t_x.`, or `step-` in the folder of a flow's run."""


def log_files(places: Sequence[LogPlace]) -> dict[int, dict[str, Path]]:
    """The files of each attempt, by its number and by stream."""
    found: dict[int, dict[str, Path]] = {}
    for place in places:
        named = re.compile(re.escape(place.stem) + r"(\d{1,9})\.(stdout|stderr)")
        try:
            names = sorted(os.listdir(place.folder))  # noqa: PTH208 - names alone
        except OSError:
            continue
        for name in names:
            if (parts := named.fullmatch(name)) is not None:
                found.setdefault(int(parts[1]), {})[parts[2]] = place.folder / name
    return found


def is_running(attempts: Path, task: TaskId, attempt: int) -> bool:
    """Whether an attempt is noted as being in flight here."""
    return (attempts / f"{task}.{attempt}.json").is_file()


class LogReader:
    """Reads one file, line by line, as far as it has come; `close` gives it back."""

    def __init__(self, path: Path, place: int = 0) -> None:
        with own_folder(path.parent) as inside:
            self._handle = open_there(path.name, inside)
        self._offset = place
        self._rest = b""

    def close(self) -> None:
        """Give the file back."""
        if self._handle != -1:
            os.close(self._handle)
            self._handle = -1

    @property
    def too_long(self) -> bool:
        """Whether it has come to where the file does not only grow: the rest is read when the attempt has ended."""
        return self._offset >= GROWING_MOST

    @property
    def place(self) -> int:
        """How far it was read, in bytes: another reader goes on from there."""
        return self._offset - len(self._rest)

    def lines(self, *, over: bool, most: int | None = None) -> Iterator[bytes]:
        """Lines that are new and whole; once it is `over`, whatever is left, too.

        With `most`, no more is read once there were so many bytes; then what is left comes with the next call.
        """
        end = None if most is None else self._offset + most
        while end is None or self._offset < end:
            room = PIECE if over else min(PIECE, GROWING_MOST - self._offset)
            piece = os.pread(self._handle, room, self._offset) if room > 0 else b""
            if not piece:
                break
            self._offset += len(piece)
            *whole, rest = (self._rest + piece).split(b"\n")
            if len(rest) > LONGEST:
                whole, rest = [*whole, rest], b""
            self._rest = rest
            yield from whole
        else:
            return
        if over and self._rest:
            last, self._rest = self._rest, b""
            yield last
