"""Tasks as JSON lines, however many: read line by line, as often as need be, and never held all at once.

Nothing is handed over before everything was looked at, so they are read at least twice (`engine/bulk.py`). What comes
through a pipe is therefore put into a temporary file.
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import IO, TYPE_CHECKING, Any

import msgspec

from allswell.doors.cli.given import moment, parsed
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.names import TaskId

Fields = dict[str, Any]
"""What the watch takes: whatever JSON can say, checked there."""
LONGEST = 8 << 20
"""Bytes of a line; no task is as large."""
_CHUNK = 1 << 20


class Lines:
    """JSON objects, one on each line, that can be read more than once."""

    def __init__(self, content: IO[bytes], source: str, defaults: Fields) -> None:
        self._content = content
        self._source = source
        self._defaults = defaults
        self.now = 0
        """The store's clock, from which delays count."""

    def __iter__(self) -> Iterator[Fields]:
        """Each with what holds for all of them."""
        return (fields for _, fields in self._numbered())

    def refused(self, error: Refused, place: int) -> Refused:
        """The same error, about the line on which the task of this place stands."""
        number = next(number for number, _ in islice(self._numbered(), place, None))
        return _about_line(error, number)

    def _numbered(self) -> Iterator[tuple[int, Fields]]:
        """Each with the number of its line; empty lines are passed over."""
        self._content.seek(0)
        number = 0
        while line := self._content.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                text = f"lines, line {number}, is longer than {LONGEST >> 20} MiB, which no task can be"
                raise Refused("bad_line", text, where=f"line {number}")
            if line.strip():
                yield number, self._timed({**self._defaults, **self._object(line, number)}, number)

    def _timed(self, fields: Fields, number: int) -> Fields:
        """With an instant where a delay stands."""
        if isinstance(fields.get("not_before"), str):
            try:
                fields["not_before"] = moment(fields["not_before"], self.now, "not_before")
            except Refused as error:
                raise _about_line(error, number) from None
        return fields

    def _object(self, line: bytes, number: int) -> Fields:
        try:
            text = line.decode()
        except UnicodeDecodeError as error:
            said = f"lines: {self._source} is not UTF-8 text (line {number}, byte {error.start})"
            raise Refused("not_text", said, where="lines") from None
        value = parsed(text, f"lines, line {number},", line=number - 1)
        if not isinstance(value, dict):
            said = f'lines, line {number}, is not an object such as {{"name": "…"}}'
            raise Refused("bad_line", said, where=f"line {number}")
        if "run_id" in value:  # as it is printed
            value.setdefault("run", value.pop("run_id"))
        return value


def _about_line(error: Refused, number: int) -> Refused:
    return Refused(error.code, f"line {number}: {error.message}", where=f"line {number}", hint=error.hint)


@contextmanager
def opened(name: str, defaults: Fields) -> Iterator[Lines]:
    """The lines of a file, or of standard input (`-`); what cannot be read twice is put into a temporary file."""
    if name == "-":
        with _kept(sys.stdin.buffer) as kept:
            yield Lines(kept, "standard input", defaults)
        return
    try:
        content: IO[bytes] = open(name, "rb")  # noqa: PTH123, SIM115 - a name that was typed; closed below
        if not stat.S_ISREG(os.fstat(content.fileno()).st_mode):
            with content:
                content = _kept(content)
    except (OSError, ValueError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise Refused("no_file", f"lines: {name!r} cannot be read: {why}", where="lines") from None
    with content:
        yield Lines(content, name, defaults)


def _kept(content: IO[bytes]) -> IO[bytes]:
    """A temporary file with the same content."""
    from tempfile import TemporaryFile

    kept = TemporaryFile()  # noqa: SIM115 - closed by whoever reads it
    while chunk := content.read(_CHUNK):
        kept.write(chunk)
    return kept


class Ids:
    """The ids of what was submitted: printed as they come, or kept as one JSON list."""

    def __init__(self, *, json: bool) -> None:
        self._json = bytearray() if json else None
        self.count = 0

    def add(self, ids: Sequence[TaskId]) -> str:
        """Take more of them; returned is what is to be printed now."""
        self.count += len(ids)
        if self._json is None:
            return "\n".join(ids) + "\n"
        for id_ in ids:
            self._json += b"," if self._json else b""
            self._json += msgspec.json.encode(id_)
        return ""

    def list(self) -> msgspec.Raw:
        """All of them."""
        return msgspec.Raw(b"[" + (self._json or b"") + b"]")
