"""Where each name stands in a TOML file: line and column of every key, inside inline tables too.

`tomllib` reads values and forgets where they were. This reads the places and forgets the values: it walks over text
that `tomllib` has accepted, minding only what hides a key from a plain search, which is strings, comments, arrays and
inline tables. Of a text that it does not understand it gives the places it has found so far: they guide people, and
nothing is decided by them.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from contextlib import suppress
from itertools import accumulate
from typing import NamedTuple

Names = tuple[str, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]+|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_STRING = re.compile(
    r'"""(?:[^\\]|\\.)*?"{3,5}'  # up to two quotes may stand before those that end it
    r"|'''.*?'{3,5}"
    r'|"(?:[^"\\\n]|\\.)*"'
    r"|'[^'\n]*'",
    re.DOTALL,
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")
_ATOM = re.compile(r"[^,\]}\n#]*")


class Spot(NamedTuple):
    """A place in a text, both counted from 1."""

    line: int
    column: int


class _Lost(Exception):
    """This is not the TOML it was taken for."""


def locate(text: str) -> dict[Names, Spot]:
    """The first place of each name, by its whole path."""
    walk = _Walk(text)
    with suppress(_Lost):
        walk.document()
    return walk.found


class _Walk:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Names, Spot] = {}
        self._starts = [0, *accumulate(len(line) for line in text.split("\n"))]
        self._starts = [start + number for number, start in enumerate(self._starts)]

    def document(self) -> None:
        """Every table and key of the file."""
        table: Names = ()
        while self._skip(_BLANK) < len(self.text):
            if self._takes("["):
                self._takes("[")
                self._skip(_SPACE)
                table = self._key(()) or ()
                while self._takes("]"):
                    pass
            else:
                self._pair(table)

    def _pair(self, table: Names | None) -> None:
        path = self._key(table)
        if not self._takes("="):
            raise _Lost
        self._skip(_SPACE)
        self._value(path)

    def _key(self, table: Names | None) -> Names | None:
        """A dotted key; without a table it has no path, and is only passed over."""
        start = self.at
        parts = [self._part()]
        while self._skip(_SPACE) < len(self.text) and self._takes("."):
            self._skip(_SPACE)
            parts.append(self._part())
        if table is None:
            return None
        path = (*table, *parts)
        self.found.setdefault(path, self._spot(start))
        return path

    def _part(self) -> str:
        if bare := _BARE.match(self.text, self.at):
            self.at = bare.end()
            return bare.group()
        if quoted := _STRING.match(self.text, self.at):
            self.at = quoted.end()
            return _unquoted(quoted.group())
        raise _Lost

    def _value(self, path: Names | None) -> None:
        """Pass over a value; the keys of an inline table are below the path, those of tables in arrays have none."""
        if string := _STRING.match(self.text, self.at):
            self.at = string.end()
        elif self._takes("["):
            while self._goes_on("]"):
                self._value(None)
        elif self._takes("{"):
            while self._goes_on("}"):
                self._pair(path)
        elif self.at == self._skip(_ATOM):
            raise _Lost

    def _goes_on(self, end: str) -> bool:
        """Whether an array or an inline table has one more part."""
        self._skip(_BLANK)
        if self._takes(","):
            self._skip(_BLANK)
        return not self._takes(end)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        found = pattern.match(self.text, self.at)
        self.at = self.at if found is None else found.end()
        return self.at

    def _takes(self, sign: str) -> bool:
        taken = self.text.startswith(sign, self.at)
        self.at += len(sign) * taken
        return taken

    def _spot(self, index: int) -> Spot:
        line = bisect_right(self._starts, index)
        return Spot(line, index - self._starts[line - 1] + 1)


def _unquoted(quoted: str) -> str:
    if "\\" not in quoted or quoted.startswith("'"):
        return quoted[1:-1]
    import tomllib

    return str(tomllib.loads(f"key = {quoted}")["key"])
