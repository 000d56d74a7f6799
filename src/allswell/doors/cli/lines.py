"""Tasks as JSON lines, however many: read line by line, as often as need be, and never held all at once.

**Nothing is handed over before everything was looked at**, so a mistake in line 900,000 leaves nothing behind. What
comes through a pipe is therefore put into a temporary file, and read twice: once to check, once to submit. Kept in
memory are the names that other lines need, and a mark for each line with a key of its own.

That works as long as a line needs only lines above it. Where it needs one below, the order has to be found among all
of them (`submitting`).
"""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import msgspec

from allswell.doors.cli.given import parsed
from allswell.errors import Refused

if TYPE_CHECKING:
    from allswell.domain.command import NewTask
    from allswell.domain.names import TaskId

Fields = dict[str, Any]
"""What `Watch.new_tasks` takes: whatever JSON can say, checked there."""
LONGEST = 8 << 20
"""Bytes of a line; no task is as large."""
_CHUNK = 1 << 20


class Lines:
    """JSON objects, one on each line, that can be read more than once."""

    def __init__(self, content: IO[bytes], source: str, defaults: Fields) -> None:
        self._content = content
        self._source = source
        self._defaults = defaults

    def __iter__(self) -> Iterator[tuple[int, Fields]]:
        """Each with the number of its line, and with what holds for all of them; empty lines are passed over."""
        self._content.seek(0)
        number = 0
        while line := self._content.readline(LONGEST + 1):
            number += 1
            if len(line) > LONGEST:
                text = f"lines, line {number}, is longer than {LONGEST >> 20} MiB, which no task can be"
                raise Refused("bad_line", text, where=f"line {number}")
            if line.strip():
                yield number, {**self._defaults, **self._object(line, number)}

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


class Survey:
    """What is remembered of lines while they are looked at one by one."""

    def __init__(self) -> None:
        self.total = 0
        self.needy: list[tuple[int, tuple[str, ...]]] = []
        """Lines that need something, and what."""
        self.first: dict[str, int] = {}
        """Names that are needed, and the first line of each."""
        self._keys: set[int] = set()

    def add(self, number: int, fields: Fields) -> Fields:
        """Note a line; returned is what of it can be checked alone: whom it needs is another matter."""
        self.total += 1
        needs = fields.get("needs")
        if not isinstance(needs, list) or not needs or not all(isinstance(need, str) for need in needs):
            return dict(fields)
        self.needy.append((number, tuple(needs)))
        return {**fields, "needs": [f"t_{place}" for place in range(len(needs))]}

    def made(self, new: NewTask) -> None:
        """Refuse a key that another line has."""
        if new.keyed:
            mark = hash(new.id)
            if mark in self._keys:
                raise Refused("duplicate_id", f"{new.name} and a line before it have the same key", where="key")
            self._keys.add(mark)

    def name(self, lines: Lines) -> None:
        """Find the lines of the names that are needed."""
        wanted = {need for _, needs in self.needy for need in needs}
        if not wanted:
            return
        for number, fields in lines:
            name = fields.get("name")
            if isinstance(name, str) and name in wanted:
                self.first.setdefault(name, number)

    @property
    def in_order(self) -> bool:
        """Whether each line needs only lines above it."""
        return all(self.first.get(need, 0) < number for number, needs in self.needy for need in needs)


class Ids:
    """The ids of what was submitted: printed as they come, or kept as one JSON list."""

    def __init__(self, *, json: bool) -> None:
        self._json = bytearray() if json else None
        self.count = 0

    def add(self, ids: list[TaskId]) -> str:
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
