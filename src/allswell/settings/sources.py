"""Where settings come from: finding the files, reading them and the environment, and telling lines apart."""

from __future__ import annotations

import os
import re
import stat
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from itertools import accumulate, pairwise
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from allswell.domain.check.model import Location
from allswell.settings.nearby import folders, without_waiting
from allswell.store.files import doubt
from allswell.store.trusted import user_folder

# How much a settings file may hold before it is read at all.
#
# The reader of TOML in the standard library takes a minute for a name of a thousand parts, and the whole stack for a
# list of a thousand lists. No settings are like that, so a file that is gets a clear answer instead of a long wait.
# What is looked at here is seen in one pass over the text, with strings and comments left out.

LARGEST = 1 << 18
"""Characters."""
DEEPEST = 32
"""Lists and tables inside each other."""
MOST_PARTS = 16
"""Of a dotted name."""
LONGEST_WORD = 200
"""Of a name or a number outside quotes."""

_HIDDEN = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*(?:"{3,5}|$)'  # one that does not end hides all the rest
    r"|'''(?:[^']|'(?!''))*(?:'{3,5}|$)"
    r'|"(?:[^"\\\n]|\\[^\n])*"?'
    r"|'[^'\n]*'?"
    r"|#[^\n]*",
    re.DOTALL,
)
_BRACKET = re.compile(r"[\[\]{}]")
_BETWEEN = re.compile(r"[=\n{},\[\]]")
_WORD = re.compile(r"[\w+\-]+")


def too_much(text: str) -> tuple[int, str] | None:
    """The line at which a file asks too much of its reader, and what it is; None if it does not."""
    bare = _HIDDEN.sub(_lines_only, text)
    depth = 0
    for found in _BRACKET.finditer(bare):
        depth = max(depth + (1 if found[0] in "[{" else -1), 0)
        if depth > DEEPEST:
            return _line(bare, found.start()), f"more than {DEEPEST} lists or tables inside each other"
    ends = [-1, *(found.start() for found in _BETWEEN.finditer(bare)), len(bare)]
    for before, end in pairwise(ends):
        if bare.count(".", before + 1, end) >= MOST_PARTS:
            return _line(bare, end), f"a name of more than {MOST_PARTS} parts"
    for found in _WORD.finditer(bare):
        if found.end() - found.start() > LONGEST_WORD:
            return _line(bare, found.start()), f"a name or number of more than {LONGEST_WORD} characters"
    return None


def _lines_only(found: re.Match[str]) -> str:
    """In place of a string or a comment: nothing but the ends of its lines."""
    return "\n" * found[0].count("\n")


def _line(text: str, index: int) -> int:
    return text.count("\n", 0, index) + 1


# Where each name stands in a TOML file: line and column of every key, inside inline tables too.
#
# `tomllib` reads values and forgets where they were. This reads the places and forgets the values: it walks over text
# that `tomllib` has accepted, minding only what hides a key from a plain search, which is strings, comments, arrays and
# inline tables. Of a text that it does not understand it gives the places it has found so far: they guide people, and
# nothing is decided by them.

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


class TextPosition(NamedTuple):
    """A place in a text, both counted from 1."""

    line: int
    column: int


class _NotToml(Exception):
    """This is not the TOML it was taken for."""


def locate(text: str) -> dict[Names, TextPosition]:
    """The first place of each name, by its whole path."""
    walk = _Walk(text)
    with suppress(_NotToml):
        walk.document()
    return walk.found


class _Walk:
    def __init__(self, text: str) -> None:
        self.text = text
        self.at = 0
        self.found: dict[Names, TextPosition] = {}
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
            raise _NotToml
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
        raise _NotToml

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
            raise _NotToml

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

    def _spot(self, index: int) -> TextPosition:
        line = bisect_right(self._starts, index)
        return TextPosition(line, index - self._starts[line - 1] + 1)


def _unquoted(quoted: str) -> str:
    if "\\" not in quoted or quoted.startswith("'"):
        return quoted[1:-1]
    import tomllib

    return str(tomllib.loads(f"key = {quoted}")["key"])


FILE = "allswell.toml"
USER = "user"
"""The kind of your own settings file, `~/.config/allswell/allswell.toml`: it is trusted, and weaker than all others."""
PROJECT = "pyproject.toml"
_SECTION = ("tool", "allswell")
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")

Path_ = tuple[str, ...]


class Source(msgspec.Struct, frozen=True):
    """Which source a value comes from, and where exactly."""

    kind: str
    """`default`, `user` (your own settings file), `pyproject.toml`, `allswell.toml`, `environment` or `flag`."""
    where: str = ""
    """The file with the line, the variable, or the flag."""
    folder: Path | None = None
    """What a relative path in it counts from."""
    place: Location | None = None
    """The same as data, with the column too; None for a default."""


Part = Literal["all", "figures", "agents", "sinks", "hooks", "trust"]
"""What a mistake spoils: everything (which store is meant cannot be known), figures, agents, sinks or hooks.

`trust` is no mistake: something came with the folder, and its user has not trusted it yet."""


