"""Where settings come from: finding the files, reading them and the environment, and telling lines apart."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

FILE = "allswell.toml"
PROJECT = "pyproject.toml"
_SECTION = ("tool", "allswell")
_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PATH = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\s*({_PATH})\s*\]")
_KEY = re.compile(rf"\s*({_PATH})\s*=")
_PARTS = re.compile(_PART)
_AT_LINE = re.compile(r" \(at line (\d+), column (\d+)\)$")

Path_ = tuple[str, ...]


class Source(msgspec.Struct, frozen=True):
    """Which source a value comes from, and where exactly."""

    kind: str
    """`default`, `pyproject.toml`, `allswell.toml`, `environment` or `flag`."""
    where: str = ""
    """The file with the line, the variable, or the flag."""
    folder: Path | None = None
    """What a relative path in it counts from."""


class Problem(msgspec.Struct, frozen=True):
    """Something wrong with the settings, and where."""

    says: str
    where: str = ""

    def __str__(self) -> str:
        return f"{self.where}: {self.says}" if self.where else self.says


class Found(msgspec.Struct, frozen=True):
    """A file with settings: its tables, and on which line each name stands."""

    kind: str
    path: Path
    table: dict[str, Any]
    lines: dict[Path_, int]

    def source(self, name: Path_) -> Source:
        """Where this name was given."""
        path = name
        while path and path not in self.lines:
            path = path[:-1]
        line = f":{self.lines[path]}" if path else ""
        return Source(self.kind, f"{self.path}{line}", self.path.parent)


def files(start: Path, problems: list[Problem]) -> Iterator[Found]:
    """The nearest files upward that hold settings, the weaker one first; what cannot be read is a problem."""
    folders = (start, *start.parents)
    for kind, section in ((PROJECT, _SECTION), (FILE, ())):
        for folder in folders:
            path = folder / kind
            text = _text(path, problems)
            if text is None or (section and section[-1] not in text):
                continue  # most projects have a pyproject.toml that is not about us: not even parsed
            table = _table(path, text, section, problems)
            if table is not None:
                yield Found(kind, path, table, _lines(text, section))
                break


def _text(path: Path, problems: list[Problem]) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except UnicodeDecodeError:
        problems.append(Problem("the file is not UTF-8 text", str(path)))
    except OSError as error:
        # A folder on the way up that may not be entered is nobody's mistake.
        if os.access(path.parent, os.X_OK):
            problems.append(Problem(f"the file cannot be read: {error.strerror}", str(path)))
    return None


def _table(path: Path, text: str, section: Path_, problems: list[Problem]) -> dict[str, Any] | None:
    """The table with the settings; None if the file has none."""
    import tomllib  # only those who have a file pay for it

    try:
        table: Any = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        says = str(error)
        at = _AT_LINE.search(says)
        where = f"{path}:{at[1]}:{at[2]}" if at else str(path)
        problems.append(Problem(f"this is not TOML: {_AT_LINE.sub('', says)}", where))
        return None
    for part in section:
        table = table.get(part)
        if not isinstance(table, dict):
            return None
    return dict(table)


def _lines(text: str, section: Path_) -> dict[Path_, int]:
    """The first line of each name. A guide for people: odd layouts may lead to the line of the table instead."""
    found: dict[Path_, int] = {}
    table: Path_ = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if header := _HEADER.match(line):
            table = path = _split(header[1])
        elif key := _KEY.match(line):
            path = (*table, *_split(key[1]))
        else:
            continue
        if path[: len(section)] == section:
            found.setdefault(path[len(section) :], number)
    return found


def _split(dotted: str) -> Path_:
    return tuple(part.strip("\"'") for part in _PARTS.findall(dotted))


def leaves(table: Mapping[str, Any], tables: frozenset[str], path: Path_ = ()) -> Iterator[tuple[Path_, object]]:
    """Every value with its path. Tables that settings live in are opened, and those below them."""
    for key, value in table.items():
        here = (*path, key)
        if isinstance(value, dict) and (path or key in tables) and (value or len(here) < 2):
            yield from leaves(value, tables, here)
        else:
            yield here, value