class SettingsProblem(msgspec.Struct, frozen=True):
    """Something wrong with the settings, and where."""

    says: str
    where: str = ""
    place: Location | None = None
    """The first of the places that `where` names."""
    part: Part = "all"
    """Who needs another part is not stopped by it."""

    def __str__(self) -> str:
        return f"{self.where}: {self.says}" if self.where else self.says


class SettingsFile(msgspec.Struct, frozen=True):
    """A file with settings: its tables, and where each name stands."""

    kind: str
    path: Path
    table: dict[str, Any]
    spots: dict[Path_, TextPosition]

    def source(self, name: Path_) -> Source:
        """Where this name was given: its own place, or that of the table it stands in."""
        path = name
        while path and path not in self.spots:
            path = path[:-1]
        if not path:  # of `[a.b]` only the whole has a place, and `a` is there too
            path = next((spot for spot in self.spots if name and spot[: len(name)] == name), ())
        file = str(self.path)
        if not path:
            return Source(self.kind, file, self.path.parent, Location(file))
        spot = self.spots[path]
        return Source(self.kind, f"{file}:{spot.line}", self.path.parent, Location(file, spot.line, spot.column))


def files(start: Path, problems: list[SettingsProblem], instead: Path | None = None) -> Iterator[SettingsFile]:
    """Your own settings file and the nearest ones upward, the weakest first; what cannot be read is a problem.

    `instead` is read as if it were the `allswell.toml`.
    """
    above = list(folders(start))
    own = user_file()
    text, untrusted = _text(own, problems)
    if untrusted is not None:
        problems.append(SettingsProblem(untrusted, str(own), Location(str(own))))
    elif text is not None and (table := _table(own, text, (), problems)) is not None:
        yield SettingsFile(USER, own, table, _spots(text, ()))
    for kind, section in ((PROJECT, _SECTION), (FILE, ())):
        named = [instead] if instead is not None and kind == FILE else None
        for path in named or [folder / kind for folder in above]:
            text, doubts = _text(path, problems)
            if text is None or (section and section[-1] not in text):
                continue  # most projects have a pyproject.toml that is not about us: not even parsed
            untrusted = doubts if named is None else None
            table = _table(path, text, section, problems if untrusted is None else [])
            if untrusted is not None and (table is not None or not section):
                says = f"{untrusted}; take it over (chown), remove it, or work in a folder of your own"
                problems.append(SettingsProblem(says, str(path), Location(str(path))))
                break
            if table is not None:
                yield SettingsFile(kind, path, table, _spots(text, section))
                break


def user_file() -> Path:
    """Where the settings of a user lie that hold in every folder."""
    return user_folder("XDG_CONFIG_HOME", ".config") / FILE


def _text(path: Path, problems: list[SettingsProblem]) -> tuple[str | None, str | None]:
    """What stands in a file, and what speaks against trusting it; neither, if there is none that can be read."""
    try:
        link = path.lstat()
        with open(path, encoding="utf-8", opener=without_waiting) as opened:
            found = os.fstat(opened.fileno())
            if not stat.S_ISREG(found.st_mode):
                return None, None
            doubts = doubt(found) or (doubt(link) if link.st_uid != found.st_uid else None)
            text = opened.read(LARGEST + 1)
        if len(text) <= LARGEST:
            return text, doubts
        problems.append(
            SettingsProblem("the file is larger than 256 KiB, which settings never are", str(path), Location(str(path)))
        )
    except (FileNotFoundError, NotADirectoryError):
        return None, None
    except UnicodeDecodeError:
        problems.append(SettingsProblem("the file is not UTF-8 text", str(path), Location(str(path))))
    except OSError as error:
        # A folder on the way up that may not be entered is nobody's mistake.
        if os.access(path.parent, os.X_OK):
            problems.append(
                SettingsProblem(f"the file cannot be read: {error.strerror}", str(path), Location(str(path)))
            )
    return None, None


def _table(path: Path, text: str, section: Path_, problems: list[SettingsProblem]) -> dict[str, Any] | None:
    """The table with the settings; None if the file has none."""
    import tomllib  # only those who have a file pay for it

    if (found := too_much(text)) is not None:
        line, what = found
        place = Location(str(path), line)
        problems.append(SettingsProblem(f"the file holds {what}, which settings never do", str(place), place))
        return None
    try:
        table: Any = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, ValueError, RecursionError) as error:
        says = str(error)
        at = _AT_LINE.search(says)
        place = Location(str(path), int(at[1]), int(at[2])) if at else Location(str(path))
        problems.append(SettingsProblem(f"this is not TOML: {_AT_LINE.sub('', says)}", str(place), place))
        return None
    for part in section:
        table = table.get(part)
        if not isinstance(table, dict):
            return None
    return dict(table)


def _spots(text: str, section: Path_) -> dict[Path_, TextPosition]:
    """The place of each name below a section."""
    depth = len(section)
    return {path[depth:]: spot for path, spot in locate(text).items() if path[:depth] == section and path[depth:]}


def leaves(table: Mapping[str, Any], tables: frozenset[str], path: Path_ = ()) -> Iterator[tuple[Path_, object]]:
    """Every value with its path. Tables that settings live in are opened, and those below them."""
    for key, value in table.items():
        here = (*path, key)
        if isinstance(value, dict) and (path or key in tables) and (value or len(here) < 2):
            yield from leaves(value, tables, here)
        else:
            yield here, value
